package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.ReduceOp;

/** Results that went wrong elsewhere, special values, and results that depend on the order. */
final class ValueScenarios {
    private static final List<DataType> FLOATS =
            Arrays.stream(DataType.values()).filter(DataType::isFloat).toList();

    private ValueScenarios() {}

    static List<Scenario> all() {
        return List.of(
                new Scenario("V1-one-rank-copies-to-the-last-element", ValueScenarios::oneRank),
                new Scenario("V3-integer-average", ValueScenarios::integerAverage),
                new Scenario("V5-reduce-scatter-blocks", ValueScenarios::reduceScatterBlocks),
                new Scenario("V7-uneven-share-is-refused", ValueScenarios::unevenShare),
                new Scenario("V8-count-zero", ValueScenarios::countZero),
                new Scenario("V9-all-to-all-v-with-empty-blocks", ValueScenarios::emptyBlocks),
                new Scenario("V12-ranks-agree-to-the-bit", ValueScenarios::ranksAgree),
                new Scenario("V13-bfloat16-order", ValueScenarios::bfloat16Order),
                new Scenario("V18-closed-form", ValueScenarios::closedForm),
                new Scenario("values-special-floats-in-pairs", ValueScenarios::specialPairs),
                new Scenario("values-nan-and-zero-in-min-max", ValueScenarios::specialMinMax),
                new Scenario("values-average-of-every-pattern", ValueScenarios::everyAverage),
                new Scenario("values-pre-multiply-every-pattern", ValueScenarios::everyProduct));
    }

    private static OperationCase operation(
            Stage stage, Collective collective, DataType type, Reduction op, int ranks, int count) {
        return new OperationCase(collective, type, op, ranks, count, false, 0, stage.seed());
    }

    /** Runs under both runners, out of place and, where there is one, in the in-place form. */
    private static void check(Stage stage, RankSet ranks, OperationCase operation, Values values) {
        List<OperationProgram> programs = OperationProgram.placements(operation, values);
        stage.run(new RankRunner.ThreadPerRank(0), ranks, programs);
        stage.run(new RankRunner.OneThreadWithGroups(), ranks, programs);
    }

    private static boolean lacks(Stage stage, DataType type, Reduction reduction) {
        return !stage.capabilities().supports(type, reduction.operator(type, 0));
    }

    private static void needs(Stage stage, DataType type, Reduction reduction) {
        if (lacks(stage, type, reduction)) {
            throw stage.unsupported(reduction + " of " + type);
        }
    }

    private static void oneRank(Stage stage) {
        needs(stage, DataType.BFLOAT16, Reduction.AVG);
        RankSet ranks = stage.ranks(1);
        for (int count : new int[] {8193, (1 << 20) + 1, 262_929}) {
            OperationCase operation =
                    operation(
                            stage,
                            Collective.ALL_REDUCE,
                            DataType.BFLOAT16,
                            Reduction.AVG,
                            1,
                            count);
            long[] input = new long[count];
            for (int i = 0; i < count; i++) {
                input[i] = ExactInputs.copied(DataType.BFLOAT16, stage.seed(), i);
            }
            check(stage, ranks, operation, new Values(new long[][] {input}, new long[1], input));
        }
    }

    private static void integerAverage(Stage stage) {
        needs(stage, DataType.INT32, Reduction.AVG);
        RankSet ranks = stage.ranks(2);
        OperationCase operation =
                operation(stage, Collective.ALL_REDUCE, DataType.INT32, Reduction.AVG, 2, 4);
        long[][] inputs = {
            {4, 0xffff_fffcL, 0x7fff_ffffL, 3}, {6, 1, 1, 0xffff_fffdL},
        };
        // 5; -3 / 2 = -1; the sum wraps to -2^31 before it is divided; 0
        long[] average = {5, 0xffff_ffffL, 0xc000_0000L, 0};
        check(stage, ranks, operation, new Values(inputs, new long[2], average));
    }

    private static void reduceScatterBlocks(Stage stage) {
        needs(stage, DataType.INT32, Reduction.SUM);
        RankSet ranks = stage.ranks(2);
        OperationCase operation =
                operation(stage, Collective.REDUCE_SCATTER, DataType.INT32, Reduction.SUM, 2, 6);
        long[] input = {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16};
        long[] sum = {2, 4, 6, 8, 10, 12, 22, 24, 26, 28, 30, 32};
        check(stage, ranks, operation, new Values(new long[][] {input, input}, new long[2], sum));
    }

    private static void unevenShare(Stage stage) {
        RankSet ranks = stage.ranks(4);
        Communicator communicator = ranks.rank(0).communicator();

        InvalidArgumentException refusal = Expect.refusal(() -> communicator.evenShare(73));

        assertThat(refusal).hasMessageContaining("73").hasMessageContaining("4");
        assertThat(communicator.evenShare(72)).isEqualTo(18);
        assertThat(communicator.evenShare(0)).isZero();
    }

    private static void countZero(Stage stage) {
        needs(stage, DataType.INT32, Reduction.SUM);
        for (int size : new int[] {1, 4}) {
            RankSet ranks = stage.ranks(size);
            List<RankProgram> programs = new ArrayList<>();
            for (DeviceBuffer buffer : new DeviceBuffer[] {null, DeviceBuffer.EMPTY}) {
                for (int operation = 0; operation < ZERO_OPERATIONS; operation++) {
                    programs.add(new ZeroThenSum(size, operation, buffer));
                }
            }
            stage.run(new RankRunner.ThreadPerRank(0), ranks, programs);
            stage.run(new RankRunner.OneThreadWithGroups(), ranks, programs);
        }
    }

    private static final int ZERO_OPERATIONS = 14;

    /** An operation of count 0, then a sum that must pair up with the others' sum. */
    private static final class ZeroThenSum implements RankProgram {
        private final int operation;
        private final DeviceBuffer buffer;
        private final Summands[] sums;

        private ZeroThenSum(int size, int operation, DeviceBuffer buffer) {
            this.operation = operation;
            this.buffer = buffer;
            this.sums = new Summands[size];
        }

        @Override
        public String id() {
            return "V8 operation " + operation + " with " + buffer;
        }

        @Override
        public void prepare(Rank rank) {
            sums[rank.rank()] = new Summands(rank, rank.rank() + 1, 7);
        }

        @Override
        public void issue(Rank rank, Function<Communicator, Operations> on) {
            Operations operations = on.apply(rank.communicator());
            zero(operations, rank.rank(), rank.size(), rank.stream());
            sums[rank.rank()].enqueue(operations, rank.stream());
        }

        private void zero(Operations operations, int rank, int size, DeviceStream stream) {
            DataType type = DataType.INT32;
            BlockLayout none = BlockLayout.packed(new long[size]);
            int next = (rank + 1) % size;
            int previous = (rank + size - 1) % size;
            switch (operation) {
                case 0 -> operations.allReduce(buffer, buffer, 0, type, ReduceOp.SUM, stream);
                case 1 -> operations.reduce(buffer, buffer, 0, type, ReduceOp.SUM, 0, stream);
                case 2 -> operations.broadcast(buffer, buffer, 0, type, size - 1, stream);
                case 3 -> operations.allGather(buffer, buffer, 0, type, stream);
                case 4 -> operations.allGatherV(buffer, buffer, none, type, stream);
                case 5 -> operations.reduceScatter(buffer, buffer, 0, type, ReduceOp.SUM, stream);
                case 6 ->
                        operations.reduceScatterV(buffer, buffer, none, type, ReduceOp.SUM, stream);
                case 7 -> operations.gather(buffer, buffer, 0, type, size - 1, stream);
                case 8 -> operations.scatter(buffer, buffer, 0, type, 0, stream);
                case 9 -> operations.allToAll(buffer, buffer, 0, type, stream);
                case 10 ->
                        operations.allToAllV(
                                buffer, buffer, new AllToAllVPlan(none, none), type, stream);
                case 11 -> operations.sendRecv(buffer, 0, next, buffer, 0, previous, type, stream);
                case 12 -> {
                    if (rank == 0 && size > 1) {
                        operations.send(buffer, 0, type, 1, stream);
                    }
                }
                case 13 -> {
                    if (size > 1 && rank <= 1) {
                        pairUp(operations, rank, stream);
                    }
                }
                default -> throw new IllegalStateException("operation " + operation);
            }
        }

        /** Its receive meets the send of the operation before, then one more pair. */
        private void pairUp(Operations operations, int rank, DeviceStream stream) {
            if (rank == 0) {
                operations.send(buffer, 0, DataType.INT32, 1, stream);
            } else {
                operations.recv(buffer, 0, DataType.INT32, 0, stream);
                operations.recv(buffer, 0, DataType.INT32, 0, stream);
            }
        }

        @Override
        public void check(Rank rank) {
            int size = rank.size();
            assertThat(sums[rank.rank()].result())
                    .as(id() + ", rank " + rank.rank())
                    .containsExactly(size * (size + 1) / 2, 7 * size);
        }
    }

    private static void emptyBlocks(Stage stage) {
        if (!stage.capabilities().types().contains(DataType.INT32)) {
            throw stage.unsupported("INT32");
        }
        RankSet ranks = stage.ranks(3);
        OperationCase operation =
                operation(stage, Collective.ALL_TO_ALL_V, DataType.INT32, null, 3, 3);
        List<RankProgram> programs = new ArrayList<>();
        for (int[][] counts : new int[][][] {{{0, 2, 0}, {1, 0, 3}, {0, 0, 0}}, new int[3][3]}) {
            Geometry geometry = new Geometry(operation, counts);
            Values values = Values.copied(DataType.INT32, geometry.inputLengths(), stage.seed());
            programs.add(new OperationProgram(operation, geometry, values, 0));
        }
        stage.run(new RankRunner.ThreadPerRank(0), ranks, programs);
        stage.run(new RankRunner.OneThreadWithGroups(), ranks, programs);
    }

    /** Any values of a middling size, so that every addition rounds. */
    private static Values rounding(DataType type, Reduction reduction, OperationCase operation) {
        Arithmetic.Floats floats = (Arithmetic.Floats) Arithmetic.of(type);
        int ranks = operation.ranks();
        int[] lengths = new Geometry(operation).inputLengths();
        long[][] inputs = new long[ranks][];
        long[] scalars = new long[ranks];
        for (int r = 0; r < ranks; r++) {
            Mix random = new Mix(Mix.hash(operation.seed() ^ 0x10f2, r));
            scalars[r] = floats.encode(0.5 + r / 3.0);
            inputs[r] = new long[lengths[r]];
            for (int i = 0; i < inputs[r].length; i++) {
                double magnitude = Math.scalb(1.0 + random.next(1 << 20) * 0x1p-20, random.next(4));
                // Products stay in range only if they are near one.
                double value = reduction == Reduction.PROD ? magnitude / 4 : magnitude;
                inputs[r][i] = floats.encode(random.nextBoolean() ? value : -value);
            }
        }
        return new Values(inputs, scalars, null);
    }

    private static void ranksAgree(Stage stage) {
        int[] counts = {1, 2, 3, 4, 5, 7, 31, 64, 100, 1023, 4097, 65_537};
        int cases = 0;
        for (int size : new int[] {2, 3, 4, 5}) {
            RankSet ranks = stage.ranks(size);
            for (DataType type : FLOATS) {
                for (Reduction reduction : Reduction.values()) {
                    if (lacks(stage, type, reduction)) {
                        continue;
                    }
                    for (int count : size == 4 ? counts : new int[] {3, 100}) {
                        if (count > 1023 && reduction != Reduction.SUM) {
                            continue;
                        }
                        OperationCase operation =
                                operation(
                                        stage, Collective.ALL_REDUCE, type, reduction, size, count);
                        ranksAgree(stage, ranks, operation);
                        toOneRank(stage, ranks, operation);
                        cases++;
                    }
                }
            }
        }
        if (cases == 0) {
            throw stage.unsupported("floats");
        }
    }

    private static void ranksAgree(Stage stage, RankSet ranks, OperationCase operation) {
        Values inputs = rounding(operation.type(), operation.reduction(), operation);
        Values values = inDocumentedOrder(stage, operation, inputs);
        OperationProgram first = OperationProgram.of(operation, values);
        OperationProgram again = OperationProgram.of(operation.asInPlace(), values);
        stage.run(new RankRunner.ThreadPerRank(stage.seed()), ranks, List.of(first, again));
        OperationProgram grouped = OperationProgram.of(operation, values);
        stage.run(new RankRunner.OneThreadWithGroups(), ranks, List.of(grouped));
        byte[] one = first.received(0);
        for (int r = 0; r < operation.ranks(); r++) {
            assertThat(first.received(r)).as("%s, ranks 0 and %d", operation, r).isEqualTo(one);
            assertThat(again.received(r)).as("%s, second run, %d", operation, r).isEqualTo(one);
            assertThat(grouped.received(r)).as("%s, third run, %d", operation, r).isEqualTo(one);
        }
    }

    /** With the result that the documented order gives; without one, with no known result. */
    private static Values inDocumentedOrder(Stage stage, OperationCase operation, Values inputs) {
        return stage.underTest()
                .hopOrder()
                .map(order -> inputs.reducedInOrder(operation, order))
                .orElse(inputs);
    }

    private static void toOneRank(Stage stage, RankSet ranks, OperationCase shape) {
        if (shape.countElements() > 1023 || stage.underTest().hopOrder().isEmpty()) {
            return;
        }
        for (Collective collective : List.of(Collective.REDUCE_SCATTER, Collective.REDUCE)) {
            OperationCase operation =
                    new OperationCase(
                            collective,
                            shape.type(),
                            shape.reduction(),
                            shape.ranks(),
                            shape.countElements(),
                            false,
                            collective.rooted() ? shape.countElements() % shape.ranks() : 0,
                            shape.seed());
            Values values =
                    inDocumentedOrder(
                            stage,
                            operation,
                            rounding(operation.type(), operation.reduction(), operation));
            stage.run(
                    new RankRunner.ThreadPerRank(stage.seed()),
                    ranks,
                    OperationProgram.placements(operation, values));
        }
    }

    private static void bfloat16Order(Stage stage) {
        needs(stage, DataType.BFLOAT16, Reduction.SUM);
        RankSet ranks = stage.ranks(4);
        OperationCase operation =
                operation(stage, Collective.ALL_REDUCE, DataType.BFLOAT16, Reduction.SUM, 4, 1);
        Values inputs =
                new Values(
                        new long[][] {{0x4380}, {0x3f80}, {0x3f80}, {0x3f80}}, new long[4], null);
        Values values = inDocumentedOrder(stage, operation, inputs);
        OperationProgram program = OperationProgram.of(operation, values);
        stage.run(new RankRunner.ThreadPerRank(0), ranks, List.of(program));
        long result = Elements.get(2, program.received(0), 0);
        assertThat(result).as("256, 258 or 260 as bfloat16").isIn(0x4380L, 0x4381L, 0x4382L);
        for (int r = 1; r < 4; r++) {
            assertThat(program.received(r)).isEqualTo(program.received(0));
        }
    }

    /** Element j of rank r is r + j * n. */
    private static void closedForm(Stage stage) {
        needs(stage, DataType.INT32, Reduction.SUM);
        int[] counts = {1, 2, 3, 7, 31, 32, 33, 1023, 1025, 65_537};
        for (int size : new int[] {1, 2, 3, 5, 8}) {
            RankSet ranks = stage.ranks(size);
            for (Collective collective : Collective.values()) {
                List<RankProgram> programs = new ArrayList<>();
                for (int count : counts) {
                    Reduction reduction = collective.reduces() ? Reduction.SUM : null;
                    OperationCase operation =
                            new OperationCase(
                                    collective,
                                    DataType.INT32,
                                    reduction,
                                    size,
                                    count,
                                    false,
                                    collective.rooted() ? count % size : 0,
                                    Mix.hash(stage.seed(), count));
                    programs.add(OperationProgram.of(operation, strides(operation)));
                }
                stage.run(new RankRunner.ThreadPerRank(0), ranks, programs);
                stage.run(
                        new RankRunner.OneThreadWithGroups(),
                        ranks,
                        programs.subList(0, counts.length - 1));
            }
        }
    }

    private static Values strides(OperationCase operation) {
        int n = operation.ranks();
        int[] lengths = new Geometry(operation).inputLengths();
        long[][] inputs = new long[n][];
        for (int r = 0; r < n; r++) {
            inputs[r] = new long[lengths[r]];
            for (int j = 0; j < lengths[r]; j++) {
                inputs[r][j] = r + (long) j * n;
            }
        }
        long[] sum = new long[lengths[0]];
        for (int j = 0; j < sum.length; j++) {
            sum[j] = n * (n - 1) / 2 + (long) j * n * n;
        }
        return new Values(inputs, new long[n], operation.collective().reduces() ? sum : null);
    }

    /** Zeros, ones, the largest values, infinities where there are any, and NaN. */
    private static long[] special(DataType type) {
        Arithmetic.Floats floats = (Arithmetic.Floats) Arithmetic.of(type);
        long sign = 1L << (8 * floats.widthBytes() - 1);
        List<Long> values = new ArrayList<>();
        long infinity = ((1L << floats.exponentBits()) - 1) << floats.mantissaBits();
        boolean hasInfinity = type != DataType.FLOAT8E4M3;
        long largest = hasInfinity ? infinity - 1 : 0x7e;
        for (long bits : new long[] {0, floats.ofInteger(1), floats.ofInteger(3), largest}) {
            values.add(bits);
            values.add(bits | sign);
        }
        if (hasInfinity) {
            values.add(infinity);
            values.add(infinity | sign);
        }
        values.add(floats.encode(Double.NaN));
        return values.stream().mapToLong(Long::longValue).toArray();
    }

    /** All combinations of special values over the ranks, as one operation. */
    private static Values combinations(
            DataType type, Reduction reduction, int ranks, long[] special) {
        Arithmetic arithmetic = Arithmetic.of(type);
        int length = 1;
        for (int r = 0; r < ranks; r++) {
            length *= special.length;
        }
        long[][] inputs = new long[ranks][length];
        long[] reduced = new long[length];
        long[] element = new long[ranks];
        int[] order = new int[ranks];
        Arrays.setAll(order, r -> r);
        for (int i = 0; i < length; i++) {
            int rest = i;
            for (int r = 0; r < ranks; r++) {
                element[r] = special[rest % special.length];
                inputs[r][i] = element[r];
                rest /= special.length;
            }
            reduced[i] = arithmetic.reduce(reduction, element, new long[ranks], order);
        }
        return new Values(inputs, new long[ranks], reduced);
    }

    private static void specialPairs(Stage stage) {
        RankSet ranks = stage.ranks(2);
        for (DataType type : FLOATS) {
            for (Reduction reduction : List.of(Reduction.SUM, Reduction.PROD, Reduction.AVG)) {
                if (lacks(stage, type, reduction)) {
                    continue;
                }
                Values values = combinations(type, reduction, 2, special(type));
                int count = values.reduced().length;
                check(
                        stage,
                        ranks,
                        operation(stage, Collective.ALL_REDUCE, type, reduction, 2, count),
                        values);
            }
        }
    }

    private static void specialMinMax(Stage stage) {
        RankSet ranks = stage.ranks(3);
        for (DataType type : FLOATS) {
            for (Reduction reduction : List.of(Reduction.MIN, Reduction.MAX)) {
                if (lacks(stage, type, reduction)) {
                    continue;
                }
                long[] special = special(type);
                Values values = combinations(type, reduction, 3, special);
                int count = values.reduced().length;
                check(
                        stage,
                        ranks,
                        operation(stage, Collective.ALL_REDUCE, type, reduction, 3, count),
                        values);
            }
        }
    }

    /** One rank brings every bit pattern, the others zeros: nothing depends on the order. */
    private static Values everyPattern(
            DataType type, Reduction reduction, int ranks, int bearer, long[] scalars) {
        Arithmetic arithmetic = Arithmetic.of(type);
        int length = 1 << (8 * arithmetic.widthBytes());
        long[][] inputs = new long[ranks][length];
        long[] reduced = new long[length];
        long[] element = new long[ranks];
        int[] order = new int[ranks];
        Arrays.setAll(order, r -> r);
        for (int i = 0; i < length; i++) {
            inputs[bearer][i] = i;
            element[bearer] = i;
            reduced[i] = arithmetic.reduce(reduction, element, scalars, order);
        }
        return new Values(inputs, scalars, reduced);
    }

    private static List<DataType> narrow() {
        return FLOATS.stream().filter(type -> type.sizeBytes() <= 2).toList();
    }

    private static void everyAverage(Stage stage) {
        for (int size : new int[] {3, 5, 6, 7}) {
            RankSet ranks = stage.ranks(size);
            for (DataType type : narrow()) {
                if (!lacks(stage, type, Reduction.AVG)) {
                    Values values =
                            everyPattern(type, Reduction.AVG, size, size / 2, new long[size]);
                    int count = values.reduced().length;
                    check(
                            stage,
                            ranks,
                            operation(
                                    stage, Collective.ALL_REDUCE, type, Reduction.AVG, size, count),
                            values);
                }
            }
        }
    }

    private static void everyProduct(Stage stage) {
        RankSet ranks = stage.ranks(2);
        for (DataType type : narrow()) {
            if (lacks(stage, type, Reduction.PRE_MUL_SUM)) {
                continue;
            }
            Arithmetic.Floats floats = (Arithmetic.Floats) Arithmetic.of(type);
            for (double scalar : new double[] {0.1, -1.75, 3}) {
                long[] scalars = {floats.encode(1), floats.encode(scalar)};
                Values values = everyPattern(type, Reduction.PRE_MUL_SUM, 2, 1, scalars);
                int count = values.reduced().length;
                check(
                        stage,
                        ranks,
                        operation(
                                stage,
                                Collective.ALL_REDUCE,
                                type,
                                Reduction.PRE_MUL_SUM,
                                2,
                                count),
                        values);
            }
        }
    }
}
