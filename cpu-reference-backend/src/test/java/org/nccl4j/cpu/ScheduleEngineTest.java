package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.cpu.schedule.Collective;
import org.nccl4j.cpu.schedule.Combination;
import org.nccl4j.cpu.schedule.Schedule;
import org.nccl4j.cpu.schedule.ScheduleAlgorithm;
import org.nccl4j.cpu.schedule.Verification;

/**
 * Every algorithm yields, bit for bit and on every rank, what its schedule's order of combination
 * gives; it sends the bytes of its schedule; and it does not depend on who runs when.
 */
class ScheduleEngineTest {
    private static final int[] RANKS = {1, 2, 3, 5, 6, 8};

    private final long seed = new Random().nextLong();
    private final Random random = new Random(seed);

    static Stream<Arguments> algorithms() {
        List<Arguments> arguments = new ArrayList<>();
        for (ScheduleAlgorithm algorithm : ScheduleAlgorithm.values()) {
            for (Collective collective : algorithm.collectives()) {
                arguments.add(Arguments.of(algorithm, collective));
            }
        }
        return arguments.stream();
    }

    /** All types and reductions, at sizes of one pass, one of them with chunks that are empty. */
    @ParameterizedTest
    @MethodSource("algorithms")
    void combinesInTheOrderOfItsSchedule(ScheduleAlgorithm algorithm, Collective collective) {
        for (int n : RANKS) {
            for (DataType type : DataType.values()) {
                for (String op : operators(collective)) {
                    boolean inPlace = collective.mayBeInPlace() && random.nextBoolean();
                    run(algorithm, collective, n, type, op, inPlace, random.nextBoolean() ? 5 : 77);
                }
            }
        }
    }

    /** Several passes, of which the last is short, in place and not. */
    @ParameterizedTest
    @MethodSource("algorithms")
    void goesInPasses(ScheduleAlgorithm algorithm, Collective collective) {
        String summed = collective.reduces() ? "sum" : "none";
        String averaged = collective.reduces() ? "avg" : "none";
        for (int n : new int[] {1, 2, 3, 6}) {
            for (boolean inPlace : new boolean[] {false, true}) {
                if (!inPlace || collective.mayBeInPlace()) {
                    int perChunk = (256 << 10) / n + 40;
                    boolean blocks = !cut(collective);
                    int count = blocks ? perChunk : (256 << 10) + 1001;
                    run(algorithm, collective, n, DataType.INT8, summed, inPlace, count);
                    run(algorithm, collective, n, DataType.BFLOAT16, averaged, inPlace, count);
                }
            }
        }
    }

    private static List<String> operators(Collective collective) {
        return collective.reduces()
                ? List.of("sum", "prod", "min", "max", "avg", "preMulSum")
                : List.of("none");
    }

    private static boolean cut(Collective collective) {
        return switch (collective) {
            case ALL_REDUCE, REDUCE, BROADCAST -> true;
            case REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL -> false;
        };
    }

    private void run(
            ScheduleAlgorithm algorithm,
            Collective collective,
            int n,
            DataType type,
            String op,
            boolean inPlace,
            int count) {
        int root =
                collective == Collective.REDUCE || collective == Collective.BROADCAST
                        ? random.nextInt(n)
                        : -1;
        TestOperation operation = new TestOperation(kind(collective), n, type, count, root);
        int total = cut(collective) ? count : count * n;
        int sendElements = collective == Collective.ALL_GATHER ? count : total;
        int recvElements = collective == Collective.REDUCE_SCATTER ? count : total;
        long[][] inputs = new long[n][sendElements];
        ReduceOp[] ops = new ReduceOp[n];
        for (int p = 0; p < n; p++) {
            ops[p] = operator(type, op);
            operation.with(p, ops[p]);
            operation.buffers(p, sendElements, recvElements);
            if (inPlace) {
                if (collective == Collective.ALL_GATHER) {
                    operation.sendWithinRecv(p, (long) p * count, count);
                } else if (collective == Collective.REDUCE_SCATTER) {
                    operation.recvWithinSend(p, (long) p * count, count);
                } else {
                    operation.recvWithinSend(p, 0, count);
                }
            }
            for (int i = 0; i < sendElements; i++) {
                inputs[p][i] = random.nextLong() & -1L >>> 64 - 8 * type.sizeBytes();
                Elements.setBits(operation.send(p), type, i, inputs[p][i]);
            }
        }
        Engine engine = new ScheduleEngine(List.of(algorithm));
        Drivers.inRandomOrder(engine, operation, seed);
        operation.checkGuards();
        Schedule schedule = algorithm.schedule(collective, n);
        checkResults(schedule, operation, ops, inputs, count, Math.max(root, 0));
        for (int p = 0; p < n; p++) {
            for (int peer = 0; peer < n; peer++) {
                int from = Math.floorMod(p - Math.max(root, 0), n);
                int to = Math.floorMod(peer - Math.max(root, 0), n);
                long elements = from == to ? 0 : schedule.sentElements(from, to, total);
                assertThat(operation.sentBytes(p, peer))
                        .as("%s, %s, from %d to %d", schedule, operation, p, peer)
                        .isEqualTo(type.bytes(elements));
            }
        }
    }

    private void checkResults(
            Schedule schedule,
            TestOperation operation,
            ReduceOp[] ops,
            long[][] inputs,
            int count,
            int root) {
        int n = schedule.ranks();
        Collective collective = schedule.collective();
        Map<Integer, Combination> orders = new HashMap<>();
        Verification verification = collective.reduces() ? Verification.of(schedule) : null;
        for (int p = 0; p < n; p++) {
            if (collective == Collective.REDUCE && p != root) {
                continue;
            }
            int length =
                    collective == Collective.REDUCE_SCATTER || cut(collective) ? count : count * n;
            // Of long buffers only some elements: a step that hits every offset in a block.
            int stride = length > 10_000 ? 1009 : 1;
            for (int i = p % stride; i < length; i += stride) {
                long expected =
                        switch (collective) {
                            case BROADCAST -> inputs[root][i];
                            case ALL_GATHER -> inputs[i / count][i % count];
                            case ALL_TO_ALL -> inputs[i / count][p * count + i % count];
                            case ALL_REDUCE, REDUCE, REDUCE_SCATTER -> {
                                int at =
                                        collective == Collective.REDUCE_SCATTER ? p * count + i : i;
                                int chunk =
                                        collective == Collective.REDUCE_SCATTER
                                                ? p
                                                : chunk(count, schedule.chunks(), i);
                                Combination order =
                                        orders.computeIfAbsent(chunk, verification::combination);
                                yield reduced(order, operation.type(), ops, inputs, at, root);
                            }
                        };
                long actual = Elements.bits(operation.recv(p), operation.type(), i);
                if (!ScalarReduction.same(operation.type(), actual, expected)) {
                    throw new AssertionError(
                            String.format(
                                    "%s, %s, rank %d, element %d: %x, expected %x (seed %d)",
                                    schedule, operation, p, i, actual, expected, seed));
                }
            }
        }
    }

    /** The chunk of an element, longer chunks first. */
    private static int chunk(int count, int chunks, int element) {
        int longer = count % chunks;
        int size = count / chunks;
        int inLonger = longer * (size + 1);
        return element < inLonger ? element / (size + 1) : longer + (element - inLonger) / size;
    }

    private static long reduced(
            Combination order, DataType type, ReduceOp[] ops, long[][] inputs, int at, int root) {
        int n = inputs.length;
        long sum = combined(order, type, ops, inputs, at, root);
        return n == 1 ? sum : ScalarReduction.complete(type, ops[0], n, sum);
    }

    private static long combined(
            Combination order, DataType type, ReduceOp[] ops, long[][] inputs, int at, int root) {
        return switch (order) {
            case Combination.Input(int relative) -> {
                int rank = (relative + root) % inputs.length;
                yield ScalarReduction.scale(type, ops[rank], inputs.length, inputs[rank][at]);
            }
            case Combination.Hop(Combination left, Combination right) ->
                    ScalarReduction.hop(
                            type,
                            ops[0],
                            combined(left, type, ops, inputs, at, root),
                            combined(right, type, ops, inputs, at, root));
        };
    }

    private static OperationKind kind(Collective collective) {
        return OperationKind.valueOf(collective.name());
    }

    private ReduceOp operator(DataType type, String name) {
        return switch (name) {
            case "none" -> null;
            case "sum" -> ReduceOp.SUM;
            case "prod" -> ReduceOp.PROD;
            case "min" -> ReduceOp.MIN;
            case "max" -> ReduceOp.MAX;
            case "avg" -> ReduceOp.AVG;
            default ->
                    new ReduceOp.PreMulSum(
                            type, random.nextLong() & -1L >>> 64 - 8 * type.sizeBytes());
        };
    }

    /** A thread per rank, several operations on one engine, so that runs are reused. */
    @ParameterizedTest
    @EnumSource(ScheduleAlgorithm.class)
    void threadsRunRanksSideBySide(ScheduleAlgorithm algorithm) throws InterruptedException {
        Engine engine = new ScheduleEngine(List.of(algorithm));
        Collective collective = algorithm.collectives().getFirst();
        int n = 6;
        int count = 300_000;
        for (int round = 0; round < 3; round++) {
            TestOperation operation =
                    new TestOperation(kind(collective), n, DataType.INT32, count, -1)
                            .with(ReduceOp.SUM);
            int total = cut(collective) ? count : count * n;
            for (int p = 0; p < n; p++) {
                operation.buffers(p, total, total);
                for (int i = 0; i < total; i += 1009) {
                    Elements.setValue(operation.send(p), DataType.INT32, i, p + i);
                }
            }
            Drivers.inThreads(engine, operation);
            operation.checkGuards();
            for (int p = 0; p < n; p++) {
                MemorySegment recv = operation.recv(p);
                for (int i = 0; i < total; i += 1009) {
                    if (collective == Collective.ALL_REDUCE) {
                        assertThat(Elements.value(recv, DataType.INT32, i))
                                .isEqualTo(n * (n - 1) / 2.0 + (double) n * i);
                    } else if (p * count + i % count < total) {
                        int at = p * count + i % count;
                        double sent = at % 1009 == 0 ? i / count + at : guard();
                        assertThat(Elements.value(recv, DataType.INT32, i)).isEqualTo(sent);
                    }
                }
            }
        }
    }

    /** What a buffer holds before anything is written. */
    private static double guard() {
        return 0x5a5a5a5a;
    }

    /** Blocks of different sizes, some of them empty, and different places on each rank. */
    @Test
    void ringsTakeLayouts() {
        Engine engine = new ScheduleEngine(List.of(ScheduleAlgorithm.RING));
        long[] counts = {3, 0, 70_000, 11};
        int n = counts.length;
        TestOperation gather =
                new TestOperation(OperationKind.ALL_GATHER_V, n, DataType.INT32, 0, -1);
        TestOperation scatter =
                new TestOperation(OperationKind.REDUCE_SCATTER_V, n, DataType.INT32, 0, -1)
                        .with(ReduceOp.SUM);
        BlockLayout[] layouts = new BlockLayout[n];
        for (int p = 0; p < n; p++) {
            long[] offsets = new long[n];
            long next = p;
            for (int k = 0; k < n; k++) {
                int block = (p + k) % n;
                offsets[block] = next;
                next += counts[block] + k;
            }
            layouts[p] = BlockLayout.of(counts, offsets);
            long extent = layouts[p].extentElements();
            gather.layouts(p, null, layouts[p]).buffers(p, counts[p], extent);
            scatter.layouts(p, layouts[p], null).buffers(p, extent, counts[p]);
            for (int i = 0; i < counts[p]; i++) {
                Elements.setValue(gather.send(p), DataType.INT32, i, 100_000 * p + i);
            }
            for (int b = 0; b < n; b++) {
                for (int i = 0; i < counts[b]; i++) {
                    Elements.setValue(scatter.send(p), DataType.INT32, offsets[b] + i, b + i + p);
                }
            }
        }
        Drivers.inRandomOrder(engine, gather, seed);
        Drivers.inRandomOrder(engine, scatter, seed);
        gather.checkGuards();
        scatter.checkGuards();
        for (int p = 0; p < n; p++) {
            for (int b = 0; b < n; b++) {
                for (int i = 0; i < counts[b]; i++) {
                    long at = layouts[p].offsetElements(b) + i;
                    assertThat(Elements.value(gather.recv(p), DataType.INT32, at))
                            .isEqualTo(100_000 * b + i);
                }
            }
            for (int i = 0; i < counts[p]; i++) {
                assertThat(Elements.value(scatter.recv(p), DataType.INT32, i))
                        .isEqualTo(4.0 * (p + i) + 6);
            }
        }
    }

    /** Steps, peers, chunks and bytes of the trace are those of the schedule. */
    @ParameterizedTest
    @MethodSource("algorithms")
    void tracesItsSchedule(ScheduleAlgorithm algorithm, Collective collective) {
        int n = 6;
        int count = 360;
        int root = -1;
        if (collective == Collective.REDUCE || collective == Collective.BROADCAST) {
            root = 0;
        }
        TestOperation operation =
                new TestOperation(kind(collective), n, DataType.FLOAT32, count, root)
                        .with(ReduceOp.SUM);
        int total = cut(collective) ? count : count * n;
        List<String> traced = new ArrayList<>();
        operation.with((joined, step, participant, peer, chunk, offsetBytes, bytes) ->
                traced.add(line(step, participant, peer, chunk, offsetBytes, bytes)));
        for (int p = 0; p < n; p++) {
            operation.buffers(p, total, total);
        }
        Drivers.inRandomOrder(new ScheduleEngine(List.of(algorithm)), operation, seed);
        Schedule schedule = algorithm.schedule(collective, n);
        List<String> expected = new ArrayList<>();
        for (int rank = 0; rank < n; rank++) {
            int sender = rank;
            schedule.program(rank).stream()
                    .filter(action -> action.target() == null)
                    .forEach(send ->
                            expected.add(
                                    line(
                                            send.step(),
                                            sender,
                                            send.peer(),
                                            send.chunk(),
                                            0,
                                            4
                                                    * schedule.rangeElements(
                                                            send.chunk(), send.chunks(), total))));
        }
        assertThat(traced).containsExactlyInAnyOrderElementsOf(expected);
    }

    private static String line(
            int step, int rank, int peer, int chunk, long offsetBytes, long bytes) {
        return step + " " + rank + ">" + peer + " " + chunk + " +" + offsetBytes + " " + bytes;
    }
}
