package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.System.Logger.Level;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.management.ManagementFactory;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.Queue;
import java.util.Random;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.stream.Stream;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordingFile;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorAbortedException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Group;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.MismatchException;
import org.nccl4j.collectives.RankFailedException;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.cpu.schedule.ScheduleAlgorithm;

/**
 * Recorded groups that are run where they are issued, and that nobody can tell but by the clock.
 */
@Timeout(60)
final class PersistentGroupTest {
    private static final com.sun.management.ThreadMXBean THREADS =
            (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();

    private final long seed = new Random().nextLong();
    private final SplittableRandom random = new SplittableRandom(seed);

    private static HookedEngine direct() {
        return direct((operation, share) -> {});
    }

    private static HookedEngine direct(HookedEngine.Hook hook) {
        return new HookedEngine(new DirectEngine(), hook);
    }

    private static World world(int size, Engine engine) {
        return new World(size, 2, engine, config -> config);
    }

    // ---- results

    private enum Choice {
        DIRECT {
            @Override
            Engine engine() {
                return new DirectEngine();
            }
        },
        PLAIN_DIRECT {
            @Override
            Engine engine() {
                return new DirectEngine(2, KernelChoice.plain(), 256, 64);
            }
        },
        SELECTING {
            @Override
            Engine engine() {
                return SelectingEngineTest.engine(SelectingEngineTest.MIXED);
            }
        },
        REFERENCE {
            @Override
            Engine engine() {
                return new ReferenceEngine();
            }
        },
        RING {
            @Override
            Engine engine() {
                return new ScheduleEngine(List.of(ScheduleAlgorithm.RING));
            }
        };

        abstract Engine engine();

        boolean isDirect() {
            return this == DIRECT || this == PLAIN_DIRECT;
        }
    }

    static Stream<Arguments> choicesAndSizes() {
        return Stream.of(Choice.values())
                .flatMap(choice -> Stream.of(1, 2, 3, 5).map(size -> Arguments.of(choice, size)));
    }

    private static final Set<OperationKind> KINDS =
            EnumSet.complementOf(EnumSet.of(OperationKind.SPLIT, OperationKind.EXCHANGE_COUNTS));

    @ParameterizedTest
    @MethodSource("choicesAndSizes")
    void everyOperationGivesWhatItGivesWhenEnqueued(Choice choice, int size) {
        HookedEngine engine = new HookedEngine(choice.engine(), (operation, share) -> {});
        try (World world = world(size, engine)) {
            List<Communicator> twins =
                    world.backend.createLocal(size, CommunicatorConfig.defaults());
            for (OperationKind kind : KINDS) {
                for (boolean inPlace : new boolean[] {false, true}) {
                    if (inPlace && !KnownOperation.hasInPlaceForm(kind)) {
                        continue;
                    }
                    for (int i = 0; i < (kind.reduces() ? 8 : 3); i++) {
                        compare(world, twins, shape(choice, size, kind, inPlace), engine, choice);
                    }
                }
            }
            for (int rank = 0; rank < size; rank++) {
                assertThat(world.rank(rank).traffic())
                        .as("seed %d, rank %d", seed, rank)
                        .isEqualTo(twins.get(rank).traffic());
            }
            if (size > 1) {
                assertThat(world.rank(0).traffic().totalSentBytes()).isPositive();
            }
            if (choice == Choice.SELECTING) {
                assertThat(engine.prepared.get()).isPositive();
            }
            world.assertWorks();
            world.backend.closeAll(twins);
        }
        engine.assertRulesKept();
        assertThat(engine.completed.get()).isEqualTo(engine.started.get());
    }

    private KnownOperation.Shape shape(
            Choice choice, int size, OperationKind kind, boolean inPlace) {
        DataType[] types =
                choice.isDirect()
                        ? DataType.values()
                        : new DataType[] {
                            DataType.INT32, DataType.UINT8, DataType.INT64, DataType.FLOAT32
                        };
        DataType type = types[random.nextInt(types.length)];
        List<ReduceOp> reductions = new ArrayList<>();
        // Integers only: other engines scale and add in another order, and would round otherwise.
        boolean average = choice.isDirect() || !type.isFloat();
        ReduceOp.Predefined[] all = ReduceOp.Predefined.values();
        int op = random.nextInt(all.length + 1);
        for (int rank = 0; rank < size; rank++) {
            if (op == all.length) {
                reductions.add(ReduceOp.preMulSum(type, rank + 2L));
            } else if (all[op] == ReduceOp.Predefined.AVG && !average) {
                reductions.add(ReduceOp.SUM);
            } else {
                reductions.add(all[op]);
            }
        }
        // A2A of the largest elements over all ranks still is no more than may be run at once.
        int[] counts = {1, 2, 3, 7, 16, 33, 64};
        int count = counts[random.nextInt(counts.length)];
        return new KnownOperation.Shape(
                kind, type, reductions, count, random.nextInt(size), inPlace);
    }

    /** What plain kernels combine may be too much for one that holds the lock. */
    private static boolean mayTakeLong(KnownOperation.Shape shape) {
        long elements = (long) shape.count() * shape.ranks() * shape.ranks();
        return shape.kind().reduces() && shape.type().bytes(elements) > 4 << 10;
    }

    /** Six times, each against a group that was recorded anew on another communicator. */
    private void compare(
            World world,
            List<Communicator> twins,
            KnownOperation.Shape shape,
            HookedEngine engine,
            Choice choice) {
        try (KnownOperation known = new KnownOperation(shape, world.ranks);
                KnownOperation twin = new KnownOperation(shape, twins)) {
            int preparedBefore = engine.prepared.get();
            int atOnceBefore = engine.atOnce.get();
            RecordedGroup group =
                    world.backend.record(
                            recorded -> known.record(recorded, world.ranks, world.streams));
            int rounds = 6;
            for (int round = 0; round < rounds; round++) {
                String what = "seed " + seed + ", round " + round;
                known.fill(random, !choice.isDirect());
                twin.fillAs(known);
                group.issue();
                world.backend.group(fresh -> twin.record(fresh, twins, world.streams));
                world.synchronize();
                known.assertRight(what);
                known.assertSameBitsAs(twin, what);
            }
            int prepared = engine.prepared.get() - preparedBefore;
            int operations = shape.kind() == OperationKind.SEND_RECV ? shape.ranks() : 1;
            if (choice.isDirect() && (prepared > 0 || !mayTakeLong(shape))) {
                assertThat(prepared).as("seed %d, %s", seed, shape).isEqualTo(operations);
            } else if (choice != Choice.SELECTING) {
                assertThat(prepared).as("seed %d, %s", seed, shape).isZero();
            }
            assertThat(engine.atOnce.get() - atOnceBefore)
                    .as("seed %d, %s", seed, shape)
                    .isEqualTo(rounds * prepared);
        }
    }

    /** Whoever asks for a choice first: it is the same one. */
    @Test
    void whereAnotherAlgorithmIsChosenNothingIsPrepared() {
        int size = 4;
        HookedEngine engine =
                new HookedEngine(
                        SelectingEngineTest.engine(SelectingEngineTest.MIXED),
                        (operation, share) -> {});
        SelectingEngine another = SelectingEngineTest.engine(SelectingEngineTest.MIXED);
        int count = 16;
        while (another.algorithm(OperationKind.ALL_REDUCE, size, 4L * count).equals("direct")) {
            count *= 2;
        }
        List<ReduceOp> sums = List.of(ReduceOp.SUM, ReduceOp.SUM, ReduceOp.SUM, ReduceOp.SUM);
        KnownOperation.Shape shape =
                new KnownOperation.Shape(
                        OperationKind.ALL_REDUCE, DataType.FLOAT32, sums, count, 0, false);
        try (World world = world(size, engine);
                KnownOperation known = new KnownOperation(shape, world.ranks);
                KnownOperation twin = new KnownOperation(shape, world.ranks)) {
            RecordedGroup group =
                    world.backend.record(
                            recorded -> known.record(recorded, world.ranks, world.streams));
            known.fill(random, false);
            twin.fillAs(known);
            group.issue();
            world.backend.group(fresh -> twin.record(fresh, world.ranks, world.streams));
            world.synchronize();
            known.assertSameBitsAs(twin, "seed " + seed);
            assertThat(engine.prepared.get()).isZero();
        }
    }

    @Test
    void oneGroupMayHaveOperationsOfAllKinds() {
        List<OperationKind> kinds = new ArrayList<>(KINDS);
        kinds.add(OperationKind.ALL_REDUCE);
        groupOf(kinds);
    }

    @Test
    void oneGroupMayHaveSeveralOperationsInOneNumbering() {
        groupOf(
                List.of(
                        OperationKind.SEND_RECV,
                        OperationKind.ALL_REDUCE,
                        OperationKind.SEND_RECV,
                        OperationKind.ALL_GATHER,
                        OperationKind.SEND_RECV));
    }

    private void groupOf(List<OperationKind> kinds) {
        for (int size : new int[] {1, 2, 3}) {
            HookedEngine engine = direct();
            try (World world = world(size, engine)) {
                List<KnownOperation> operations = new ArrayList<>();
                List<ReduceOp> reductions = new ArrayList<>();
                for (int rank = 0; rank < size; rank++) {
                    reductions.add(ReduceOp.preMulSum(DataType.INT32, rank + 3L));
                }
                for (OperationKind kind : kinds) {
                    int distance = kind == OperationKind.SEND_RECV ? 1 : 0;
                    KnownOperation.Shape shape =
                            new KnownOperation.Shape(
                                    kind, DataType.INT32, reductions, 5, distance, false);
                    operations.add(new KnownOperation(shape, world.ranks));
                }
                RecordedGroup group =
                        world.backend.record(recorded -> {
                            for (KnownOperation operation : operations) {
                                operation.record(recorded, world.ranks, world.streams);
                            }
                        });
                for (int round = 0; round < 5; round++) {
                    for (KnownOperation operation : operations) {
                        operation.fill(random, false);
                    }
                    group.issue();
                    world.synchronize();
                    for (KnownOperation operation : operations) {
                        operation.assertRight("seed " + seed + ", round " + round);
                    }
                }
                assertThat(engine.atOnce.get()).as("size %d", size).isPositive();
                world.assertWorks();
                operations.forEach(KnownOperation::close);
            }
            engine.assertRulesKept();
        }
    }

    @Test
    void whatIsLargeIsNeverRunAtOnce() {
        HookedEngine engine = direct();
        try (World world = world(2, engine)) {
            int most = (int) (PersistentGroup.MOST_BYTES / 4 / 2);
            SumGroup small = new SumGroup(world, most);
            SumGroup large = new SumGroup(world, most + 1);
            for (int i = 0; i < 5; i++) {
                small.issueAndCheck(random);
            }
            assertThat(engine.atOnce.get()).isEqualTo(5);
            for (int i = 0; i < 5; i++) {
                large.issueAndCheck(random);
            }
            assertThat(engine.atOnce.get()).isEqualTo(5);
        }
    }

    @Test
    void whatHasManyRangesIsNeverRunAtOnce() {
        for (int size : new int[] {24, 40}) {
            HookedEngine engine = direct();
            try (World world = world(size, engine)) {
                DeviceBuffer[] send = new DeviceBuffer[size];
                DeviceBuffer[] recv = new DeviceBuffer[size];
                Arrays.setAll(send, rank -> world.zeros(rank, 1));
                Arrays.setAll(recv, rank -> world.zeros(rank, size));
                RecordedGroup group =
                        world.backend.record(recorded -> {
                            for (int rank = 0; rank < size; rank++) {
                                recorded.on(world.rank(rank))
                                        .allGather(
                                                send[rank],
                                                recv[rank],
                                                1,
                                                DataType.UINT8,
                                                world.stream(rank));
                            }
                        });
                for (int i = 0; i < 5; i++) {
                    group.issue();
                    world.synchronize();
                }
                assertThat(engine.prepared.get()).isZero();
            }
        }
    }

    /** That a communicator has many ranks is no matter to two of them. */
    @Test
    void aPairOfManyRanksIsRunAtOnce() {
        HookedEngine engine = direct();
        try (World world = world(40, engine)) {
            DeviceBuffer from = world.ints(38, 7);
            DeviceBuffer to = world.zeros(39, 1);
            RecordedGroup group =
                    world.backend.record(recorded -> {
                        recorded.on(world.rank(38))
                                .send(from, 1, DataType.INT32, 39, world.stream(38));
                        recorded.on(world.rank(39))
                                .recv(to, 1, DataType.INT32, 38, world.stream(39));
                    });
            group.issue();
            world.synchronize();
            assertThat(World.toArray(to)).containsExactly(7);
            assertThat(engine.atOnce.get()).isEqualTo(1);
        }
    }

    /** Right, but enqueued: it is found apart block by block only. */
    @Test
    void blocksBetweenThoseOfOthersAreNeverWrittenAtOnce() {
        HookedEngine engine = direct();
        try (World world = world(2, engine)) {
            MemorySegment memory = Arena.ofAuto().allocate(32, 64);
            RecordedGroup group =
                    world.backend.record(recorded -> {
                        for (int rank = 0; rank < 2; rank++) {
                            // Rank 0 writes ints 0, 2 and 4 on, rank 1 writes 1, 3 and 5 on.
                            BlockLayout blocks =
                                    BlockLayout.of(new long[] {1, 1}, new long[] {0, 2});
                            recorded.on(world.rank(rank))
                                    .allGatherV(
                                            world.ints(rank, 10 + rank),
                                            DeviceBuffer.wrap(memory.asSlice(4L * rank, 12)),
                                            blocks,
                                            DataType.INT32,
                                            world.stream(rank));
                        }
                    });
            group.issue();
            world.synchronize();
            assertThat(memory.asSlice(0, 16).toArray(ValueLayout.JAVA_INT))
                    .containsExactly(10, 10, 11, 11);
            assertThat(engine.prepared.get()).isZero();
        }
    }

    @Test
    void whatSlowKernelsCombineIsNeverRunAtOnce() {
        HookedEngine engine = direct();
        try (World world = world(2, engine)) {
            DeviceBuffer[] buffers = {world.zeros(0, 1024), world.zeros(1, 1024)};
            RecordedGroup group =
                    world.backend.record(recorded -> {
                        for (int rank = 0; rank < 2; rank++) {
                            recorded.on(world.rank(rank))
                                    .allReduce(
                                            buffers[rank],
                                            buffers[rank],
                                            4096,
                                            DataType.FLOAT8E4M3,
                                            ReduceOp.AVG,
                                            world.stream(rank));
                        }
                    });
            for (int i = 0; i < 5; i++) {
                group.issue();
                world.synchronize();
            }
            assertThat(engine.prepared.get()).isZero();
        }
    }

    @Test
    void memoryOfAFileIsNeverTouchedAtOnce(@TempDir Path folder) throws Exception {
        HookedEngine engine = direct();
        try (World world = world(2, engine);
                Arena arena = Arena.ofShared();
                FileChannel file =
                        FileChannel.open(
                                folder.resolve("data"),
                                StandardOpenOption.CREATE,
                                StandardOpenOption.READ,
                                StandardOpenOption.WRITE)) {
            MemorySegment mapped = file.map(FileChannel.MapMode.READ_WRITE, 0, 64, arena);
            DeviceBuffer[] buffers = {
                DeviceBuffer.wrap(mapped).slice(8, 8), world.ints(1, 1, 2),
            };
            RecordedGroup group =
                    world.backend.record(recorded -> {
                        for (int rank = 0; rank < 2; rank++) {
                            sum(recorded, world.rank(rank), buffers[rank], world.stream(rank));
                        }
                    });
            for (int i = 0; i < 5; i++) {
                group.issue();
                world.synchronize();
            }
            assertThat(engine.prepared.get()).isZero();
            assertThat(World.toArray(buffers[0])).containsExactly(16, 32);
        }
    }

    @Test
    void whatIsEmptyIsNeverRunAtOnce() {
        HookedEngine engine = direct();
        try (World world = world(2, engine)) {
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 2)};
            RecordedGroup group =
                    world.backend.record(recorded -> {
                        for (int rank = 0; rank < 2; rank++) {
                            sum(recorded, world.rank(rank), buffers[rank], world.stream(rank));
                            sum(recorded, world.rank(rank), DeviceBuffer.EMPTY, world.stream(rank));
                        }
                    });
            for (int i = 0; i < 5; i++) {
                group.issue();
            }
            world.synchronize();
            assertThat(World.toArray(buffers[0])).containsExactly(3 << 4);
            assertThat(engine.atOnce.get()).isZero();
            world.assertWorks();
        }
    }

    /** An in-place sum of all ranks' ints, of a world or of another communicator beside it. */
    private static final class SumGroup {
        final World world;
        final List<Communicator> ranks;
        final List<DeviceStream> streams;
        final List<DeviceBuffer> buffers = new ArrayList<>();
        final RecordedGroup group;
        private final int[] expected;

        SumGroup(World world, int count) {
            this(world, world.ranks, world.streams, count);
        }

        SumGroup(World world, List<Communicator> ranks, List<DeviceStream> streams, int count) {
            this.world = world;
            this.ranks = ranks;
            this.streams = streams;
            this.expected = new int[count];
            for (Communicator rank : ranks) {
                buffers.add(rank.device().allocate(4L * count));
            }
            this.group = world.backend.record(this::record);
        }

        void record(Group recorded) {
            for (int rank = 0; rank < ranks.size(); rank++) {
                sum(recorded, ranks.get(rank), buffers.get(rank), streams.get(rank));
            }
        }

        void fill(SplittableRandom random) {
            Arrays.fill(expected, 0);
            for (DeviceBuffer buffer : buffers) {
                for (int i = 0; i < expected.length; i++) {
                    int value = random.nextInt();
                    buffer.hostSegment().setAtIndex(ValueLayout.JAVA_INT, i, value);
                    expected[i] += value;
                }
            }
        }

        void synchronize() {
            world.backend.synchronizeAll(streams, World.LONG);
        }

        void check() {
            for (DeviceBuffer buffer : buffers) {
                assertThat(World.toArray(buffer)).isEqualTo(expected);
            }
        }

        void issueAndCheck(SplittableRandom random) {
            fill(random);
            group.issue();
            synchronize();
            check();
        }
    }

    private static void sum(
            Group group, Communicator communicator, DeviceBuffer buffer, DeviceStream stream) {
        group.on(communicator)
                .allReduce(
                        buffer,
                        buffer,
                        buffer.sizeBytes() / 4,
                        DataType.INT32,
                        ReduceOp.SUM,
                        stream);
    }

    /** Something that holds streams until it is opened. */
    private static final class Gate implements AutoCloseable {
        private final World world;
        private final List<Communicator> ranks;
        private final DeviceStream[] streams = new DeviceStream[2];
        private final DeviceEvent event;

        Gate(World world) {
            this.world = world;
            ranks =
                    world.backend.createLocal(
                            2,
                            CommunicatorConfig.defaults()
                                    .withName("gate")
                                    .withOperationTimeout(World.LONG));
            for (int rank = 0; rank < 2; rank++) {
                streams[rank] = ranks.get(rank).device().createStream();
            }
            event = ranks.get(0).device().createEvent();
        }

        void hold(DeviceStream stream) {
            holdAll(List.of(stream));
        }

        void holdAll(List<DeviceStream> held) {
            ranks.get(0).barrier(streams[0]);
            streams[0].record(event);
            for (DeviceStream stream : held) {
                stream.waitFor(event);
            }
        }

        void open() {
            ranks.get(1).barrier(streams[1]);
        }

        @Override
        public void close() {
            world.backend.closeAll(ranks);
            for (DeviceStream stream : streams) {
                stream.close();
            }
            event.close();
        }
    }

    // ---- numbers

    @Test
    void numbersGoOnWhereTheGroupLeftThem() throws Exception {
        HookedEngine engine = direct();
        try (World world = world(3, engine)) {
            SumGroup sums = new SumGroup(world, 4);
            KnownOperation ring =
                    new KnownOperation(
                            new KnownOperation.Shape(
                                    OperationKind.SEND_RECV,
                                    DataType.INT32,
                                    List.of(ReduceOp.SUM, ReduceOp.SUM, ReduceOp.SUM),
                                    5,
                                    1,
                                    false),
                            world.ranks);
            RecordedGroup both =
                    world.backend.record(recorded -> {
                        sums.record(recorded);
                        ring.record(recorded, world.ranks, world.streams);
                    });
            int issued = 0;
            int plain = 0;
            for (int round = 0; round < 4; round++) {
                for (int i = 0; i < 3; i++) {
                    sums.fill(random);
                    ring.fill(random, false);
                    both.issue();
                    issued++;
                    world.synchronize();
                    sums.check();
                    ring.assertRight("seed " + seed);
                }
                plain += callFromAThreadPerRank(world);
                // On the host they are posted by one thread, and awaited by it.
                List<Optional<Communicator>> children =
                        world.backend
                                .split(world.ranks, new int[] {0, 0, 0}, new int[] {0, 0, 0})
                                .await(World.LONG);
                long[][] counts = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
                assertThat(world.backend.exchangeCounts(world.ranks, counts).await(World.LONG)[2])
                        .containsExactly(3, 6, 9);
                plain += 2;
                List<Communicator> open = new ArrayList<>();
                children.forEach(child -> open.add(child.orElseThrow()));
                SumGroup ofChildren = new SumGroup(world, open, world.streams, 3);
                for (int i = 0; i < 4; i++) {
                    ofChildren.issueAndCheck(random);
                }
                world.backend.closeAll(open);
            }
            // A sum and three pairs each, and four sums of each four children.
            assertThat(engine.atOnce.get()).isEqualTo(issued * 4 + 4 * 4);
            world.rank(0).barrier(world.stream(0));
            world.allReduce(1, sums.buffers.get(1));
            assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                    .isInstanceOf(MismatchException.class)
                    .hasMessageContaining("disagree about collective #" + (issued + plain) + ":");
        }
        engine.assertRulesKept();
    }

    /** Returns how many collectives each has called. */
    private int callFromAThreadPerRank(World world) throws Exception {
        List<FutureTask<Void>> tasks = new ArrayList<>();
        int n = world.ranks.size();
        for (int each = 0; each < n; each++) {
            int rank = each;
            FutureTask<Void> task =
                    new FutureTask<>(() -> {
                        DeviceStream stream = world.stream(rank);
                        DeviceBuffer one = world.ints(rank, 10 + rank);
                        DeviceBuffer other = world.zeros(rank, 1);
                        world.rank(rank).barrier(stream);
                        int next = (rank + 1) % n;
                        int last = (rank + n - 1) % n;
                        world.rank(rank)
                                .sendRecv(one, 1, next, other, 1, last, DataType.INT32, stream);
                        stream.synchronize(World.LONG);
                        assertThat(World.toArray(other)).containsExactly(10 + last);
                        world.allReduce(rank, other);
                        stream.synchronize(World.LONG);
                        assertThat(World.toArray(other)).containsExactly(10 * n + n * (n - 1) / 2);
                        one.close();
                        other.close();
                        return null;
                    });
            tasks.add(task);
            Thread.ofPlatform().daemon().start(task);
        }
        for (FutureTask<Void> task : tasks) {
            task.get(20, TimeUnit.SECONDS);
        }
        return 2;
    }

    @Test
    void numbersOfPairsGoOnToo() {
        try (World world = world(2, direct())) {
            DeviceBuffer[] buffers = {world.ints(0, 7), world.zeros(1, 1)};
            RecordedGroup group =
                    world.backend.record(recorded -> {
                        recorded.on(world.rank(0))
                                .send(buffers[0], 1, DataType.INT32, 1, world.stream(0));
                        recorded.on(world.rank(1))
                                .recv(buffers[1], 1, DataType.INT32, 0, world.stream(1));
                    });
            for (int i = 0; i < 9; i++) {
                group.issue();
            }
            world.synchronize();
            assertThat(World.toArray(buffers[1])).containsExactly(7);
            world.rank(1).close();
            world.rank(0).send(buffers[0], 1, DataType.INT32, 1, world.stream(0));
            assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                    .isInstanceOf(RankFailedException.class)
                    .hasMessageContaining("before joining send/recv #9 from rank 0 to rank 1");
        }
    }

    // ---- order

    @Test
    void nothingThatCameBeforeOnAnyStreamIsOvertaken() {
        HookedEngine engine = direct();
        for (int held = 0; held < 3; held++) {
            try (World world = world(3, engine);
                    Gate gate = new Gate(world)) {
                SumGroup sums = new SumGroup(world, 4);
                sums.fill(random);
                int[] before = World.toArray(sums.buffers.get(0));
                engine.atOnce.set(0);
                gate.hold(world.stream(held));
                sums.group.issue();
                assertThat(engine.atOnce.get()).isZero();
                assertThat(world.stream(held).poll()).isFalse();
                assertThat(World.toArray(sums.buffers.get(0))).isEqualTo(before);
                gate.open();
                world.synchronize();
                sums.check();
                sums.issueAndCheck(random);
                assertThat(engine.atOnce.get()).isEqualTo(1);
            }
        }
    }

    @Test
    void whatIsBehindAHeldGroupWaitsForIt() {
        try (World world = world(2, direct());
                Gate gate = new Gate(world)) {
            SumGroup sums = new SumGroup(world, 2);
            List<Communicator> others = world.backend.createLocal(2, CommunicatorConfig.defaults());
            RecordedGroup again = sumOf(world, others, sums.buffers);
            sums.fill(random);
            gate.hold(world.stream(1));
            sums.group.issue();
            again.issue();
            assertThat(world.stream(0).poll()).isFalse();
            gate.open();
            world.synchronize();
            for (int i = 0; i < 2; i++) {
                int expected = 2 * sums.expected[i];
                for (DeviceBuffer buffer : sums.buffers) {
                    assertThat(World.toArray(buffer)[i]).isEqualTo(expected);
                }
            }
            world.backend.closeAll(others);
        }
    }

    private static RecordedGroup sumOf(
            World world, List<Communicator> ranks, List<DeviceBuffer> buffers) {
        return world.backend.record(recorded -> {
            for (int rank = 0; rank < ranks.size(); rank++) {
                sum(recorded, ranks.get(rank), buffers.get(rank), world.stream(rank));
            }
        });
    }

    @Test
    void aLongFillIsNotOvertaken() {
        HookedEngine engine = direct();
        try (World world = world(2, engine)) {
            int count = 1 << 23;
            List<DeviceBuffer> wholes = List.of(world.zeros(0, count), world.zeros(1, count));
            List<DeviceBuffer> ends = new ArrayList<>();
            for (DeviceBuffer whole : wholes) {
                ends.add(whole.slice(4L * count - 16, 16));
            }
            RecordedGroup group = sumOf(world, world.ranks, ends);
            for (int i = 0; i < 3; i++) {
                group.issue();
            }
            for (byte round = 1; round < 6; round++) {
                for (int rank = 0; rank < 2; rank++) {
                    world.stream(rank).fill(wholes.get(rank), round);
                }
                group.issue();
                world.synchronize();
                for (DeviceBuffer end : ends) {
                    assertThat(World.toArray(end)).containsOnly(0x01010101 * round * 2);
                }
            }
            assertThat(engine.atOnce.get()).isPositive();
        }
    }

    @Test
    void groupsOnTheSameStreamsFollowEachOther() {
        HookedEngine engine = direct();
        try (World world = world(2, engine)) {
            List<Communicator> others = world.backend.createLocal(2, CommunicatorConfig.defaults());
            SumGroup sums = new SumGroup(world, 2);
            RecordedGroup again = sumOf(world, others, sums.buffers);
            for (int round = 0; round < 6; round++) {
                sums.fill(random);
                sums.group.issue();
                again.issue();
                sums.group.issue();
                world.synchronize();
                for (int i = 0; i < 2; i++) {
                    assertThat(World.toArray(sums.buffers.get(1))[i])
                            .isEqualTo(4 * sums.expected[i]);
                }
            }
            assertThat(engine.atOnce.get()).isEqualTo(18);
            world.backend.closeAll(others);
        }
    }

    @Test
    void anEventThatIsRecordedAfterwardsIsPassed() {
        HookedEngine engine = direct();
        try (World world = world(2, engine)) {
            SumGroup sums = new SumGroup(world, 2);
            DeviceStream side = world.newStream(0);
            DeviceBuffer seen = world.zeros(0, 2);
            DeviceEvent event = world.rank(0).device().createEvent();
            for (int round = 0; round < 3; round++) {
                sums.fill(random);
                sums.group.issue();
                world.stream(0).record(event);
                assertThat(event.poll()).isTrue();
                assertThat(world.stream(0).poll()).isTrue();
                side.waitFor(event);
                side.copy(sums.buffers.get(0), seen, 8);
                side.synchronize(World.LONG);
                assertThat(World.toArray(seen)).isEqualTo(sums.expected);
                assertThat(world.stream(0).completion().toCompletableFuture()).isDone();
            }
            assertThat(engine.atOnce.get()).isEqualTo(3);
        }
    }

    @Test
    void aHostCallThatIsOpenIsNotOvertaken() {
        HookedEngine engine = direct();
        try (World world = world(2, engine)) {
            SumGroup sums = new SumGroup(world, 2);
            sums.fill(random);
            world.rank(0).exchangeCounts(new long[] {1, 2});
            // Rank 0's call comes after its host call, rank 1's before.
            sums.group.issue();
            assertThat(engine.atOnce.get()).isZero();
            assertThatThrownBy(() -> world.stream(1).synchronize(World.LONG))
                    .isInstanceOf(MismatchException.class);
        }
    }

    /** Its numbering is not that of the host calls, but it comes after them. */
    @Test
    void aPairWaitsForTheHostCallBeforeIt() {
        HookedEngine engine = direct();
        try (World world = world(3, engine)) {
            DeviceBuffer from = world.ints(0, 7);
            DeviceBuffer to = world.zeros(1, 1);
            RecordedGroup group =
                    world.backend.record(recorded -> {
                        recorded.on(world.rank(0))
                                .send(from, 1, DataType.INT32, 1, world.stream(0));
                        recorded.on(world.rank(1)).recv(to, 1, DataType.INT32, 0, world.stream(1));
                    });
            for (int i = 0; i < 3; i++) {
                group.issue();
            }
            assertThat(engine.atOnce.get()).isEqualTo(3);
            from.hostSegment().set(ValueLayout.JAVA_INT, 0, 8);
            for (int rank = 0; rank < 2; rank++) {
                world.rank(rank).exchangeCounts(new long[3]);
            }
            group.issue();
            assertThat(world.stream(1).poll()).isFalse();
            assertThat(World.toArray(to)).containsExactly(7);
            world.rank(2).exchangeCounts(new long[3]);
            world.synchronize();
            assertThat(World.toArray(to)).containsExactly(8);
            group.issue();
            assertThat(engine.atOnce.get()).isEqualTo(4);
        }
    }

    // ---- groups that are not complete

    @Test
    void aGroupThatLacksARankWaitsForIt() {
        HookedEngine engine = direct();
        try (World world = world(3, engine)) {
            DeviceBuffer[] buffers = {world.zeros(0, 1), world.zeros(1, 1), world.zeros(2, 1)};
            RecordedGroup group =
                    world.backend.record(recorded -> {
                        for (int rank = 0; rank < 2; rank++) {
                            sum(recorded, world.rank(rank), buffers[rank], world.stream(rank));
                        }
                    });
            for (int round = 0; round < 6; round++) {
                for (int rank = 0; rank < 3; rank++) {
                    buffers[rank].hostSegment().set(ValueLayout.JAVA_INT, 0, 1 << rank);
                }
                // Before and after the others: then the group makes it complete, or does not.
                if (round % 2 == 0) {
                    group.issue();
                    assertThat(world.stream(0).poll()).isFalse();
                    world.allReduce(2, buffers[2]);
                } else {
                    world.allReduce(2, buffers[2]);
                    group.issue();
                }
                world.synchronize();
                for (DeviceBuffer buffer : buffers) {
                    assertThat(World.toArray(buffer)).containsExactly(7);
                }
            }
            assertThat(engine.prepared.get()).isZero();
        }
    }

    /** Where rank 1 is one call ahead. */
    @ParameterizedTest
    @ValueSource(ints = {0, 1, 4})
    void aGroupMayMatchTheCallsThatARankHasMadeAhead(int issuesBefore) {
        HookedEngine engine = direct();
        try (World world = world(2, engine)) {
            SumGroup sums = new SumGroup(world, 1);
            for (int i = 0; i < issuesBefore; i++) {
                sums.issueAndCheck(random);
            }
            int atOnce = engine.atOnce.get();
            DeviceBuffer ahead = world.ints(1, 1000);
            world.allReduce(1, ahead);
            for (int i = 0; i < 4; i++) {
                for (int rank = 0; rank < 2; rank++) {
                    sums.buffers.get(rank).hostSegment().set(ValueLayout.JAVA_INT, 0, 1 + rank);
                }
                // Rank 0's part meets what rank 1 has called before.
                sums.group.issue();
                world.stream(0).synchronize(World.LONG);
                assertThat(World.toArray(sums.buffers.get(0)))
                        .containsExactly(1 + (i == 0 ? 1000 : 2));
            }
            assertThat(engine.atOnce.get()).isEqualTo(atOnce);
            assertThat(World.toArray(ahead)).containsExactly(1001);
            DeviceBuffer last = world.ints(0, 5);
            world.allReduce(0, last);
            world.synchronize();
            // Rank 1 had the sum of the call before in its buffer.
            assertThat(World.toArray(last)).containsExactly(8);
            int issues = 16;
            for (int i = 0; i < issues; i++) {
                sums.issueAndCheck(random);
            }
            assertThat(engine.atOnce.get()).isEqualTo(atOnce + issues);
        }
    }

    @Test
    void aPairThatIsAheadIsMatchedToo() {
        HookedEngine engine = direct();
        try (World world = world(2, engine)) {
            DeviceBuffer from = world.ints(0, 1);
            DeviceBuffer to = world.zeros(1, 1);
            RecordedGroup group =
                    world.backend.record(recorded -> {
                        recorded.on(world.rank(0))
                                .send(from, 1, DataType.INT32, 1, world.stream(0));
                        recorded.on(world.rank(1)).recv(to, 1, DataType.INT32, 0, world.stream(1));
                    });
            for (int i = 0; i < 3; i++) {
                group.issue();
            }
            assertThat(engine.atOnce.get()).isEqualTo(3);
            DeviceBuffer first = world.ints(0, 77);
            world.rank(0).send(first, 1, DataType.INT32, 1, world.newStream(0));
            group.issue();
            world.stream(1).synchronize(World.LONG);
            assertThat(World.toArray(to)).containsExactly(77);
            assertThat(engine.atOnce.get()).isEqualTo(3);
            world.rank(1).recv(to, 1, DataType.INT32, 0, world.stream(1));
            world.synchronize();
            assertThat(World.toArray(to)).containsExactly(1);
            group.issue();
            assertThat(engine.atOnce.get()).isEqualTo(4);
        }
    }

    @Test
    void aGroupOfTwoCommunicatorsIsEnqueued() {
        HookedEngine engine = direct();
        try (World world = world(2, engine)) {
            List<Communicator> others = world.backend.createLocal(2, CommunicatorConfig.defaults());
            SumGroup sums = new SumGroup(world, 2);
            SumGroup more = new SumGroup(world, others, world.streams, 2);
            RecordedGroup both =
                    world.backend.record(recorded -> {
                        sums.record(recorded);
                        more.record(recorded);
                    });
            for (int i = 0; i < 5; i++) {
                sums.fill(random);
                more.fill(random);
                both.issue();
                world.synchronize();
                sums.check();
                more.check();
            }
            assertThat(engine.atOnce.get()).isZero();
            world.backend.closeAll(others);
        }
    }

    /** What its parts contradict each other in when they are enqueued one by one. */
    private enum Contradiction {
        COUNTS(MismatchException.class) {
            @Override
            void record(Group group, World world) {
                for (int rank = 0; rank < 2; rank++) {
                    sum(group, world.rank(rank), world.zeros(rank, 1 + rank), world.stream(rank));
                }
            }
        },
        REDUCTIONS(MismatchException.class) {
            @Override
            void record(Group group, World world) {
                ReduceOp[] ops = {ReduceOp.SUM, ReduceOp.MAX};
                for (int rank = 0; rank < 2; rank++) {
                    DeviceBuffer buffer = world.zeros(rank, 1);
                    group.on(world.rank(rank))
                            .allReduce(
                                    buffer,
                                    buffer,
                                    1,
                                    DataType.INT32,
                                    ops[rank],
                                    world.stream(rank));
                }
            }
        },
        TYPES(MismatchException.class) {
            @Override
            void record(Group group, World world) {
                DataType[] types = {DataType.INT32, DataType.UINT32};
                for (int rank = 0; rank < 2; rank++) {
                    DeviceBuffer buffer = world.zeros(rank, 1);
                    group.on(world.rank(rank))
                            .broadcast(buffer, buffer, 1, types[rank], 0, world.stream(rank));
                }
            }
        },
        OPERATIONS(MismatchException.class) {
            @Override
            void record(Group group, World world) {
                sum(group, world.rank(0), world.zeros(0, 1), world.stream(0));
                group.on(world.rank(1)).barrier(world.stream(1));
            }
        },
        THE_SECOND_OPERATION(MismatchException.class) {
            @Override
            void record(Group group, World world) {
                for (int rank = 0; rank < 2; rank++) {
                    sum(group, world.rank(rank), world.zeros(rank, 1), world.stream(rank));
                    DeviceBuffer more = world.zeros(rank, 1);
                    group.on(world.rank(rank))
                            .broadcast(more, more, 1, DataType.INT32, rank, world.stream(rank));
                }
            }
        },
        PAIR(MismatchException.class) {
            @Override
            void record(Group group, World world) {
                group.on(world.rank(0))
                        .send(world.zeros(0, 1), 1, DataType.INT32, 1, world.stream(0));
                group.on(world.rank(1))
                        .recv(world.zeros(1, 2), 2, DataType.INT32, 0, world.stream(1));
            }
        },
        BLOCKS(MismatchException.class) {
            @Override
            void record(Group group, World world) {
                for (int rank = 0; rank < 2; rank++) {
                    BlockLayout sent = BlockLayout.packed(1, 1);
                    BlockLayout received = BlockLayout.packed(1, 1 + rank);
                    group.on(world.rank(rank))
                            .allToAllV(
                                    world.zeros(rank, 2),
                                    world.zeros(rank, 3),
                                    new AllToAllVPlan(sent, received),
                                    DataType.INT32,
                                    world.stream(rank));
                }
            }
        },
        OVERLAP(InvalidArgumentException.class) {
            @Override
            void record(Group group, World world) {
                DeviceBuffer buffer = DeviceBuffer.wrap(Arena.ofAuto().allocate(12, 64));
                for (int rank = 0; rank < 2; rank++) {
                    DeviceBuffer slice = buffer.slice(4L * rank, 8);
                    sum(group, world.rank(rank), slice, world.stream(rank));
                }
            }
        },
        OVERLAP_OF_A_PAIR(InvalidArgumentException.class) {
            @Override
            void record(Group group, World world) {
                DeviceBuffer buffer = DeviceBuffer.wrap(Arena.ofAuto().allocate(12, 64));
                group.on(world.rank(0))
                        .send(buffer.slice(0, 8), 2, DataType.INT32, 1, world.stream(0));
                group.on(world.rank(1))
                        .recv(buffer.slice(4, 8), 2, DataType.INT32, 0, world.stream(1));
            }
        };

        private final Class<? extends Exception> failure;

        Contradiction(Class<? extends Exception> failure) {
            this.failure = failure;
        }

        abstract void record(Group group, World world);
    }

    @ParameterizedTest
    @EnumSource
    void whatContradictsItselfFailsAsWhenItIsEnqueued(Contradiction contradiction) {
        List<String> told = new ArrayList<>();
        for (boolean recorded : new boolean[] {false, true}) {
            HookedEngine engine = direct();
            try (World world = world(2, engine)) {
                if (recorded) {
                    world.backend.record(group -> contradiction.record(group, world)).issue();
                } else {
                    world.backend.group(group -> contradiction.record(group, world));
                }
                assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                        .isInstanceOf(contradiction.failure)
                        .satisfies(failure -> told.add(withoutPlaces(failure.getMessage())));
                assertThat(engine.atOnce.get()).isZero();
            }
        }
        assertThat(told.get(1)).isEqualTo(told.get(0));
    }

    private static String withoutPlaces(String text) {
        return text.replaceAll("0x[0-9a-f]+", "0x");
    }

    // ---- trouble: whatever happens, it is the same as if the group had been enqueued

    /** Something that is in the way of a group when it is issued. */
    private enum Obstacle {
        CLOSED_BUFFER {
            @Override
            void issue(Scene scene) {
                scene.sums.buffers.get(1).close();
                scene.tryToIssue();
            }
        },
        CLOSED_ARENA {
            @Override
            void issue(Scene scene) {
                scene.arena.close();
                scene.tryToIssue();
            }
        },
        CLOSED_STREAM {
            @Override
            void issue(Scene scene) {
                scene.world.stream(1).close();
                scene.tryToIssue();
            }
        },
        ONE_RANK_CLOSED {
            @Override
            void issue(Scene scene) {
                scene.world.rank(1).close();
                scene.tryToIssue();
            }
        },
        ALL_RANKS_CLOSED {
            @Override
            void issue(Scene scene) {
                scene.world.backend.closeAll(scene.world.ranks);
                scene.tryToIssue();
            }
        },
        A_RANK_IS_CLOSING {
            @Override
            void issue(Scene scene) {
                World world = scene.world;
                // In a numbering of its own: nothing else is in the group's way.
                DeviceBuffer one = world.zeros(1, 1);
                world.rank(1).send(one, 1, DataType.INT32, 0, world.newStream(1));
                Thread closer = Thread.ofPlatform().start(() -> world.rank(1).close());
                Awaitility.await()
                        .atMost(World.LONG)
                        .until(() -> world.rank(1).status() instanceof CommunicatorStatus.Closing);
                scene.tryToIssue();
                world.rank(0).recv(world.zeros(0, 1), 1, DataType.INT32, 1, world.newStream(0));
                join(closer);
            }
        },
        ABORTED {
            @Override
            void issue(Scene scene) {
                scene.world.rank(1).abort(World.LONG);
                scene.tryToIssue();
            }
        },
        FAILED {
            @Override
            void issue(Scene scene) {
                World world = scene.world;
                world.rank(0).barrier(world.newStream(0));
                world.allReduce(1, world.zeros(1, 1), world.newStream(1));
                scene.tryToIssue();
            }
        },
        INTERRUPTED {
            @Override
            void issue(Scene scene) {
                Thread.currentThread().interrupt();
                scene.tryToIssue();
                scene.seen("interrupted: " + Thread.interrupted());
            }
        },
        A_BODY_TOUCHES_THE_COMMUNICATOR {
            @Override
            void issue(Scene scene) {
                scene.inABody(
                        group -> group.on(scene.world.rank(1)).barrier(scene.world.newStream(1)));
            }
        },
        A_BODY_TOUCHES_THE_STREAM {
            @Override
            void issue(Scene scene) {
                scene.inABody(group ->
                        group.on(scene.bystanders.ranks.get(0)).barrier(scene.world.stream(0)));
            }
        },
        A_BODY_TOUCHES_NEITHER {
            @Override
            void issue(Scene scene) {
                scene.inABody(group -> {});
            }
        },
        A_BODY_OF_ANOTHER_THREAD_TOUCHES_BOTH {
            @Override
            void issue(Scene scene) {
                World world = scene.world;
                world.backend.group(group -> {
                    Thread issuer = Thread.ofPlatform().start(scene::tryToIssue);
                    join(issuer);
                });
            }
        },
        A_RANK_IS_AHEAD {
            @Override
            void issue(Scene scene) {
                World world = scene.world;
                world.allReduce(1, world.ints(1, 9, 9));
                scene.tryToIssue();
                world.allReduce(0, world.ints(0, 8, 8));
            }
        };

        abstract void issue(Scene scene);
    }

    /** What is seen when a group is issued, where it has been enqueued or run at once before. */
    private static final class Scene implements AutoCloseable {
        static final int ROUNDS = 4;

        final HookedEngine engine;
        final World world;
        final SumGroup sums;
        final SumGroup bystanders;
        final Arena arena = Arena.ofShared();
        private final RecordedGroup group;
        private final List<String> seen = new ArrayList<>();

        Scene(boolean prepared, boolean abort, HookedEngine.Hook hook) {
            engine = direct(hook);
            world = new World(2, 2, engine, config -> config.withAbortOnFailure(abort));
            sums = new SumGroup(world, 2);
            sums.buffers.forEach(buffer -> buffer.hostSegment().fill((byte) 1));
            List<Communicator> others =
                    world.backend.createLocal(
                            2, CommunicatorConfig.defaults().withName("bystanders"));
            bystanders =
                    new SumGroup(world, others, List.of(world.newStream(0), world.newStream(1)), 2);
            DeviceBuffer wrapped = DeviceBuffer.wrap(arena.allocate(8, 64));
            Consumer<Group> body =
                    recorded -> {
                        sums.record(recorded);
                        recorded.on(world.rank(0))
                                .send(sums.buffers.get(0), 2, DataType.INT32, 1, world.stream(0));
                        recorded.on(world.rank(1))
                                .recv(wrapped, 2, DataType.INT32, 0, world.stream(1));
                    };
            group = world.backend.record(body);
            for (int i = 0; i < ROUNDS; i++) {
                if (prepared) {
                    group.issue();
                } else {
                    world.backend.group(body);
                }
            }
            world.synchronize();
            assertThat(engine.atOnce.get()).isEqualTo(prepared ? 2 * ROUNDS : 0);
        }

        void tryToIssue() {
            see("issue", group::issue);
        }

        void inABody(Consumer<Group> before) {
            see(
                    "group",
                    () ->
                            world.backend.group(recorded -> {
                                before.accept(recorded);
                                tryToIssue();
                                throw new IllegalStateException("none of it");
                            }));
        }

        private void see(String what, Runnable call) {
            try {
                call.run();
                seen(what + ": done");
            } catch (RuntimeException | Error e) {
                // One that JUnit takes for the end of the JVM is one more text here.
                seen(what + ": " + e);
            }
        }

        void seen(String text) {
            seen.add(
                    withoutPlaces(text)
                            // One who does it alone has no share.
                            .replace(", share 0:", ":"));
        }

        /** All that can be seen afterwards, and that all else works. */
        List<String> look() {
            for (int rank = 0; rank < 2; rank++) {
                DeviceStream stream = world.stream(rank);
                see("synchronize " + rank, () -> stream.synchronize(World.LONG));
                see("again " + rank, () -> stream.synchronize(World.NOW));
                see("poll " + rank, () -> seen("polled " + stream.poll()));
                if (!sums.buffers.get(rank).isClosed()) {
                    seen(Arrays.toString(World.toArray(sums.buffers.get(rank))));
                }
                seen(world.rank(rank).status().toString());
                seen(world.rank(rank).traffic().toString());
            }
            for (RecordingLog.Entry entry : world.log.entries(Level.ERROR)) {
                seen(entry.text());
            }
            SplittableRandom random = new SplittableRandom(1);
            for (int i = 0; i < 3; i++) {
                bystanders.issueAndCheck(random);
            }
            for (int rank = 0; rank < 2; rank++) {
                int each = rank;
                see("close " + rank, () -> world.rank(each).close());
                seen(world.rank(rank).status().toString());
            }
            engine.assertRulesKept();
            return seen;
        }

        @Override
        public void close() {
            world.backend.closeAll(bystanders.ranks);
            world.close();
            if (arena.scope().isAlive()) {
                arena.close();
            }
        }
    }

    private static void join(Thread thread) {
        try {
            thread.join(20_000);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
        assertThat(thread.isAlive()).isFalse();
    }

    @ParameterizedTest
    @EnumSource
    void anObstacleIsTheSameToAGroupThatIsPrepared(Obstacle obstacle) {
        for (boolean abort : new boolean[] {true, false}) {
            List<List<String>> looks = new ArrayList<>();
            for (boolean prepared : new boolean[] {false, true}) {
                try (Scene scene = new Scene(prepared, abort, (operation, share) -> {})) {
                    int atOnce = scene.engine.atOnce.get();
                    obstacle.issue(scene);
                    if (obstacle != Obstacle.INTERRUPTED
                            && obstacle != Obstacle.A_BODY_OF_ANOTHER_THREAD_TOUCHES_BOTH) {
                        assertThat(scene.engine.atOnce.get() - atOnce).isZero();
                    }
                    looks.add(scene.look());
                }
            }
            assertThat(looks.get(1)).isEqualTo(looks.get(0));
            assertThat(looks.get(0).toString()).contains("issue: ");
        }
    }

    /** What is thrown while data is moved. */
    private enum Fault {
        EXCEPTION {
            @Override
            void happen(Scene scene) {
                throw new IllegalStateException("no more");
            }
        },
        ERROR {
            @Override
            void happen(Scene scene) {
                throw new AssertionError("wrong");
            }
        },
        OUT_OF_MEMORY {
            @Override
            void happen(Scene scene) {
                throw new OutOfMemoryError("made up");
            }
        },
        OUT_OF_MEMORY_WHEN_IT_IS_TOLD {
            @Override
            void happen(Scene scene) {
                throw new IllegalStateException("untold") {
                    private static final long serialVersionUID = 1;

                    @Override
                    public String toString() {
                        throw new OutOfMemoryError("made up");
                    }
                };
            }
        },
        INACCESSIBLE {
            @Override
            void happen(Scene scene) {
                throw new InternalError("a fault occurred in an unsafe memory access operation");
            }
        },
        CLOSED_ARENA {
            @Override
            void happen(Scene scene) {
                scene.arena.close();
                Thread.currentThread().interrupt();
            }
        };

        abstract void happen(Scene scene);

        List<OperationKind> kinds() {
            return this == CLOSED_ARENA
                    // The only one that uses it: nobody else is interrupted for it.
                    ? List.of(OperationKind.SEND_RECV)
                    : List.of(OperationKind.ALL_REDUCE, OperationKind.SEND_RECV);
        }
    }

    /** In the first or the second operation of the group: a sum, and a send and receive. */
    @ParameterizedTest
    @EnumSource
    void whatBreaksIsToldAsIfItHadBeenEnqueued(Fault fault) {
        for (OperationKind kind : fault.kinds()) {
            for (boolean abort : new boolean[] {true, false}) {
                List<String> enqueued = lookAfter(fault, kind, false, abort);
                List<String> atOnce = lookAfter(fault, kind, true, abort);
                assertThat(atOnce).as("%s", kind).isEqualTo(enqueued);
                if (fault == Fault.EXCEPTION) {
                    assertThat(atOnce.toString())
                            .contains(
                                    "engine 'hooked' broke in "
                                            + (kind == OperationKind.ALL_REDUCE
                                                    ? "allReduce #4 of 2 ranks:"
                                                    : "send/recv #4 from rank 0 to rank 1"));
                }
            }
        }
    }

    private static List<String> lookAfter(
            Fault fault, OperationKind kind, boolean prepared, boolean abort) {
        AtomicReference<Scene> armed = new AtomicReference<>();
        HookedEngine.Hook hook =
                (operation, share) -> {
                    if (operation.kind() == kind && armed.get() != null) {
                        fault.happen(armed.getAndSet(null));
                    }
                };
        try (Scene scene = new Scene(prepared, abort, hook)) {
            armed.set(scene);
            scene.tryToIssue();
            assertThat(armed.get()).isNull();
            scene.seen("interrupted: " + Thread.interrupted());
            assertThat(scene.world.rank(0).status())
                    .isInstanceOfAny(
                            CommunicatorStatus.Failed.class, CommunicatorStatus.Aborted.class);
            scene.tryToIssue();
            List<String> look = scene.look();
            // What of the other operation has been moved, and counted, is undefined.
            look.removeIf(text -> text.startsWith("[") || text.startsWith("Traffic"));
            look.replaceAll(text -> text.replaceAll(" and waits for .*", ""));
            return look;
        }
    }

    /** Of several in one numbering the one that broke is named. */
    @ParameterizedTest
    @ValueSource(ints = {0, 1, 2})
    void theOneThatBrokeIsNamed(int broken) {
        List<Long> sequences = new ArrayList<>();
        HookedEngine engine =
                direct((operation, share) -> {
                    if (share == HookedEngine.WHOLE) {
                        sequences.add(operation.sequence());
                        if (operation.sequence() == 9 + broken) {
                            throw new IllegalStateException("no more");
                        }
                    }
                });
        try (World world = world(2, engine)) {
            List<SumGroup> sums = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                sums.add(new SumGroup(world, 1));
            }
            RecordedGroup group =
                    world.backend.record(recorded -> sums.forEach(each -> each.record(recorded)));
            for (int i = 0; i < 4; i++) {
                group.issue();
            }
            assertThatThrownBy(() -> world.stream(1).synchronize(World.LONG))
                    .isInstanceOf(RankFailedException.class)
                    .hasMessageContaining("broke in allReduce #" + (9 + broken) + " of 2 ranks: ");
            List<Long> expected = new ArrayList<>();
            for (long sequence = 0; sequence <= 9 + broken; sequence++) {
                expected.add(sequence);
            }
            assertThat(sequences).isEqualTo(expected);
        }
    }

    @Test
    void aCommunicatorThatBrokeCanBeAbortedAndReplaced() {
        AtomicBoolean breaks = new AtomicBoolean();
        HookedEngine engine =
                direct((operation, share) -> {
                    if (share == HookedEngine.WHOLE && breaks.getAndSet(false)) {
                        throw new IllegalStateException("no more");
                    }
                });
        for (boolean abort : new boolean[] {true, false}) {
            try (World world =
                    new World(3, 2, engine, config -> config.withAbortOnFailure(abort))) {
                SumGroup sums = new SumGroup(world, 3);
                breaks.set(true);
                sums.group.issue();
                for (DeviceStream stream : world.streams) {
                    assertThatThrownBy(() -> stream.synchronize(World.LONG))
                            .isInstanceOf(RankFailedException.class)
                            .hasMessageStartingWith(
                                    "communicator 'world': engine 'hooked' broke in allReduce #0 of"
                                            + " 3 ranks: java.lang.IllegalStateException: no more;");
                }
                world.rank(1).abort(World.LONG);
                for (DeviceBuffer buffer : sums.buffers) {
                    var scope = buffer.hostSegment().scope();
                    buffer.close();
                    assertThat(scope.isAlive()).isFalse();
                }
                List<DeviceStream> streams = new ArrayList<>();
                for (int rank = 0; rank < 3; rank++) {
                    streams.add(world.newStream(rank));
                }
                List<Communicator> others =
                        world.backend.createLocal(3, CommunicatorConfig.defaults());
                SumGroup anew = new SumGroup(world, others, streams, 3);
                engine.atOnce.set(0);
                for (int i = 0; i < 4; i++) {
                    anew.issueAndCheck(random);
                }
                assertThat(engine.atOnce.get()).isEqualTo(4);
                world.backend.closeAll(others);
            }
        }
        engine.assertRulesKept();
    }

    // ---- those who watch

    @Test
    void aFlightRecorderThatIsSwitchedOnLaterSeesEachOperation(@TempDir Path folder)
            throws Exception {
        Path file = folder.resolve("recording.jfr");
        HookedEngine engine = direct();
        try (World world = world(2, engine);
                Recording recording = new Recording()) {
            SumGroup sums = new SumGroup(world, 2);
            for (int i = 0; i < 5; i++) {
                sums.issueAndCheck(random);
            }
            assertThat(engine.atOnce.get()).isEqualTo(5);
            recording.enable("org.nccl4j.Collective");
            recording.start();
            for (int i = 0; i < 3; i++) {
                sums.issueAndCheck(random);
            }
            assertThat(engine.atOnce.get()).isEqualTo(5);
            recording.stop();
            sums.issueAndCheck(random);
            assertThat(engine.atOnce.get()).isEqualTo(6);
            recording.dump(file);
        }
        assertThat(RecordingFile.readAllEvents(file))
                .extracting(event ->
                        event.getString("operation")
                                + " "
                                + event.getLong("sequence")
                                + " of "
                                + event.getInt("rank"))
                .containsExactlyInAnyOrder(
                        "allReduce 5 of 0",
                        "allReduce 5 of 1",
                        "allReduce 6 of 0",
                        "allReduce 6 of 1",
                        "allReduce 7 of 0",
                        "allReduce 7 of 1");
    }

    @Test
    void whatIsTracedIsNeverRunAtOnce(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("trace.jsonl");
        HookedEngine engine = direct();
        try (World world = new World(2, 2, engine, config -> config.withTraceFile(file))) {
            SumGroup sums = new SumGroup(world, 2);
            for (int i = 0; i < 5; i++) {
                sums.issueAndCheck(random);
            }
            assertThat(engine.prepared.get()).isZero();
        }
        assertThat(Files.readAllLines(file).stream().filter(line -> line.contains("\"seq\":4")))
                .isNotEmpty();
    }

    // ---- memory

    @ParameterizedTest
    @EnumSource(names = {"DIRECT", "PLAIN_DIRECT"})
    void nothingIsAllocatedInSteadyState(Choice choice) {
        Duration patience = Duration.ofSeconds(30);
        HookedEngine engine = new HookedEngine(choice.engine(), (operation, share) -> {});
        try (World world = world(3, engine)) {
            for (OperationKind kind : KINDS) {
                KnownOperation.Shape shape = shape(choice, 3, kind, false);
                try (KnownOperation known = new KnownOperation(shape, world.ranks)) {
                    known.fill(random, false);
                    RecordedGroup group =
                            world.backend.record(
                                    recorded -> known.record(recorded, world.ranks, world.streams));
                    long least = Long.MAX_VALUE;
                    // Vectors, and more, are objects until they have been compiled, for which a
                    // busy machine takes its time.
                    long startNanos = System.nanoTime();
                    while (least > 0 && System.nanoTime() - startNanos < patience.toNanos()) {
                        long before = allocatedBytes();
                        for (int i = 0; i < 300; i++) {
                            group.issue();
                        }
                        least = Math.min(least, allocatedBytes() - before);
                    }
                    assertThat(least).as("seed %d, %s", seed, shape).isZero();
                }
            }
        }
    }

    private static long allocatedBytes() {
        return THREADS.getCurrentThreadAllocatedBytes();
    }

    // ---- many threads

    @Test
    void groupsOfManyThreadsDoNotDisturbEachOther() throws Exception {
        HookedEngine engine = direct();
        Scheduler scheduler = new Scheduler(2, new RecordingLog());
        CpuBackend backend = new CpuBackend(engine, new CpuDevices(scheduler));
        long endNanos = System.nanoTime() + Duration.ofSeconds(4).toNanos();
        Queue<Throwable> troubles = new ConcurrentLinkedQueue<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            SplittableRandom own = random.split();
            boolean restless = i == 3;
            threads.add(
                    Thread.ofPlatform()
                            .daemon()
                            .start(() -> {
                                try {
                                    while (System.nanoTime() - endNanos < 0) {
                                        live(backend, own, restless ? 6 : 200, restless);
                                    }
                                } catch (RuntimeException | Error e) {
                                    troubles.add(e);
                                }
                            }));
        }
        for (Thread thread : threads) {
            thread.join(40_000);
            assertThat(thread.isAlive()).as("seed %d: %s hangs", seed, thread).isFalse();
        }
        assertThat(troubles).as("seed %d", seed).isEmpty();
        engine.assertRulesKept();
        assertThat(engine.atOnce.get()).as("seed %d", seed).isPositive();
        assertThat(engine.completed.get() + engine.givenUp.get())
                .as("seed %d", seed)
                .isEqualTo(engine.started.get());
    }

    /** The life of a communicator: what it computes is right until it is closed or aborted. */
    private static void live(
            CpuBackend backend, SplittableRandom random, int rounds, boolean restless) {
        int size = 1 + random.nextInt(4);
        List<Communicator> ranks =
                backend.createLocal(
                        size, CommunicatorConfig.defaults().withOperationTimeout(World.LONG));
        List<DeviceStream> streams = new ArrayList<>();
        ranks.forEach(rank -> streams.add(rank.device().createStream()));
        OperationKind[] kinds = KINDS.toArray(new OperationKind[0]);
        List<KnownOperation> operations = new ArrayList<>();
        List<RecordedGroup> groups = new ArrayList<>();
        List<ReduceOp> reductions = new ArrayList<>();
        for (int rank = 0; rank < size; rank++) {
            reductions.add(ReduceOp.preMulSum(DataType.INT32, 1L + random.nextInt(9)));
        }
        for (int i = 0; i < 3; i++) {
            KnownOperation operation =
                    new KnownOperation(
                            new KnownOperation.Shape(
                                    kinds[random.nextInt(kinds.length)],
                                    DataType.INT32,
                                    reductions,
                                    1 + random.nextInt(40),
                                    random.nextInt(size),
                                    false),
                            ranks);
            operations.add(operation);
            groups.add(backend.record(group -> operation.record(group, ranks, streams)));
        }
        for (int round = 0; round < rounds; round++) {
            operations.forEach(operation -> operation.fill(random, true));
            for (int i = 0; i < groups.size(); i++) {
                if (random.nextInt(5) == 0) {
                    KnownOperation operation = operations.get(i);
                    backend.group(group -> operation.record(group, ranks, streams));
                } else {
                    groups.get(i).issue();
                }
            }
            backend.synchronizeAll(streams, World.LONG);
            int at = round;
            operations.forEach(operation -> operation.assertRight("round " + at));
        }
        if (restless && random.nextBoolean()) {
            ranks.getFirst().abort(World.LONG);
            assertThatThrownBy(() -> groups.getFirst().issue())
                    .isInstanceOf(CommunicatorAbortedException.class);
        }
        backend.closeAll(ranks);
        streams.forEach(DeviceStream::close);
        operations.forEach(KnownOperation::close);
    }
}
