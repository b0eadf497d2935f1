package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.nccl4j.collectives.DataType;

/** Any order and tree of a reduction must give the generated result. */
final class ReductionDataTest {

    private static final int[] RANKS = {1, 2, 3, 4, 7, 8, 31, 64, 256, 520};

    private static final int ELEMENTS = 48;

    @TestFactory
    List<DynamicTest> anyOrderAndTreeGivesTheResult() {
        long seed = System.nanoTime();
        List<DynamicTest> tests = new ArrayList<>();
        for (ElementType type : ElementType.values()) {
            for (RedOp op : RedOp.values()) {
                String name = type.label() + " " + op.label() + ", seed " + seed;
                tests.add(DynamicTest.dynamicTest(name, () -> checkAnyOrder(type, op, seed)));
            }
        }
        return tests;
    }

    private static void checkAnyOrder(ElementType type, RedOp op, long seed) {
        SplittableRandom random = new SplittableRandom(seed + 31L * type.ordinal() + op.ordinal());
        DataType dataType = type.dataType();
        long mask = type.widthBytes() == 8 ? -1L : (1L << 8 * type.widthBytes()) - 1;
        for (int ranks : RANKS) {
            ReductionData data = ReductionData.of(dataType, op, ranks, random.nextInt(1000));
            long first = random.nextLong(1L << 40);
            long[] expected = generate(data.result(), first);
            long[][] inputs = new long[ranks][];
            for (int rank = 0; rank < ranks; rank++) {
                inputs[rank] = generate(data.input(rank), first);
            }
            for (int element = 0; element < ELEMENTS; element++) {
                List<Long> values = new ArrayList<>();
                for (int rank = 0; rank < ranks; rank++) {
                    long bits = inputs[rank][element] & mask;
                    assertOrdinary(dataType, bits);
                    values.add(prepared(dataType, op, bits, rank, ranks));
                }
                while (values.size() > 1) {
                    long a = values.remove(random.nextInt(values.size()));
                    long b = values.remove(random.nextInt(values.size()));
                    values.add(combined(dataType, op, a, b) & mask);
                }
                long found = finished(dataType, op, values.getFirst(), ranks) & mask;
                assertThat(
                                BufferData.isOff(
                                        found,
                                        expected[element] & mask,
                                        ReductionData.toleranceUnits(dataType, op)))
                        .as(
                                "%s %s, %d ranks, element %d: expected %x, found %x",
                                type, op, ranks, first + element, expected[element] & mask, found)
                        .isFalse();
                if (dataType.isFloat()) {
                    assertThat(dataType.valueOf(found)).isNotZero().isFinite();
                }
            }
        }
    }

    @Test
    void aMissingRankChangesTheResult() {
        // What a check is for: a float sum that lost a contribution must not pass.
        ReductionData data = ReductionData.of(DataType.FLOAT32, RedOp.SUM, 4, 7);
        long[] result = generate(data.result(), 0);
        for (int missing = 0; missing < 4; missing++) {
            float[] sums = new float[ELEMENTS];
            for (int rank = 0; rank < 4; rank++) {
                long[] input = generate(data.input(rank), 0);
                for (int i = 0; i < ELEMENTS && rank != missing; i++) {
                    sums[i] += Float.intBitsToFloat((int) input[i]);
                }
            }
            int wrong = 0;
            for (int i = 0; i < ELEMENTS; i++) {
                wrong += Float.floatToRawIntBits(sums[i]) == (int) result[i] ? 0 : 1;
            }
            assertThat(wrong).isEqualTo(ELEMENTS);
        }
    }

    @Test
    void repetitionsDiffer() {
        long[] one = generate(ReductionData.of(DataType.INT32, RedOp.SUM, 3, 1).result(), 0);
        long[] two = generate(ReductionData.of(DataType.INT32, RedOp.SUM, 3, 2).result(), 0);
        assertThat(one).isNotEqualTo(two);
        assertThat(Arrays.stream(one).distinct().count()).isEqualTo(ELEMENTS);
    }

    private static long[] generate(Content content, long first) {
        long[] bits = new long[ELEMENTS];
        content.generate(first, bits, ELEMENTS);
        return bits;
    }

    private static void assertOrdinary(DataType type, long bits) {
        if (type.isFloat()) {
            double value = type.valueOf(bits);
            assertThat(value).isFinite();
            double smallestNormal = Math.scalb(1.0, 2 - (1 << (type.exponentBits() - 1)));
            assertThat(value == 0 || Math.abs(value) >= smallestNormal)
                    .as("%s %x is subnormal", type, bits)
                    .isTrue();
        }
    }

    private static long prepared(DataType type, RedOp op, long bits, int rank, int ranks) {
        return switch (op) {
            case MULSUM ->
                    type.isFloat()
                            ? type.bitsOf(type.valueOf(bits) * RedOp.mulSumScalar(rank))
                            : bits * RedOp.mulSumScalar(rank);
            case AVG -> type.isFloat() ? scaled(type, bits, ranks) : bits;
            default -> bits;
        };
    }

    private static long scaled(DataType type, long bits, int ranks) {
        return type == DataType.FLOAT64
                ? Double.doubleToRawLongBits(Double.longBitsToDouble(bits) * (1.0 / ranks))
                : type.bitsOf((double) ((float) type.valueOf(bits) * (1.0f / ranks)));
    }

    private static long combined(DataType type, RedOp op, long a, long b) {
        if (type.isFloat()) {
            double x = type.valueOf(a);
            double y = type.valueOf(b);
            return type.bitsOf(
                    switch (op) {
                        case SUM, AVG, MULSUM -> x + y;
                        case PROD -> x * y;
                        case MAX -> Math.max(x, y);
                        case MIN -> Math.min(x, y);
                    });
        }
        long x = number(type, a);
        long y = number(type, b);
        boolean less = type.isSigned() ? x < y : Long.compareUnsigned(x, y) < 0;
        return switch (op) {
            case SUM, AVG, MULSUM -> x + y;
            case PROD -> x * y;
            case MAX -> less ? y : x;
            case MIN -> less ? x : y;
        };
    }

    private static long finished(DataType type, RedOp op, long bits, int ranks) {
        if (type.isFloat() || op != RedOp.AVG) {
            return bits;
        }
        long sum = number(type, bits);
        return type.isSigned() ? sum / ranks : Long.divideUnsigned(sum, ranks);
    }

    private static long number(DataType type, long bits) {
        int unused = 64 - 8 * type.sizeBytes();
        return type.isSigned() ? bits << unused >> unused : bits << unused >>> unused;
    }
}
