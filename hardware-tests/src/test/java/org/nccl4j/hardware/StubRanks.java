package org.nccl4j.hardware;

import java.util.List;
import java.util.stream.Stream;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.ReduceOp;

/**
 * One thread's ranks on the stub libraries, with a stream each, and one buffer that holds all that
 * is needed.
 */
record StubRanks(
        Backend backend,
        List<Communicator> communicators,
        List<DeviceStream> streams,
        List<DeviceBuffer> whole,
        List<DeviceBuffer> part)
        implements AutoCloseable {
    static final int RANKS = 2;
    static final long COUNT_ELEMENTS = 256;
    private static final long SIZE_BYTES = COUNT_ELEMENTS * Float.BYTES;

    /** Enqueues one operation of rank 0. */
    interface Operation {
        void enqueue(Communicator rank, DeviceBuffer send, DeviceBuffer recv, DeviceStream stream);
    }

    /** An operation and the function of NCCL that it is. */
    record Case(String function, Operation operation) {
        @Override
        public String toString() {
            return function;
        }
    }

    static StubRanks open(Backend backend, int ranks, CommunicatorConfig config) {
        List<Communicator> communicators = backend.createLocal(ranks, config);
        List<DeviceBuffer> whole =
                communicators.stream()
                        .map(rank -> rank.device().allocate(RANKS * 2 * SIZE_BYTES))
                        .toList();
        return new StubRanks(
                backend,
                communicators,
                communicators.stream().map(rank -> rank.device().createStream()).toList(),
                whole.stream().map(all -> all.slice(0, RANKS * SIZE_BYTES)).toList(),
                whole.stream()
                        .map(all -> all.slice(RANKS * SIZE_BYTES, RANKS * SIZE_BYTES))
                        .toList());
    }

    /** The operations that are one call of NCCL's. */
    static Stream<Case> operations() {
        DataType type = DataType.FLOAT32;
        ReduceOp sum = ReduceOp.SUM;
        long n = COUNT_ELEMENTS;
        return Stream.of(
                new Case("ncclAllReduce", (c, s, r, q) -> c.allReduce(s, r, n, type, sum, q)),
                new Case("ncclReduce", (c, s, r, q) -> c.reduce(s, r, n, type, sum, 0, q)),
                new Case("ncclBroadcast", (c, s, r, q) -> c.broadcast(s, r, n, type, 0, q)),
                new Case("ncclAllGather", (c, s, r, q) -> c.allGather(s, r, n, type, q)),
                new Case(
                        "ncclReduceScatter",
                        (c, s, r, q) -> c.reduceScatter(s, r, n, type, sum, q)),
                new Case("ncclGather", (c, s, r, q) -> c.gather(s, r, n, type, 0, q)),
                new Case("ncclScatter", (c, s, r, q) -> c.scatter(s, r, n, type, 0, q)),
                new Case("ncclAlltoAll", (c, s, r, q) -> c.allToAll(s, r, n, type, q)),
                new Case("ncclSend", (c, s, r, q) -> c.send(s, n, type, 1, q)),
                new Case("ncclRecv", (c, s, r, q) -> c.recv(r, n, type, 1, q)),
                // NCCL has none: an all-reduce of one element.
                new Case("ncclAllReduce", (c, s, r, q) -> c.barrier(q)));
    }

    void enqueue(Operation operation) {
        operation.enqueue(
                communicators.getFirst(), whole.getFirst(), part.getFirst(), streams.getFirst());
    }

    RecordedGroup group() {
        return backend.record(group -> {
            for (int rank = 0; rank < RANKS; rank++) {
                group.on(communicators.get(rank))
                        .allReduce(
                                whole.get(rank),
                                part.get(rank),
                                COUNT_ELEMENTS,
                                DataType.FLOAT32,
                                ReduceOp.SUM,
                                streams.get(rank));
            }
        });
    }

    @Override
    public void close() {
        backend.closeAll(communicators);
        streams.forEach(DeviceStream::close);
        whole.forEach(DeviceBuffer::close);
    }
}
