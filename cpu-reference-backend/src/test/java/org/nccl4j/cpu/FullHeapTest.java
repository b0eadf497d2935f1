package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;

/** What is left when the heap was full for a while; each in a JVM of its own, with a small heap. */
final class FullHeapTest {
    /** What fills the heap: only kept. */
    @SuppressWarnings("UnusedVariable")
    private static Object full;

    private static final Duration SHORT = Duration.ofMillis(500);

    enum Scenario {
        DEADLINES_COUNT_AGAIN {
            @Override
            void run() throws InterruptedException {
                try (World world = new World(2, config -> config.withOperationTimeout(SHORT))) {
                    fillHeap(Duration.ofSeconds(2));
                    world.allReduce(0, world.zeros(0, 1));
                    assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                            .isInstanceOf(CollectiveTimeoutException.class)
                            .hasMessageContaining("rank 1 has not called it");
                    assertThatThrownBy(() -> world.rank(1).barrier(world.stream(1)))
                            .isInstanceOf(CollectiveTimeoutException.class);
                }
            }
        },

        A_DEADLINE_PASSES_MEANWHILE {
            @Override
            void run() throws InterruptedException {
                try (World world = new World(2, config -> config.withOperationTimeout(SHORT))) {
                    world.allReduce(0, world.zeros(0, 1));
                    fillHeap(Duration.ofSeconds(2));
                    assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                            .isInstanceOf(CollectiveTimeoutException.class)
                            .hasMessageContaining("rank 1 has not called it");
                }
            }
        },

        OPERATIONS_THAT_PILE_UP_LEAVE_THE_WORKERS_ALIVE {
            @Override
            void run() {
                World world = new World(2, config -> config.withOperationTimeout(SHORT));
                DeviceBuffer[] buffers = {world.zeros(0, 1 << 16), world.zeros(1, 1 << 16)};
                // Given back below, for this test and what the program does next.
                byte[][] reserve = {new byte[8 << 20]};
                try {
                    while (world.rank(0).status() instanceof CommunicatorStatus.Ready) {
                        world.allReduce(0, buffers[0]);
                        world.allReduce(1, buffers[1]);
                    }
                } catch (OutOfMemoryError | CollectiveException e) {
                    reserve[0] = null;
                }
                reserve[0] = null;
                for (int rank = 0; rank < 2; rank++) {
                    try {
                        world.stream(rank).synchronize(World.LONG);
                    } catch (CollectiveException e) {
                        // One rank may have come further than the other.
                        assertThat(world.rank(rank).status())
                                .isInstanceOfAny(
                                        CommunicatorStatus.Failed.class,
                                        CommunicatorStatus.Aborted.class);
                    }
                }
                List<Communicator> others =
                        world.backend.createLocal(2, CommunicatorConfig.defaults());
                DeviceStream[] streams = {world.newStream(0), world.newStream(1)};
                for (int rank = 0; rank < 2; rank++) {
                    others.get(rank)
                            .allReduce(
                                    buffers[rank],
                                    buffers[rank],
                                    1 << 16,
                                    DataType.INT32,
                                    ReduceOp.SUM,
                                    streams[rank]);
                }
                // Without a wait, in which this thread would help.
                Awaitility.await().atMost(World.LONG).until(() -> streams[0].poll());
            }
        },

        AN_OPERATION_THAT_GETS_READY_MEANWHILE_IS_NOT_LOST {
            @Override
            void run() {
                long seed = System.nanoTime();
                SplittableRandom random = new SplittableRandom(seed);
                for (int round = 0; round < 15; round++) {
                    // Run where it gets ready, and by whoever waits.
                    int count = random.nextBoolean() ? 100 : 1 << 15;
                    int ahead = 1 + random.nextInt(4);
                    try (World world = new World(2)) {
                        DeviceBuffer[] buffers = {world.zeros(0, count), world.zeros(1, count)};
                        for (int i = 0; i < ahead; i++) {
                            world.allReduce(0, buffers[0]);
                        }
                        int posted = 0;
                        try {
                            full = fill(random.nextInt(6000));
                            world.allReduce(1, buffers[1]);
                            posted++;
                            world.stream(1).synchronize(Duration.ofSeconds(1));
                        } catch (OutOfMemoryError | CollectiveException e) {
                            // Any of these, as long as all goes on.
                        }
                        full = null;
                        if (world.rank(1).status() instanceof CommunicatorStatus.Ready) {
                            while (posted < ahead) {
                                world.allReduce(1, buffers[1]);
                                posted++;
                            }
                            world.synchronize();
                        } else {
                            world.rank(0).abort(World.LONG);
                        }
                        assertThat(world.rank(0).status())
                                .as("seed %d, round %d", seed, round)
                                .isNotInstanceOf(CommunicatorStatus.Failed.class);
                    }
                }
            }

            /** All but some bytes of the heap. */
            private static Object fill(int spareBytes) {
                byte[] spare = new byte[spareBytes];
                Object[] chain = null;
                for (int size = 1 << 16; size > 0; size /= 4) {
                    try {
                        while (true) {
                            chain = new Object[] {chain, new long[size]};
                        }
                    } catch (OutOfMemoryError e) {
                        // That was the purpose.
                    }
                }
                Reference.reachabilityFence(spare);
                return chain;
            }
        },

        A_STREAM_THAT_CANNOT_GROW_GOES_ON {
            @Override
            void run() {
                try (World world = new World(2)) {
                    DeviceStream stream = world.newStream(0);
                    DeviceEvent event = world.rank(0).device().createEvent();
                    world.rank(0).barrier(stream);
                    assertThatThrownBy(
                                    () -> {
                                        while (true) {
                                            stream.record(event);
                                        }
                                    })
                            .isInstanceOf(OutOfMemoryError.class);
                    world.rank(1).barrier(world.stream(1));
                    stream.synchronize(World.LONG);
                    assertThat(event.poll()).isTrue();
                    DeviceBuffer buffer = world.zeros(0, 1);
                    stream.fill(buffer, (byte) 1);
                    stream.synchronize(World.LONG);
                    assertThat(World.toArray(buffer)).containsExactly(0x01010101);
                    world.assertWorks();
                }
            }
        };

        abstract void run() throws InterruptedException;
    }

    @ParameterizedTest
    @EnumSource
    @Timeout(60)
    void theProcessRecovers(Scenario scenario) throws IOException, InterruptedException {
        Process process =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "-Xmx40m",
                                "-XX:+UseSerialGC",
                                "-XX:-OmitStackTraceInFastThrow",
                                "-cp",
                                classPath(),
                                FullHeapTest.class.getName(),
                                scenario.name())
                        .redirectErrorStream(true)
                        .start();
        try (InputStream output = process.getInputStream()) {
            process.getOutputStream().close();
            String text = new String(output.readAllBytes(), StandardCharsets.UTF_8);
            assertThat(process.waitFor(10, TimeUnit.SECONDS)).as(text).isTrue();
            assertThat(process.exitValue()).as(text).isZero();
        } finally {
            process.destroyForcibly();
        }
    }

    /** All that this JVM has, modules included, as a plain class path. */
    private static String classPath() {
        String modules = System.getProperty("jdk.module.path");
        String classes = System.getProperty("java.class.path");
        return modules == null ? classes : classes + File.pathSeparator + modules;
    }

    public static void main(String[] arguments) throws InterruptedException {
        Scenario.valueOf(arguments[0]).run();
    }

    /** Between two looks for a free byte; a constant, since the heap is full. */
    private static final long PAUSE_NANOS = 1_000_000;

    /** Takes each byte that gets free. */
    @SuppressWarnings("UnusedVariable")
    private static void fillHeap(Duration time) {
        long endNanos = System.nanoTime() + time.toNanos();
        List<Object> blocks = new ArrayList<>(1 << 17);
        for (int size = 1 << 10; size > 0; size /= 8) {
            while (isTaken(blocks, size)) {}
        }
        Object[] chain = null;
        while (System.nanoTime() < endNanos) {
            try {
                chain = new Object[] {chain};
            } catch (OutOfMemoryError e) {
                LockSupport.parkNanos(PAUSE_NANOS);
            }
        }
    }

    private static boolean isTaken(List<Object> blocks, int size) {
        try {
            return blocks.add(new long[size]);
        } catch (OutOfMemoryError e) {
            return false;
        }
    }
}
