package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.nccl.NcclBackend;

/**
 * NCCL's group and CUDA's current device belong to an operating system's thread, and a virtual
 * thread may be on another one at each call; the emulator notices.
 */
@OnEmulator
final class VirtualThreadsTest {
    private static final int TEAMS = 3;
    private static final int ROUNDS = 30;
    private static final CommunicatorConfig CONFIG =
            CommunicatorConfig.defaults().withOperationTimeout(Team.PATIENCE);

    private final Backend backend = new NcclBackend();

    /** Threads that drive a team each, by groups, and change carriers all the time. */
    @Test
    void groupsOfVirtualThreads() throws Exception {
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Future<?>> running = new ArrayList<>();
            for (int i = 0; i < TEAMS; i++) {
                running.add(
                        threads.submit(() -> {
                            try (Team team = Team.local(backend, 2, CONFIG)) {
                                for (int round = 0; round < ROUNDS; round++) {
                                    Thread.yield();
                                    assertThat(team.sum()).isEqualTo(team.expectedSum());
                                }
                            }
                        }));
            }
            for (Future<?> future : running) {
                future.get(40, TimeUnit.SECONDS);
            }
        }
    }

    /** A virtual thread per rank, without groups. */
    @Test
    void operationsOfVirtualThreads() throws Exception {
        try (Team team = Team.local(backend, 3, CONFIG)) {
            List<DeviceBuffer> values = new ArrayList<>();
            for (int rank = 0; rank < team.size(); rank++) {
                values.add(team.buffer(rank, new byte[] {1, 2, 3, 4}));
            }
            try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
                List<Future<?>> running = new ArrayList<>();
                for (int r = 0; r < team.size(); r++) {
                    int rank = r;
                    running.add(
                            threads.submit(() -> {
                                for (int round = 0; round < ROUNDS; round++) {
                                    Thread.yield();
                                    DeviceBuffer value = values.get(rank);
                                    team.communicator(rank)
                                            .allReduce(
                                                    value,
                                                    value,
                                                    4,
                                                    DataType.INT8,
                                                    ReduceOp.MAX,
                                                    team.stream(rank));
                                    team.communicator(rank).barrier(team.stream(rank));
                                    team.stream(rank).synchronize(Team.PATIENCE);
                                }
                            }));
                }
                for (Future<?> future : running) {
                    future.get(40, TimeUnit.SECONDS);
                }
            }
            for (int rank = 0; rank < team.size(); rank++) {
                assertThat(team.read(rank, values.get(rank))).containsExactly(1, 2, 3, 4);
            }
        }
    }
}
