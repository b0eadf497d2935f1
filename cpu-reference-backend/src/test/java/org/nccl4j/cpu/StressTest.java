package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.LongStream;
import org.awaitility.Awaitility;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.MismatchException;
import org.nccl4j.collectives.ReduceOp;

/**
 * Random programs that all ranks run, each in its own thread, with its own choice of streams,
 * groups, events and delays. The argument is the seed; more seeds: {@code -Dnccl4j.stress.seeds=N}.
 */
final class StressTest {
    private static final Duration DEADLINE = Duration.ofSeconds(40);

    /** For broken programs: a rank that is out of step at the end is only found by this. */
    private static final Duration SHORT = Duration.ofSeconds(2);

    private static final int STREAMS = 3;

    static LongStream seeds() {
        return LongStream.range(0, Long.getLong("nccl4j.stress.seeds", 20));
    }

    /** What ends a program early. */
    private enum Trouble {
        ABORT,
        CLOSE,
        MISMATCH,
        ENGINE
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void everyProgramEndsWithTheRightResults(long seed) {
        SplittableRandom random = new SplittableRandom(seed);
        int size = 1 + random.nextInt(8);
        int cores = 1 + random.nextInt(3);
        HookedEngine engine = new HookedEngine(engine(seed, size), (operation, share) -> {});
        Run run = new Run(seed, size, cores, engine, DEADLINE);
        run.start();
        run.join();
        assertThat(run.troubles).as("seed " + seed).isEmpty();
        run.closeAndCheck(false);
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void everyProgramThatIsBrokenEndsOnAllRanks(long seed) {
        SplittableRandom random = new SplittableRandom(~seed);
        int size = 2 + random.nextInt(7);
        int cores = 1 + random.nextInt(3);
        Trouble trouble = Trouble.values()[random.nextInt(Trouble.values().length)];
        int victim = random.nextInt(size);
        AtomicInteger piecesLeft = new AtomicInteger(1 + random.nextInt(400));
        HookedEngine engine =
                new HookedEngine(
                        engine(seed, size),
                        (operation, share) -> {
                            if (trouble == Trouble.ENGINE && piecesLeft.decrementAndGet() == 0) {
                                throw new IllegalStateException("broken on purpose");
                            }
                        });
        Run run = new Run(seed, size, cores, engine, SHORT);
        run.trouble = trouble;
        run.victim = victim;
        run.troubleAt = random.nextInt(Run.STEPS);
        run.start();
        // A second communicator shares the devices; its work must not be touched.
        List<Communicator> bystanders =
                run.backend.createLocal(
                        size,
                        CommunicatorConfig.defaults()
                                .withName("bystanders")
                                .withOperationTimeout(DEADLINE));
        run.proveWorking(bystanders);
        run.join();
        run.proveWorking(bystanders);
        run.backend.closeAll(bystanders);
        run.closeAndCheck(true);
    }

    /** One thread drives all ranks by groups of everything; some groups contradict themselves. */
    @ParameterizedTest
    @MethodSource("seeds")
    void groupsOfAllRanksEndWholeOrNotAtAll(long seed) {
        SplittableRandom random = new SplittableRandom(31 * seed + 7);
        int size = 1 + random.nextInt(6);
        HookedEngine engine = new HookedEngine(engine(seed, size), (operation, share) -> {});
        try (World world =
                new World(
                        size,
                        1 + random.nextInt(3),
                        engine,
                        config -> config.withAbortOnFailure(random.nextBoolean()))) {
            List<Communicator> bystanders =
                    world.backend.createLocal(
                            size, CommunicatorConfig.defaults().withName("bystanders"));
            boolean failed = false;
            for (int step = 0; step < 20 && !failed; step++) {
                boolean contradiction = size > 1 && random.nextInt(12) == 0;
                int count = contradiction ? 5 : random.nextInt(3) * random.nextInt(20_000);
                int odd = random.nextInt(size);
                List<DeviceBuffer> buffers = new ArrayList<>();
                List<DeviceBuffer> others = new ArrayList<>();
                for (int rank = 0; rank < size; rank++) {
                    buffers.add(world.zeros(rank, count + 1));
                    world.stream(rank).fill(buffers.get(rank), (byte) 1);
                    others.add(world.ints(rank, 1));
                }
                world.backend.group(group -> {
                    for (int rank = 0; rank < size; rank++) {
                        DeviceStream stream = world.stream(rank);
                        boolean wrong = contradiction && rank == odd;
                        group.on(world.rank(rank))
                                .allReduce(
                                        buffers.get(rank),
                                        buffers.get(rank),
                                        wrong ? count - 1 : count,
                                        DataType.INT32,
                                        ReduceOp.SUM,
                                        stream);
                        group.on(bystanders.get(rank))
                                .allReduce(
                                        others.get(rank),
                                        others.get(rank),
                                        1,
                                        DataType.INT32,
                                        ReduceOp.SUM,
                                        stream);
                    }
                });
                failed = contradiction;
                if (failed) {
                    for (DeviceStream stream : world.streams) {
                        assertThatThrownBy(() -> stream.synchronize(DEADLINE))
                                .as("seed " + seed)
                                .isInstanceOf(MismatchException.class);
                    }
                    world.rank(odd).abort(DEADLINE);
                    for (DeviceStream stream : world.streams) {
                        // Without automatic abort the failure is told once more.
                        Run.failed(stream);
                    }
                }
                world.synchronize();
                for (int rank = 0; rank < size; rank++) {
                    assertThat(World.toArray(others.get(rank)))
                            .as("seed " + seed)
                            .containsExactly(size);
                    if (!failed && count > 0) {
                        assertThat(World.toArray(buffers.get(rank))[count - 1])
                                .as("seed " + seed)
                                .isEqualTo(0x01010101 * size);
                    }
                    buffers.get(rank).close();
                    others.get(rank).close();
                }
            }
            world.backend.closeAll(bystanders);
        }
        engine.assertRulesKept();
    }

    /** An engine whose shares are the ranks, or one that has more or fewer. */
    private static Engine engine(long seed, int size) {
        SplittableRandom random = new SplittableRandom(17 * seed + size);
        if (random.nextInt(3) == 0) {
            return new ReferenceEngine();
        }
        int mostShares = 1 + random.nextInt(20);
        int pieceBytes = 64 << random.nextInt(12);
        return new DirectEngine(mostShares, KernelChoice.ofThisProcess(), pieceBytes, 64);
    }

    /** One program on one world. */
    private static final class Run {
        static final int STEPS = 25;

        final long seed;
        final int size;
        final HookedEngine engine;
        final RecordingLog log = new RecordingLog();
        final CpuBackend backend;
        final List<Communicator> world;
        final List<Thread> threads = new ArrayList<>();
        final ConcurrentLinkedQueue<Throwable> troubles = new ConcurrentLinkedQueue<>();
        final ConcurrentLinkedQueue<Communicator> children = new ConcurrentLinkedQueue<>();
        final ConcurrentLinkedQueue<DeviceStream> streams = new ConcurrentLinkedQueue<>();
        Trouble trouble;
        int victim = -1;
        int troubleAt = -1;

        Run(long seed, int size, int cores, HookedEngine engine, Duration operationTimeout) {
            this.seed = seed;
            this.size = size;
            this.engine = engine;
            backend = new CpuBackend(engine, new CpuDevices(new Scheduler(cores, log)));
            world =
                    backend.createLocal(
                            size,
                            CommunicatorConfig.defaults().withOperationTimeout(operationTimeout));
        }

        void start() {
            for (int rank = 0; rank < size; rank++) {
                Rank body = new Rank(this, rank);
                Thread.Builder builder =
                        (seed + rank) % 2 == 0 ? Thread.ofVirtual() : Thread.ofPlatform();
                threads.add(
                        builder.name("rank-" + rank)
                                .start(() -> {
                                    try {
                                        body.run();
                                    } catch (CollectiveException | AssertionError e) {
                                        troubles.add(e);
                                    }
                                }));
            }
        }

        void join() {
            for (Thread thread : threads) {
                try {
                    thread.join(DEADLINE);
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
                assertThat(thread.isAlive())
                        .as(
                                "seed %d: %s hangs at %s",
                                seed, thread.getName(), Arrays.toString(thread.getStackTrace()))
                        .isFalse();
            }
        }

        void proveWorking(List<Communicator> communicators) {
            List<DeviceBuffer> buffers = new ArrayList<>();
            List<DeviceStream> own = new ArrayList<>();
            try {
                for (Communicator communicator : communicators) {
                    DeviceBuffer buffer = communicator.device().allocate(4);
                    DeviceStream stream = communicator.device().createStream();
                    buffers.add(buffer);
                    own.add(stream);
                    communicator.barrier(stream);
                    communicator.broadcast(buffer, buffer, 1, DataType.INT32, 0, stream);
                }
                backend.synchronizeAll(own, DEADLINE);
            } catch (CollectiveException e) {
                // A broken engine may break any communicator.
                if (trouble != Trouble.ENGINE) {
                    throw e;
                }
            }
            buffers.forEach(DeviceBuffer::close);
            own.forEach(DeviceStream::close);
        }

        void closeAndCheck(boolean broken) {
            List<Communicator> all = new ArrayList<>(world);
            all.addAll(children);
            try {
                backend.closeAll(all);
            } catch (CollectiveException e) {
                assertThat(broken).as("seed %d: %s", seed, e).isTrue();
            }
            for (Communicator communicator : all) {
                assertThat(communicator.status())
                        .isInstanceOfAny(
                                CommunicatorStatus.Closed.class, CommunicatorStatus.Aborted.class);
            }
            for (DeviceStream stream : streams) {
                // What a stream remembers is told, then it is as good as new.
                for (int i = 0; i < 10 && failed(stream); i++) {}
                assertThat(stream.poll()).as("seed %d: %s is idle", seed, stream).isTrue();
                stream.close();
            }
            for (RecordingLog.Entry entry : log.entries()) {
                assertThat(entry.text())
                        .as("seed " + seed)
                        .satisfiesAnyOf(
                                text -> assertThat(text).startsWith("communicator '"),
                                text -> assertThat(text).startsWith("the engine failed"));
            }
            assertNoThreadLeft(seed);
            engine.assertRulesKept();
            assertThat(engine.completed.get() + engine.givenUp.get())
                    .as("seed %d: all runs have ended", seed)
                    .isEqualTo(engine.started.get());
        }

        private static boolean failed(DeviceStream stream) {
            try {
                stream.synchronize(DEADLINE);
                return false;
            } catch (CollectiveException e) {
                return true;
            }
        }
    }

    static void assertNoThreadLeft(long seed) {
        Awaitility.await()
                .atMost(Duration.ofSeconds(20))
                .pollInterval(Duration.ofMillis(20))
                .untilAsserted(() ->
                        assertThat(Thread.getAllStackTraces().keySet())
                                .as("seed " + seed)
                                .noneMatch(
                                        thread -> thread.getName().startsWith("nccl4j-cpu-watch")));
    }

    /** The program of one rank. The plan is drawn from the seed, the rest from seed and rank. */
    private static final class Rank {
        private final Run run;
        private final int rank;
        private final SplittableRandom plan;
        private final SplittableRandom own;
        private final List<DeviceStream> streams = new ArrayList<>();
        private final List<Runnable> checks = new ArrayList<>();
        private final List<DeviceBuffer> buffers = new ArrayList<>();

        Rank(Run run, int rank) {
            this.run = run;
            this.rank = rank;
            plan = new SplittableRandom(run.seed);
            own = new SplittableRandom(run.seed * 31 + rank);
        }

        void run() {
            Communicator world = run.world.get(rank);
            for (int i = 0; i < STREAMS; i++) {
                DeviceStream stream = world.device().createStream();
                streams.add(stream);
                run.streams.add(stream);
            }
            Communicator child = null;
            for (int step = 0; step < Run.STEPS; step++) {
                maybeMakeTrouble(world, step);
                switch (plan.nextInt(8)) {
                    case 0 -> exchange(world);
                    case 1 -> {
                        if (plan.nextInt(3) == 0) {
                            child = split(world);
                        }
                    }
                    case 2 -> together(world, plan.nextInt(4));
                    case 3 -> counts(world);
                    default -> {
                        boolean small = plan.nextBoolean();
                        int count = plan.nextInt(small ? 3 : 60_000);
                        Communicator communicator =
                                plan.nextBoolean() && child != null ? child : world;
                        allReduce(communicator, count, step);
                    }
                }
                delay();
                if (own.nextInt(6) == 0) {
                    pick().synchronize(DEADLINE);
                }
            }
            for (DeviceStream stream : streams) {
                stream.synchronize(DEADLINE);
            }
            if (run.trouble == null) {
                checks.forEach(Runnable::run);
            }
            buffers.forEach(DeviceBuffer::close);
        }

        private void maybeMakeTrouble(Communicator world, int step) {
            if (rank != run.victim || step != run.troubleAt) {
                return;
            }
            switch (run.trouble) {
                case ABORT -> Thread.startVirtualThread(() -> world.abort(DEADLINE));
                case CLOSE -> world.close();
                case MISMATCH -> world.barrier(pick());
                case ENGINE -> {}
            }
        }

        private DeviceStream pick() {
            return streams.get(own.nextInt(STREAMS));
        }

        private void delay() {
            switch (own.nextInt(4)) {
                case 0 -> LockSupport.parkNanos(own.nextInt(2_000_000));
                case 1 -> Thread.yield();
                default -> {}
            }
        }

        private DeviceBuffer filled(Communicator communicator, int count, int value) {
            DeviceBuffer buffer = communicator.device().allocate(4L * count);
            for (int i = 0; i < count; i++) {
                buffer.hostSegment().setAtIndex(ValueLayout.JAVA_INT, i, value);
            }
            buffers.add(buffer);
            return buffer;
        }

        private void expect(DeviceBuffer buffer, int value, String what) {
            checks.add(() ->
                    assertThat(buffer.hostSegment().toArray(ValueLayout.JAVA_INT))
                            .as("seed %d, rank %d, %s", run.seed, rank, what)
                            .containsOnly(value));
        }

        /** Sum of i * step + 1 over the ranks. */
        private static int sum(int size, int step) {
            return step * (size * (size - 1) / 2) + size;
        }

        private void allReduce(Communicator communicator, int count, int step) {
            DeviceStream stream = pick();
            DeviceBuffer buffer = filled(communicator, count, communicator.rank() * step + 1);
            communicator.allReduce(buffer, buffer, count, DataType.INT32, ReduceOp.SUM, stream);
            if (count == 0) {
                return;
            }
            expect(buffer, sum(communicator.size(), step), "step " + step);
            if (own.nextBoolean()) {
                // A copy on another stream, behind an event.
                DeviceStream side = pick();
                DeviceBuffer copy = filled(communicator, count, -1);
                try (DeviceEvent event = communicator.device().createEvent()) {
                    stream.record(event);
                    side.waitFor(event);
                }
                side.copy(buffer, copy, 4L * count);
                expect(copy, sum(communicator.size(), step), "copy of step " + step);
            }
        }

        /** Everybody sends to everybody, itself included, in one group on several streams. */
        private void exchange(Communicator communicator) {
            int count = 1 + plan.nextInt(2000);
            int size = communicator.size();
            DeviceBuffer send = filled(communicator, count, communicator.rank());
            List<DeviceBuffer> received = new ArrayList<>();
            for (int peer = 0; peer < size; peer++) {
                received.add(filled(communicator, count, -1));
                expect(received.get(peer), peer, "from " + peer);
            }
            DeviceStream first = pick();
            DeviceStream second = pick();
            run.backend.group(group -> {
                var operations = group.on(communicator);
                for (int peer = 0; peer < size; peer++) {
                    operations.send(send, count, DataType.INT32, peer, first);
                    operations.recv(received.get(peer), count, DataType.INT32, peer, second);
                }
            });
        }

        /** Several collectives in one group, or not, as the rank likes. */
        private void together(Communicator communicator, int many) {
            List<DeviceBuffer> mine = new ArrayList<>();
            List<DeviceStream> on = new ArrayList<>();
            for (int i = 0; i < many; i++) {
                mine.add(filled(communicator, 100, communicator.rank() * i + 1));
                on.add(pick());
                expect(mine.get(i), sum(communicator.size(), i), "together " + i);
            }
            if (own.nextBoolean()) {
                run.backend.group(group -> {
                    for (int i = 0; i < many; i++) {
                        group.on(communicator)
                                .allReduce(
                                        mine.get(i),
                                        mine.get(i),
                                        100,
                                        DataType.INT32,
                                        ReduceOp.SUM,
                                        on.get(i));
                    }
                });
            } else {
                for (int i = 0; i < many; i++) {
                    communicator.allReduce(
                            mine.get(i), mine.get(i), 100, DataType.INT32, ReduceOp.SUM, on.get(i));
                }
            }
        }

        private Communicator split(Communicator world) {
            int colors = 1 + plan.nextInt(3);
            Optional<Communicator> child =
                    world.split(world.rank() % colors, -world.rank()).await(DEADLINE);
            run.children.add(child.orElseThrow());
            return child.orElseThrow();
        }

        private void counts(Communicator world) {
            long[] counts = new long[world.size()];
            for (int peer = 0; peer < counts.length; peer++) {
                counts[peer] = 10L * world.rank() + peer;
            }
            long[] got = world.exchangeCounts(counts).await(DEADLINE);
            for (int peer = 0; peer < counts.length; peer++) {
                assertThat(got[peer]).isEqualTo(10L * peer + world.rank());
            }
        }
    }
}
