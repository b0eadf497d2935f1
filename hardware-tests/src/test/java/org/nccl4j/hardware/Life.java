package org.nccl4j.hardware;

import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UniqueId;

/**
 * Two ranks from their making to their end, by all functions that a program commonly uses. What
 * goes wrong on the way is kept; the rest is closed all the same, as a careful program does.
 */
final class Life {
    static final int RANKS = 2;
    private static final int COUNT = 256;

    /** How far it has come. */
    enum Phase {
        INIT,
        ALLOCATE,
        COPY,
        OPERATE,
        SPLIT,
        WAIT,
        CLOSE
    }

    /**
     * What went wrong.
     *
     * @param phase where
     * @param cause what was thrown
     */
    record Failure(Phase phase, RuntimeException cause) {}

    private final Backend backend;
    private final CommunicatorConfig config;
    private final boolean threads;
    private final List<Failure> failures = new ArrayList<>();
    private final Deque<AutoCloseable> opened = new ArrayDeque<>();
    private final List<DeviceStream> streams = new ArrayList<>();
    private final List<DeviceBuffer> sends = new ArrayList<>();
    private final List<DeviceBuffer> recvs = new ArrayList<>();
    private final List<DeviceBuffer> hosts = new ArrayList<>();
    private List<Communicator> communicators = List.of();
    private List<Communicator> children = List.of();
    private Phase phase = Phase.INIT;

    /**
     * A life.
     *
     * @param threads whether the ranks meet by an id, a thread each, instead of all at once
     */
    Life(Backend backend, CommunicatorConfig config, boolean threads) {
        this.backend = backend;
        this.config = config;
        this.threads = threads;
    }

    /** Lives it; what went wrong, in order. */
    List<Failure> live() {
        try {
            communicators = threads ? meet() : backend.createLocal(RANKS, config);
            phase = Phase.ALLOCATE;
            communicators.forEach(this::allocate);
            phase = Phase.COPY;
            copyIn();
            phase = Phase.OPERATE;
            operate();
            phase = Phase.SPLIT;
            split();
            phase = Phase.WAIT;
            backend.synchronizeAll(streams, config.operationTimeout().multipliedBy(3));
            check();
        } catch (RuntimeException e) {
            failures.add(new Failure(phase, e));
        }
        phase = Phase.CLOSE;
        if (!failures.isEmpty()) {
            for (List<Communicator> ranks : List.of(children, communicators)) {
                for (Communicator communicator : ranks) {
                    attempt(() -> communicator.abort(Duration.ofSeconds(5)));
                }
            }
        }
        while (!opened.isEmpty()) {
            attempt(opened.pop());
        }
        closeAll(children);
        closeAll(communicators);
        return failures;
    }

    private void closeAll(List<Communicator> ranks) {
        if (ranks.stream().allMatch(one -> one.status() instanceof CommunicatorStatus.Ready)) {
            attempt(() -> backend.closeAll(ranks));
        } else {
            ranks.forEach(this::attempt);
        }
    }

    private void attempt(AutoCloseable close) {
        try {
            close.close();
        } catch (RuntimeException e) {
            failures.add(new Failure(phase, e));
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    private List<Communicator> meet() {
        UniqueId id = backend.newUniqueId();
        List<Communicator> met = new ArrayList<>();
        RuntimeException first = null;
        try (ExecutorService executor = Executors.newCachedThreadPool()) {
            List<Future<Communicator>> joining = new ArrayList<>();
            for (int r = 0; r < RANKS; r++) {
                int rank = r;
                joining.add(
                        executor.submit(
                                () -> backend.create(id, rank, RANKS, config.withDevice(rank))));
            }
            for (Future<Communicator> one : joining) {
                try {
                    met.add(one.get());
                } catch (ExecutionException e) {
                    RuntimeException cause = (RuntimeException) e.getCause();
                    if (first == null) {
                        first = cause;
                    } else {
                        failures.add(new Failure(phase, cause));
                    }
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    throw new AssertionError("the test's deadline has passed", e);
                }
            }
        }
        communicators = met;
        if (first != null) {
            throw first;
        }
        return met;
    }

    private <T extends AutoCloseable> T closing(T resource) {
        opened.push(resource);
        return resource;
    }

    private void allocate(Communicator communicator) {
        Device device = communicator.device();
        streams.add(closing(device.createStream()));
        sends.add(closing(device.allocate(COUNT)));
        recvs.add(closing(device.allocate(COUNT * RANKS)));
        hosts.add(closing(device.allocateHost(COUNT)));
        DeviceStream stream = streams.getLast();
        stream.allocate(64).close();
    }

    private void copyIn() {
        for (int rank = 0; rank < RANKS; rank++) {
            hosts.get(rank).hostSegment().fill((byte) (rank + 1));
            streams.get(rank).copy(hosts.get(rank), sends.get(rank), COUNT);
            streams.get(rank).fill(recvs.get(rank), (byte) 0);
        }
    }

    private void allReduce(List<Communicator> ranks, ReduceOp op) {
        backend.group(group -> {
            for (int rank = 0; rank < RANKS; rank++) {
                group.on(ranks.get(rank))
                        .allReduce(
                                sends.get(rank),
                                recvs.get(rank),
                                COUNT,
                                DataType.INT8,
                                op,
                                streams.get(rank));
            }
        });
    }

    /** Each rank is one of two in the new communicator too, where it uses what it received. */
    private void split() {
        children =
                backend
                        .split(communicators, new int[] {0, 0}, new int[] {0, 1})
                        .await(config.operationTimeout().multipliedBy(3))
                        .stream()
                        .map(Optional::orElseThrow)
                        .toList();
        allReduce(children, ReduceOp.preMulSum(DataType.INT8, 2));
    }

    private void operate() {
        allReduce(communicators, ReduceOp.SUM);
        backend.group(group -> {
            for (int rank = 0; rank < RANKS; rank++) {
                group.on(communicators.get(rank))
                        .sendRecv(
                                recvs.get(rank),
                                COUNT,
                                1 - rank,
                                sends.get(rank),
                                COUNT,
                                1 - rank,
                                DataType.INT8,
                                streams.get(rank));
            }
        });
        for (int rank = 0; rank < RANKS; rank++) {
            DeviceStream stream = streams.get(rank);
            DeviceEvent event = closing(communicators.get(rank).device().createEvent());
            stream.record(event);
            stream.waitFor(event);
            stream.copy(sends.get(rank), hosts.get(rank), COUNT);
        }
    }

    private void check() {
        for (DeviceBuffer host : hosts) {
            for (byte value : host.hostSegment().toArray(ValueLayout.JAVA_BYTE)) {
                if (value != 3) {
                    throw new IllegalStateException("a sum of 1 and 2 is " + value);
                }
            }
        }
    }
}
