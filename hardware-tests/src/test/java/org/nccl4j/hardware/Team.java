package org.nccl4j.hardware;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;

/**
 * Ranks of one communicator in this process, with a stream each, and what their tests allocate.
 * Thread safety: one thread, which drives all ranks by groups.
 */
final class Team implements AutoCloseable {
    /** How long a test waits for work that is expected to end. */
    static final Duration PATIENCE = Duration.ofSeconds(20);

    private final Backend backend;
    private final List<Communicator> communicators;
    private final List<DeviceStream> streams = new ArrayList<>();
    private final Deque<AutoCloseable> opened = new ArrayDeque<>();

    private Team(Backend backend, List<Communicator> communicators) {
        this.backend = backend;
        this.communicators = communicators;
    }

    static Team local(Backend backend, int ranks, CommunicatorConfig config) {
        return of(backend, backend.createLocal(ranks, config));
    }

    /** Of communicators that were made in another way. */
    static Team of(Backend backend, List<Communicator> communicators) {
        Team team = new Team(backend, communicators);
        try {
            for (Communicator communicator : communicators) {
                team.streams.add(team.closing(communicator.device().createStream()));
            }
        } catch (RuntimeException e) {
            team.closeAfter(e);
            throw e;
        }
        return team;
    }

    int size() {
        return communicators.size();
    }

    List<Communicator> communicators() {
        return communicators;
    }

    Communicator communicator(int rank) {
        return communicators.get(rank);
    }

    DeviceStream stream(int rank) {
        return streams.get(rank);
    }

    /** Has something closed with the team, the last first and all before the communicators. */
    <T extends AutoCloseable> T closing(T resource) {
        opened.push(resource);
        return resource;
    }

    /** Memory of a rank's device. */
    DeviceBuffer buffer(int rank, long sizeBytes) {
        return closing(communicator(rank).device().allocate(sizeBytes));
    }

    /** Memory of a rank's device with contents. */
    DeviceBuffer buffer(int rank, byte[] contents) {
        DeviceBuffer buffer = buffer(rank, contents.length);
        DeviceBuffer staging = closing(communicator(rank).device().allocateHost(contents.length));
        MemorySegment.copy(
                contents, 0, staging.hostSegment(), ValueLayout.JAVA_BYTE, 0, contents.length);
        stream(rank).copy(staging, buffer, contents.length);
        stream(rank).synchronize(PATIENCE);
        return buffer;
    }

    /** What is in a rank's buffer, once all work of its stream is done. */
    byte[] read(int rank, DeviceBuffer buffer) {
        int sizeBytes = Math.toIntExact(buffer.sizeBytes());
        DeviceBuffer staging = closing(communicator(rank).device().allocateHost(sizeBytes));
        stream(rank).copy(buffer, staging, sizeBytes);
        stream(rank).synchronize(PATIENCE);
        return staging.hostSegment().toArray(ValueLayout.JAVA_BYTE);
    }

    void synchronizeAll() {
        backend.synchronizeAll(streams, PATIENCE);
    }

    /** An all-reduce of one int32 a rank, which is its number plus one; the sums. */
    List<Integer> sum() {
        List<DeviceBuffer> values = new ArrayList<>();
        for (int rank = 0; rank < size(); rank++) {
            values.add(buffer(rank, new byte[] {(byte) (rank + 1), 0, 0, 0}));
        }
        backend.group(group -> {
            for (int rank = 0; rank < size(); rank++) {
                DeviceBuffer value = values.get(rank);
                group.on(communicator(rank))
                        .allReduce(value, value, 1, DataType.INT32, ReduceOp.SUM, stream(rank));
            }
        });
        List<Integer> sums = new ArrayList<>();
        for (int rank = 0; rank < size(); rank++) {
            sums.add((int) read(rank, values.get(rank))[0]);
        }
        return sums;
    }

    /** What {@link #sum} must give. */
    List<Integer> expectedSum() {
        return Collections.nCopies(size(), size() * (size() + 1) / 2);
    }

    private void closeAfter(RuntimeException failure) {
        try {
            abort();
            close();
        } catch (RuntimeException e) {
            failure.addSuppressed(e);
        }
    }

    /** Gives up all work, so that closing need not wait for it. */
    void abort() {
        communicators.forEach(communicator -> communicator.abort(PATIENCE));
    }

    @Override
    public void close() {
        RuntimeException first = null;
        while (!opened.isEmpty()) {
            try {
                opened.pop().close();
            } catch (Exception e) {
                first = with(first, e);
            }
        }
        try {
            if (communicators.stream()
                    .allMatch(one -> one.status() instanceof CommunicatorStatus.Ready)) {
                backend.closeAll(communicators);
            } else {
                communicators.forEach(Communicator::close);
            }
        } catch (RuntimeException e) {
            first = with(first, e);
        }
        if (first != null) {
            throw first;
        }
    }

    private static RuntimeException with(RuntimeException first, Exception next) {
        if (first != null) {
            first.addSuppressed(next);
            return first;
        }
        return next instanceof RuntimeException e ? e : new IllegalStateException(next);
    }
}
