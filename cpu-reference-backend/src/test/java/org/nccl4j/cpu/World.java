package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.UnaryOperator;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;

/** Ranks of one communicator on a scheduler of their own, a stream each, and int buffers. */
final class World implements AutoCloseable {
    /** Longer than anything takes that shall end. */
    static final Duration LONG = Duration.ofSeconds(20);

    static final Duration NOW = Duration.ZERO;

    final RecordingLog log = new RecordingLog();
    final Scheduler scheduler;
    final CpuBackend backend;
    final List<Communicator> ranks;
    final List<DeviceStream> streams = new ArrayList<>();

    World(int size) {
        this(size, 2, new ReferenceEngine(), config -> config);
    }

    World(int size, UnaryOperator<CommunicatorConfig> change) {
        this(size, 2, new ReferenceEngine(), change);
    }

    World(int size, int cores, Engine engine, UnaryOperator<CommunicatorConfig> change) {
        scheduler = new Scheduler(cores, log);
        backend = new CpuBackend(engine, new CpuDevices(scheduler));
        ranks =
                backend.createLocal(
                        size,
                        change.apply(CommunicatorConfig.defaults().withOperationTimeout(LONG)));
        for (Communicator rank : ranks) {
            streams.add(rank.device().createStream());
        }
    }

    Communicator rank(int rank) {
        return ranks.get(rank);
    }

    DeviceStream stream(int rank) {
        return streams.get(rank);
    }

    DeviceStream newStream(int rank) {
        return rank(rank).device().createStream();
    }

    /** A buffer on a rank's device, with these elements. */
    DeviceBuffer ints(int rank, int... values) {
        DeviceBuffer buffer = zeros(rank, values.length);
        for (int i = 0; i < values.length; i++) {
            buffer.hostSegment().setAtIndex(ValueLayout.JAVA_INT, i, values[i]);
        }
        return buffer;
    }

    DeviceBuffer zeros(int rank, int count) {
        return rank(rank).device().allocate(4L * count);
    }

    static int[] toArray(DeviceBuffer buffer) {
        return buffer.hostSegment().toArray(ValueLayout.JAVA_INT);
    }

    /** Enqueues an in-place all-reduce of a whole int buffer on the rank's stream. */
    void allReduce(int rank, DeviceBuffer buffer) {
        allReduce(rank, buffer, stream(rank));
    }

    void allReduce(int rank, DeviceBuffer buffer, DeviceStream stream) {
        rank(rank)
                .allReduce(
                        buffer,
                        buffer,
                        buffer.sizeBytes() / 4,
                        DataType.INT32,
                        ReduceOp.SUM,
                        stream);
    }

    void synchronize() {
        backend.synchronizeAll(streams, LONG);
    }

    /** Proves that all still works: an all-reduce of one element. */
    void assertWorks() {
        List<DeviceBuffer> buffers = new ArrayList<>();
        for (int rank = 0; rank < ranks.size(); rank++) {
            buffers.add(ints(rank, rank + 1));
            allReduce(rank, buffers.get(rank));
        }
        synchronize();
        for (DeviceBuffer buffer : buffers) {
            assertThat(toArray(buffer)).containsExactly(ranks.size() * (ranks.size() + 1) / 2);
            buffer.close();
        }
    }

    @Override
    public void close() {
        backend.closeAll(ranks);
        streams.forEach(DeviceStream::close);
    }
}
