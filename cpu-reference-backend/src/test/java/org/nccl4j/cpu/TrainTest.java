package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorAbortedException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.MismatchException;
import org.nccl4j.collectives.RankFailedException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.Traffic;
import org.nccl4j.cpu.Engine.Progress;

/** Which operations are run as one work, and that nobody can tell but by the clock. */
@Timeout(60)
final class TrainTest {
    /** Too large to be run where it gets ready. */
    private static final int MEDIUM = 1 << 15;

    private static final long MEDIUM_BYTES = 4L * MEDIUM;

    private final Arena arena = Arena.ofShared();
    private final DeviceBuffer some = DeviceBuffer.wrap(arena.allocate(4 * MEDIUM_BYTES, 64));
    private final DeviceBuffer other = DeviceBuffer.wrap(arena.allocate(4 * MEDIUM_BYTES, 64));

    /** The numbers of the operations that had been started when one was, by its number. */
    private final Queue<String> started = new ConcurrentLinkedQueue<>();

    private final AtomicInteger startedSoFar = new AtomicInteger();

    @AfterEach
    void closeArena() {
        arena.close();
    }

    /** Ranks whose streams are held until all is enqueued. */
    private final class Held implements AutoCloseable {
        final World world;
        private final List<Communicator> gate;
        private final DeviceStream[] gateStreams;

        Held(int ranks, int cores, ScriptedEngine.Script script, int shares) {
            this(ranks, cores, new ScriptedEngine(shares, counting(script)));
        }

        Held(int ranks, int cores, Engine engine) {
            world = new World(ranks, cores, engine, config -> config);
            gate = world.backend.createLocal(2, CommunicatorConfig.defaults());
            gateStreams = new DeviceStream[2];
            for (int rank = 0; rank < 2; rank++) {
                gateStreams[rank] = gate.get(rank).device().createStream();
            }
            DeviceEvent event = gate.get(0).device().createEvent();
            gate(0);
            gateStreams[0].record(event);
            for (DeviceStream stream : world.streams) {
                stream.waitFor(event);
            }
        }

        void go() {
            gate(1);
        }

        private void gate(int rank) {
            DeviceBuffer one = rank == 0 ? some : other;
            gate.get(rank).allReduce(one, one, 1, DataType.INT32, ReduceOp.SUM, gateStreams[rank]);
        }

        void allReduce(int count) {
            for (int rank = 0; rank < world.ranks.size(); rank++) {
                world.rank(rank)
                        .allReduce(
                                buffer(rank),
                                buffer(rank),
                                count,
                                DataType.INT32,
                                ReduceOp.SUM,
                                world.stream(rank));
            }
        }

        /** Each sends to the next and receives from the one before. */
        void exchange(int count) {
            int n = world.ranks.size();
            world.backend.group(group -> {
                for (int rank = 0; rank < n; rank++) {
                    DeviceBuffer all = DeviceBuffer.wrap(arena.allocate(8L * count, 64));
                    DeviceStream stream = world.stream(rank);
                    group.on(world.rank(rank))
                            .send(all, count, DataType.INT32, (rank + 1) % n, stream);
                    group.on(world.rank(rank))
                            .recv(
                                    all.slice(4L * count, 4L * count),
                                    count,
                                    DataType.INT32,
                                    (rank + n - 1) % n,
                                    stream);
                }
            });
        }

        private DeviceBuffer buffer(int rank) {
            return (rank % 2 == 0 ? some : other).slice(rank / 2 * MEDIUM_BYTES, MEDIUM_BYTES);
        }

        @Override
        public void close() {
            world.close();
            world.backend.closeAll(gate);
            for (DeviceStream stream : gateStreams) {
                stream.close();
            }
        }
    }

    private ScriptedEngine.Script counting(ScriptedEngine.Script script) {
        return new ScriptedEngine.Script() {
            @Override
            public void start(JoinedOperation operation) {
                if (operation.countElements() > 1) {
                    startedSoFar.incrementAndGet();
                }
                script.start(operation);
            }

            @Override
            public Progress progress(JoinedOperation operation, int share) {
                return operation.countElements() <= 1
                        ? Progress.DONE
                        : script.progress(operation, share);
            }

            @Override
            public void finish(JoinedOperation operation, boolean done) {
                script.finish(operation, done);
            }
        };
    }

    /** Notes at an operation's first piece how many had been started by then. */
    private ScriptedEngine.Script noting() {
        AtomicInteger last = new AtomicInteger(-1);
        return (operation, share) -> {
            int number = (int) operation.sequence();
            if (last.getAndAccumulate(number, Math::max) < number) {
                started.add(number + ":" + startedSoFar.get());
            }
            return Progress.DONE;
        };
    }

    @Test
    void whatFollowsOnTheSameStreamsIsStartedTogether() {
        try (Held held = new Held(2, 2, noting(), 2)) {
            for (int i = 0; i < 6; i++) {
                held.allReduce(MEDIUM);
            }
            held.go();
            held.world.synchronize();
            assertThat(started).containsExactly("0:6", "1:6", "2:6", "3:6", "4:6", "5:6");
        }
    }

    @Test
    void aTrainHasItsLimits() {
        int many = Train.MOST + 3;
        int cheap = (int) (Train.MOST_BYTES / Train.MOST / 4 / 2);
        try (Held held = new Held(2, 2, noting(), 1)) {
            for (int i = 0; i < many; i++) {
                held.allReduce(cheap);
            }
            held.go();
            held.world.synchronize();
            assertThat(started).contains("0:" + Train.MOST, Train.MOST + ":" + many);
        }
    }

    @Test
    void whatIsLargeRunsByItself() {
        int large = (int) (Train.MOST_BYTES / 4 / 2 * 2 / 3);
        DeviceBuffer[] buffers = {
            DeviceBuffer.wrap(arena.allocate(4L * large)),
            DeviceBuffer.wrap(arena.allocate(4L * large))
        };
        try (Held held = new Held(2, 2, noting(), 2)) {
            for (int i = 0; i < 3; i++) {
                for (int rank = 0; rank < 2; rank++) {
                    held.world.allReduce(rank, buffers[rank]);
                }
            }
            held.go();
            held.world.synchronize();
            assertThat(started).containsExactly("0:1", "1:2", "2:3");
        }
    }

    /** What ends a train, enqueued by rank 0 between two operations. */
    private enum Between {
        RECORD,
        WAIT,
        COPY,
        OTHER_COMMUNICATOR,
        TWO_STREAMS,
        NOTHING
    }

    @ParameterizedTest
    @EnumSource(Between.class)
    void whatComesBetweenEndsIt(Between between) {
        try (Held held = new Held(2, 2, noting(), 2)) {
            World world = held.world;
            List<Communicator> others = world.backend.createLocal(1, CommunicatorConfig.defaults());
            held.allReduce(MEDIUM);
            held.allReduce(MEDIUM);
            DeviceStream stream = world.stream(0);
            DeviceEvent event = world.rank(0).device().createEvent();
            switch (between) {
                case RECORD -> stream.record(event);
                case WAIT -> {
                    DeviceStream second = world.newStream(0);
                    second.waitFor(marked(world, 1));
                    second.record(event);
                    stream.waitFor(event);
                }
                case COPY -> stream.copy(some, other, 64);
                case TWO_STREAMS -> {
                    DeviceStream second = world.newStream(0);
                    world.backend.group(group -> {
                        for (int rank = 0; rank < 2; rank++) {
                            group.on(world.rank(rank))
                                    .allReduce(
                                            held.buffer(rank),
                                            held.buffer(rank),
                                            1,
                                            DataType.INT32,
                                            ReduceOp.SUM,
                                            world.stream(rank));
                        }
                        group.on(world.rank(0)).barrier(second);
                        group.on(world.rank(1)).barrier(world.stream(1));
                    });
                }
                case NOTHING -> held.allReduce(0);
                case OTHER_COMMUNICATOR ->
                        others.getFirst()
                                .allReduce(some, some, 1, DataType.INT32, ReduceOp.SUM, stream);
            }
            held.allReduce(MEDIUM);
            held.go();
            world.synchronize();
            if (between == Between.NOTHING) {
                // It takes a number.
                assertThat(started).containsExactly("0:2", "1:2", "3:3");
            } else if (between == Between.TWO_STREAMS) {
                assertThat(started).startsWith("0:2", "1:2").hasSize(3);
            } else {
                assertThat(started).containsExactly("0:2", "1:2", "2:3");
            }
            world.backend.closeAll(others);
        }
    }

    /** An event behind what rank 1 has enqueued so far. */
    private static DeviceEvent marked(World world, int rank) {
        DeviceEvent event = world.rank(rank).device().createEvent();
        world.stream(rank).record(event);
        return event;
    }

    /** Another communicator's operation that has failed lies behind on the same streams. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void whatHasFailedBehindIsLeftAlone(boolean abortOnFailure) {
        try (Held held = new Held(2, 2, noting(), 2)) {
            World world = held.world;
            List<Communicator> failing =
                    world.backend.createLocal(
                            2, CommunicatorConfig.defaults().withAbortOnFailure(abortOnFailure));
            held.allReduce(MEDIUM);
            for (int rank = 0; rank < 2; rank++) {
                DeviceBuffer buffer = held.buffer(rank);
                failing.get(rank)
                        .allReduce(
                                buffer,
                                buffer,
                                MEDIUM - rank,
                                DataType.INT32,
                                ReduceOp.SUM,
                                world.stream(rank));
            }
            held.go();
            Awaitility.await().atMost(World.LONG).until(() -> started.contains("0:1"));
            for (DeviceStream stream : world.streams) {
                assertThatThrownBy(() -> stream.synchronize(World.LONG))
                        .isInstanceOf(MismatchException.class);
            }
            assertThat(world.rank(0).status()).isInstanceOf(CommunicatorStatus.Ready.class);
            failing.getFirst().abort(World.LONG);
            world.backend.closeAll(failing);
            if (!abortOnFailure) {
                // A stream tells of a failure until the work that it has failed is given up.
                for (DeviceStream stream : world.streams) {
                    assertThatThrownBy(stream::poll).isInstanceOf(MismatchException.class);
                }
            }
            held.allReduce(MEDIUM);
            world.synchronize();
            assertThat(started).containsExactly("0:1", "1:2");
        }
    }

    @Test
    void theOneThatCannotBeBegunIsNamed() {
        ScriptedEngine.Script script =
                new ScriptedEngine.Script() {
                    @Override
                    public void start(JoinedOperation operation) {
                        if (operation.countElements() > 1 && operation.sequence() == 2) {
                            throw new IllegalStateException("broken on purpose");
                        }
                    }

                    @Override
                    public Progress progress(JoinedOperation operation, int share) {
                        return Progress.DONE;
                    }
                };
        try (Held held = new Held(2, 2, script, 2)) {
            for (int i = 0; i < 4; i++) {
                held.allReduce(MEDIUM);
            }
            held.go();
            assertThatThrownBy(() -> held.world.stream(0).synchronize(World.LONG))
                    .isInstanceOf(RankFailedException.class)
                    .hasMessageContaining("allReduce #2");
        }
    }

    @Test
    void whatNotAllHaveCalledStaysBehind() {
        try (Held held = new Held(2, 2, noting(), 2)) {
            held.allReduce(MEDIUM);
            held.world
                    .rank(0)
                    .allReduce(
                            some, some, MEDIUM, DataType.INT32, ReduceOp.SUM, held.world.stream(0));
            held.go();
            held.world.stream(1).synchronize(World.LONG);
            assertThat(started).containsExactly("0:1");
            held.world
                    .rank(1)
                    .allReduce(
                            other,
                            other,
                            MEDIUM,
                            DataType.INT32,
                            ReduceOp.SUM,
                            held.world.stream(1));
            held.world.synchronize();
            assertThat(started).containsExactly("0:1", "1:2");
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {2, 3, 4})
    void groupsFollowOneAnotherToo(int ranks) {
        List<Integer> atFirst = new ArrayList<>();
        ScriptedEngine.Script script =
                (operation, share) -> {
                    synchronized (atFirst) {
                        atFirst.add(startedSoFar.get());
                    }
                    return Progress.DONE;
                };
        try (Held held = new Held(ranks, 2, script, 2)) {
            for (int i = 0; i < 3; i++) {
                held.exchange(MEDIUM);
            }
            held.go();
            held.world.synchronize();
            assertThat(atFirst).hasSize(3 * ranks * 2).containsOnly(3 * ranks);
        }
    }

    /** An operation between two ranks may have fewer shares than one of all. */
    @ParameterizedTest
    @ValueSource(ints = {3, 5})
    void operationsOfAnyNumberOfSharesFollowOneAnother(int ranks) {
        HookedEngine engine = new HookedEngine((operation, share) -> {});
        try (Held held = new Held(ranks, 2, engine)) {
            for (int i = 0; i < 4; i++) {
                held.exchange(MEDIUM / 8);
                held.allReduce(MEDIUM / 8);
                held.allReduce(MEDIUM / 8);
            }
            held.go();
            held.world.synchronize();
            assertThat(held.world.log.entries(System.Logger.Level.ERROR)).isEmpty();
        }
        engine.assertRulesKept();
        assertThat(engine.completed).hasValue(engine.started.get());
    }

    /** Shares of one operation begin when all of the one before are done, whoever runs them. */
    @ParameterizedTest
    @CsvSource({"1, 1", "1, 3", "2, 2", "2, 3", "3, 2", "3, 5"})
    void operationsFollowOneAnother(int cores, int shares) {
        long seed = System.nanoTime();
        SplittableRandom random = new SplittableRandom(seed);
        int[] pieces = random.ints(shares * 64L, 1, 4).toArray();
        int[] spins = random.ints(shares * 64L, 0, 300).toArray();
        AtomicIntegerArray moved = new AtomicIntegerArray(shares * 64);
        AtomicIntegerArray done = new AtomicIntegerArray(64);
        Queue<String> violations = new ConcurrentLinkedQueue<>();
        ScriptedEngine.Script script =
                (operation, share) -> {
                    int number = (int) operation.sequence();
                    int at = number * shares + share;
                    if (number > 0 && done.get(number - 1) < shares) {
                        violations.add("seed " + seed + ": #" + number + " began too early");
                    }
                    for (int i = 0; i < spins[at]; i++) {
                        Thread.onSpinWait();
                    }
                    if (moved.incrementAndGet(at) < pieces[at]) {
                        return Progress.ADVANCED;
                    }
                    done.incrementAndGet(number);
                    return Progress.DONE;
                };
        try (Held held = new Held(3, cores, script, shares)) {
            for (int i = 0; i < 60; i++) {
                held.allReduce(MEDIUM / 4 + random.nextInt(MEDIUM / 2));
            }
            held.go();
            held.world.synchronize();
        }
        assertThat(violations).isEmpty();
        assertThat(IntStream.range(0, 60).map(done::get)).as("seed %d", seed).containsOnly(shares);
    }

    /** What a random program does next: an operation on one of few ranges, often the last one. */
    private record Step(int kind, int from, int to, int count, int root) {}

    /**
     * The same operation again and again is carried out by one run, others wait for one another.
     */
    @ParameterizedTest
    @CsvSource({"2, 1", "2, 2", "3, 2", "4, 3"})
    void whateverFollowsTheResultsAreThoseOfOneAfterTheOther(int ranks, int cores) {
        long seed = System.nanoTime();
        SplittableRandom random = new SplittableRandom(seed);
        int range = MEDIUM / 8;
        for (int program = 0; program < 20; program++) {
            int[][] expected = new int[ranks][4 * range];
            DirectEngine engine =
                    new DirectEngine(cores, KernelChoice.ofThisProcess(), 4 << 10, 1 << 10);
            try (Held held = new Held(ranks, cores, engine)) {
                World world = held.world;
                DeviceBuffer[] buffers = new DeviceBuffer[ranks];
                for (int rank = 0; rank < ranks; rank++) {
                    for (int i = 0; i < 4 * range; i++) {
                        expected[rank][i] = random.nextInt(100);
                    }
                    buffers[rank] = world.ints(rank, expected[rank]);
                }
                Step step = null;
                for (int i = 0; i < 50; i++) {
                    if (step == null || random.nextInt(4) == 0) {
                        int from = random.nextInt(4) * range;
                        int to = (from + range * (1 + random.nextInt(3))) % (4 * range);
                        int count = random.nextBoolean() ? range : range / 2;
                        step = new Step(random.nextInt(4), from, to, count, random.nextInt(ranks));
                    }
                    take(world, buffers, step);
                    simulate(expected, step);
                }
                held.go();
                world.synchronize();
                for (int rank = 0; rank < ranks; rank++) {
                    assertThat(World.toArray(buffers[rank]))
                            .as("seed %d, program %d, rank %d", seed, program, rank)
                            .isEqualTo(expected[rank]);
                    buffers[rank].close();
                }
            }
        }
    }

    private static void take(World world, DeviceBuffer[] buffers, Step step) {
        int range = step.count();
        int n = buffers.length;
        DataType type = DataType.INT32;
        // More than is used: the count alone tells some operations from others.
        long bytes = 4L * (MEDIUM / 8);
        world.backend.group(group -> {
            for (int rank = 0; rank < n; rank++) {
                DeviceBuffer from = buffers[rank].slice(4L * step.from(), bytes);
                DeviceBuffer to = buffers[rank].slice(4L * step.to(), bytes);
                DeviceStream stream = world.stream(rank);
                switch (step.kind()) {
                    case 0 ->
                            group.on(world.rank(rank))
                                    .allReduce(from, from, range, type, ReduceOp.SUM, stream);
                    case 1 ->
                            group.on(world.rank(rank))
                                    .allReduce(from, to, range, type, ReduceOp.SUM, stream);
                    case 2 ->
                            group.on(world.rank(rank))
                                    .broadcast(from, to, range, type, step.root(), stream);
                    default -> {
                        group.on(world.rank(rank)).send(from, range, type, (rank + 1) % n, stream);
                        group.on(world.rank(rank))
                                .recv(to, range, type, (rank + n - 1) % n, stream);
                    }
                }
            }
        });
    }

    private static void simulate(int[][] values, Step step) {
        int n = values.length;
        int[][] before = new int[n][];
        for (int rank = 0; rank < n; rank++) {
            before[rank] = values[rank].clone();
        }
        int to = step.kind() == 0 ? step.from() : step.to();
        for (int rank = 0; rank < n; rank++) {
            for (int i = 0; i < step.count(); i++) {
                int from = step.from() + i;
                int value = 0;
                switch (step.kind()) {
                    case 0, 1 -> {
                        for (int[] each : before) {
                            value += each[from];
                        }
                    }
                    case 2 -> value = before[step.root()][from];
                    default -> value = before[(rank + n - 1) % n][from];
                }
                values[rank][to + i] = value;
            }
        }
    }

    @Test
    void whatIsRepeatedIsCountedEachTime() {
        HookedEngine engine =
                new HookedEngine(
                        new DirectEngine(2, KernelChoice.ofThisProcess(), 4 << 10, 1 << 10),
                        (operation, share) -> {});
        try (Held held = new Held(3, 2, engine)) {
            int times = 7;
            for (int i = 0; i < times; i++) {
                held.allReduce(MEDIUM / 2);
            }
            held.go();
            held.world.synchronize();
            Traffic many = held.world.rank(1).traffic();
            held.allReduce(MEDIUM / 2);
            held.world.synchronize();
            Traffic oneMore = held.world.rank(1).traffic();
            for (int peer : new int[] {0, 2}) {
                long one = oneMore.sentBytes()[peer] - many.sentBytes()[peer];
                assertThat(one).isPositive();
                assertThat(many.sentBytes()[peer]).isEqualTo(times * one);
            }
        }
        engine.assertRulesKept();
        // Begun: the gate, the first of all and the last.
        assertThat(engine.started).hasValue(3);
        assertThat(engine.completed).hasValue(1 + 7 + 1);
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1, 4})
    void theOneThatBreaksIsNamedAndAllAreGivenUp(int breaking) {
        AtomicInteger completed = new AtomicInteger();
        AtomicInteger givenUp = new AtomicInteger();
        ScriptedEngine.Script script =
                new ScriptedEngine.Script() {
                    @Override
                    public Progress progress(JoinedOperation operation, int share) {
                        if (operation.sequence() == breaking && share == 1) {
                            throw new IllegalStateException("broken on purpose");
                        }
                        return Progress.DONE;
                    }

                    @Override
                    public void finish(JoinedOperation operation, boolean done) {
                        if (operation.countElements() > 1) {
                            (done ? completed : givenUp).incrementAndGet();
                        }
                    }
                };
        try (Held held = new Held(2, 2, script, 2)) {
            for (int i = 0; i < 5; i++) {
                held.allReduce(MEDIUM);
            }
            held.go();
            for (DeviceStream stream : held.world.streams) {
                assertThatThrownBy(() -> stream.synchronize(World.LONG))
                        .isInstanceOf(RankFailedException.class)
                        .hasMessageContaining("allReduce #" + breaking)
                        .hasMessageContaining("broken on purpose");
                assertThat(stream.poll()).isTrue();
            }
            Awaitility.await().atMost(World.LONG).until(() -> givenUp.get() == 5);
            assertThat(completed).hasValue(0);
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void anAbortEndsAllOfIt(boolean groups) throws Exception {
        CountDownLatch inside = new CountDownLatch(1);
        AtomicInteger givenUp = new AtomicInteger();
        AtomicReference<String> late = new AtomicReference<>();
        ScriptedEngine.Script script =
                new ScriptedEngine.Script() {
                    @Override
                    public Progress progress(JoinedOperation operation, int share) {
                        inside.countDown();
                        return Progress.ADVANCED;
                    }

                    @Override
                    public void finish(JoinedOperation operation, boolean done) {
                        if (done && operation.countElements() > 1) {
                            late.set("completed");
                        }
                        givenUp.addAndGet(done ? 0 : 1);
                    }
                };
        try (Held held = new Held(2, 2, script, 2)) {
            for (int i = 0; i < 4; i++) {
                if (groups) {
                    held.exchange(MEDIUM);
                } else {
                    held.allReduce(MEDIUM);
                }
            }
            held.go();
            assertThat(inside.await(10, TimeUnit.SECONDS)).isTrue();
            held.world.rank(0).abort(World.LONG);
            for (DeviceStream stream : held.world.streams) {
                assertThatThrownBy(() -> stream.synchronize(World.LONG))
                        .isInstanceOf(CommunicatorAbortedException.class);
                assertThat(stream.poll()).isTrue();
            }
            Awaitility.await().atMost(World.LONG).until(() -> givenUp.get() == (groups ? 8 : 4));
            assertThat(late).hasNullValue();
        }
    }
}
