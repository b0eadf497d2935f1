package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.util.Random;
import java.util.function.IntUnaryOperator;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * Random bits, NaN and infinities among them, through all-reduce, reduce-scatter and reduce: the
 * result is, bit for bit, that of the documented order, on every rank.
 */
class ReductionOrderTest {
    private static final int COUNT = 101;

    private final long seed = new Random().nextLong();
    private final Random random = new Random(seed);
    private final Engine engine = new ReferenceEngine(RingSchedule.B, 64);
    private final Engine scheduleA = new ReferenceEngine(RingSchedule.A, 64);
    private final Engine direct = new DirectEngine(2, KernelChoice.ofThisProcess(), 1 << 12, 64);

    static Stream<Arguments> typesAndReductions() {
        return Stream.of(DataType.values())
                .flatMap(type ->
                        Stream.of("sum", "prod", "min", "max", "avg", "preMulSum")
                                .map(op -> Arguments.of(type, op)));
    }

    @ParameterizedTest
    @MethodSource("typesAndReductions")
    void followsTheDocumentedOrder(DataType type, String reduction) {
        for (int n = 1; n <= 8; n++) {
            ReduceOp[] ops = new ReduceOp[n];
            long[][] inputs = new long[n][COUNT];
            for (int p = 0; p < n; p++) {
                ops[p] = op(type, reduction, random);
                for (int i = 0; i < COUNT; i++) {
                    inputs[p][i] = random.nextLong() & -1L >>> 64 - 8 * type.sizeBytes();
                }
            }
            int last = n - 1;
            allReduce(engine, chunk -> chunk, type, ops, inputs);
            allReduce(scheduleA, chunk -> Math.floorMod(chunk - 1, last + 1), type, ops, inputs);
            // The ring's order for the last rank is that of the ranks: the direct engine's.
            allReduce(direct, chunk -> last, type, ops, inputs);
            reduceScatter(engine, rank -> rank, type, ops, inputs);
            reduceScatter(direct, rank -> last, type, ops, inputs);
            for (int root = 0; root < n; root++) {
                reduce(engine, root, type, ops, inputs, root);
                reduce(direct, last, type, ops, inputs, root);
            }
        }
    }

    /** The order for a chunk is that of the ring in which a rank ends with it. */
    private void allReduce(
            Engine subject,
            IntUnaryOperator lastRank,
            DataType type,
            ReduceOp[] ops,
            long[][] inputs) {
        int n = ops.length;
        TestOperation operation =
                operation(OperationKind.ALL_REDUCE, type, ops, inputs, COUNT, -1, COUNT);
        Drivers.inRandomOrder(subject, operation, seed);
        operation.checkGuards();
        BlockLayout chunks = BlockLayout.even(COUNT, n);
        for (int chunk = 0; chunk < n; chunk++) {
            int owner = lastRank.applyAsInt(chunk);
            for (long i = 0; i < chunks.countElements(chunk); i++) {
                long at = chunks.offsetElements(chunk) + i;
                for (int p = 0; p < n; p++) {
                    check(operation, p, at, expected(type, ops, inputs, at, owner));
                }
            }
        }
        for (int p = 1; p < n; p++) {
            assertThat(operation.recv(p).mismatch(operation.recv(0))).isEqualTo(-1);
        }
    }

    private void reduceScatter(
            Engine subject,
            IntUnaryOperator lastRank,
            DataType type,
            ReduceOp[] ops,
            long[][] inputs) {
        int n = ops.length;
        int count = COUNT / n;
        TestOperation operation =
                operation(OperationKind.REDUCE_SCATTER, type, ops, inputs, count, -1, count);
        Drivers.inRandomOrder(subject, operation, seed);
        operation.checkGuards();
        for (int p = 0; p < n; p++) {
            for (long i = 0; i < count; i++) {
                long at = p * (long) count + i;
                check(operation, p, i, expected(type, ops, inputs, at, lastRank.applyAsInt(p)));
            }
        }
    }

    private void reduce(
            Engine subject,
            int lastRank,
            DataType type,
            ReduceOp[] ops,
            long[][] inputs,
            int root) {
        TestOperation operation =
                operation(OperationKind.REDUCE, type, ops, inputs, COUNT, root, COUNT);
        Drivers.inRandomOrder(subject, operation, seed);
        operation.checkGuards();
        for (long i = 0; i < COUNT; i++) {
            check(operation, root, i, expected(type, ops, inputs, i, lastRank));
        }
    }

    private static TestOperation operation(
            OperationKind kind,
            DataType type,
            ReduceOp[] ops,
            long[][] inputs,
            long count,
            int root,
            long recvElements) {
        TestOperation operation = new TestOperation(kind, ops.length, type, count, root);
        for (int p = 0; p < ops.length; p++) {
            operation.with(p, ops[p]);
            operation.buffers(p, COUNT, recvElements);
            MemorySegment send = operation.send(p);
            for (int i = 0; i < COUNT; i++) {
                Elements.setBits(send, type, i, inputs[p][i]);
            }
        }
        return operation;
    }

    private static long expected(
            DataType type, ReduceOp[] ops, long[][] inputs, long at, int owner) {
        long[] x = new long[ops.length];
        for (int p = 0; p < x.length; p++) {
            x[p] = inputs[p][(int) at];
        }
        return ScalarReduction.result(type, ops, x, owner);
    }

    private void check(TestOperation operation, int p, long at, long expected) {
        long actual = Elements.bits(operation.recv(p), operation.type(), at);
        if (!ScalarReduction.same(operation.type(), actual, expected)) {
            throw new AssertionError(
                    String.format(
                            "%s, rank %d, element %d: %x, expected %x (seed %d)",
                            operation, p, at, actual, expected, seed));
        }
    }

    static ReduceOp op(DataType type, String name, Random random) {
        return switch (name) {
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
}
