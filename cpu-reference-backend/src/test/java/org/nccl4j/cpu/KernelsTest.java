package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/** Every kernel against {@link ScalarReduction}, on all pairs where that is possible. */
class KernelsTest {
    private final long seed = new Random().nextLong();
    private final Random random = new Random(seed);
    private final Kernels kernels = new Kernels();

    static Stream<Arguments> typesAndReductions() {
        return Stream.of(DataType.values())
                .flatMap(type ->
                        Stream.of(ReduceOp.SUM, ReduceOp.PROD, ReduceOp.MIN, ReduceOp.MAX)
                                .map(op -> Arguments.of(type, op)));
    }

    @ParameterizedTest
    @MethodSource("typesAndReductions")
    void combines(DataType type, ReduceOp op) {
        long[] patterns = patterns(type);
        // Each pattern with itself and, shifted round, with the others: with all of them for 8
        // bits.
        int shifts = type.sizeBytes() == 1 ? 256 : 10;
        for (int s = 0; s < shifts; s++) {
            int shift = type.sizeBytes() == 1 ? s : s == 0 ? 0 : random.nextInt(patterns.length);
            long[] x = patterns;
            long[] y = new long[x.length];
            for (int i = 0; i < x.length; i++) {
                y[i] = patterns[(i + shift) % x.length];
            }
            check(type, op, x, y);
        }
    }

    @ParameterizedTest
    @EnumSource(DataType.class)
    void scalesForTheMean(DataType type) {
        for (int n = 2; n <= 16; n++) {
            checkScale(type, ReduceOp.AVG, n);
        }
        checkScale(type, ReduceOp.AVG, 1024);
    }

    @ParameterizedTest
    @EnumSource(DataType.class)
    void scalesByAScalar(DataType type) {
        for (int i = 0; i < 16; i++) {
            long[] patterns = patterns(type);
            long scalar = patterns[random.nextInt(patterns.length)];
            checkScale(type, new ReduceOp.PreMulSum(type, scalar), 3);
        }
    }

    @ParameterizedTest
    @EnumSource(
            value = DataType.class,
            names = {"INT8", "UINT8", "INT32", "UINT32", "INT64", "UINT64"})
    void dividesTheSumOfIntegers(DataType type) {
        for (int n : new int[] {2, 3, 5, 8, 127, 128, 255, 256, 1000}) {
            long[] x = patterns(type);
            long[] y = new long[x.length];
            for (int i = 0; i < x.length; i++) {
                y[i] = x[random.nextInt(x.length)];
            }
            int count = x.length;
            MemorySegment a = memory(type, x);
            MemorySegment b = memory(type, y);
            kernels.begin(type, ReduceOp.AVG, n);
            kernels.combine(a, 0, a, 0, b, 0, count, true);
            for (int i = 0; i < count; i++) {
                long sum = ScalarReduction.hop(type, ReduceOp.SUM, x[i], y[i]);
                expect(
                        type,
                        ReduceOp.AVG,
                        x[i],
                        y[i],
                        Elements.bits(a, type, i),
                        ScalarReduction.complete(type, ReduceOp.AVG, n, sum));
            }
        }
    }

    @ParameterizedTest
    @EnumSource(DataType.class)
    void anyPlaceAndLengthWithoutTouchingNeighbours(DataType type) {
        int size = type.sizeBytes();
        for (int count : new int[] {0, 1, 2, 15, 16, 17, 4096 / size, 4096 / size + 1, 5000}) {
            for (int shift = 0; shift < 3; shift++) {
                MemorySegment a = Arena.ofAuto().allocate(type.bytes(count) + 16);
                MemorySegment b = Arena.ofAuto().allocate(type.bytes(count) + 16);
                MemorySegment d = Arena.ofAuto().allocate(type.bytes(count) + 16);
                a.fill((byte) 1);
                b.fill((byte) 1);
                d.fill((byte) 0x33);
                kernels.begin(type, ReduceOp.MAX, 2);
                kernels.combine(d, 1 + shift, a, shift, b, 2 + shift, count, true);
                for (long i = 0; i < d.byteSize(); i++) {
                    boolean inside = i > shift && i < 1 + shift + type.bytes(count);
                    assertThat(Elements.bits(d, DataType.UINT8, i))
                            .as("%s, %d elements, byte %d", type, count, i)
                            .isEqualTo(inside ? 1 : 0x33);
                }
            }
        }
    }

    @Test
    void roundsEveryFloatToBfloat16AsTheContractDoes() {
        // All upper halves, with lower halves on, next to and between the ties.
        int[] lower = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, random.nextInt(1 << 16)};
        int[] bits = new int[lower.length];
        int[] rounded = new int[lower.length];
        for (int upper = 0; upper < 1 << 16; upper++) {
            for (int i = 0; i < lower.length; i++) {
                bits[i] = upper << 16 | lower[i];
            }
            Loops.narrowBfloat16(bits, 0, rounded, bits.length);
            Loops.narrowBfloat16(bits, 16, rounded, bits.length);
            for (int i = 0; i < lower.length; i++) {
                double value = Float.intBitsToFloat(bits[i]);
                long expected = DataType.BFLOAT16.bitsOf(value);
                long actual = rounded[i] & 0xffffL;
                assertThat(rounded[i] >>> 16).isEqualTo((int) actual);
                if (!ScalarReduction.same(DataType.BFLOAT16, actual, expected)) {
                    assertThat(actual).as("%s, seed %d", value, seed).isEqualTo(expected);
                }
            }
        }
    }

    @Test
    void convertsEveryFloat16AsTheContractDoes() {
        for (int bits = 0; bits < 1 << 16; bits++) {
            double value = DataType.FLOAT16.valueOf(bits);
            double widened = Float.float16ToFloat((short) bits);
            assertThat(Double.doubleToLongBits(widened)).isEqualTo(Double.doubleToLongBits(value));
            assertThat(
                            ScalarReduction.same(
                                    DataType.FLOAT16,
                                    Float.floatToFloat16((float) value) & 0xffffL,
                                    DataType.FLOAT16.bitsOf(value)))
                    .isTrue();
        }
    }

    private void checkScale(DataType type, ReduceOp op, int n) {
        long[] x = patterns(type);
        MemorySegment a = memory(type, x);
        kernels.begin(type, op, n);
        if (!kernels.scales()) {
            assertThat(type.isFloat()).isFalse();
            return;
        }
        kernels.scale(a, 0, a, 0, x.length);
        for (int i = 0; i < x.length; i++) {
            long expected = ScalarReduction.scale(type, op, n, x[i]);
            expect(type, op, x[i], n, Elements.bits(a, type, i), expected);
        }
        // The same within a combination: own is scaled, incoming is not.
        long[] y = new long[x.length];
        for (int i = 0; i < x.length; i++) {
            y[i] = x[random.nextInt(x.length)];
        }
        MemorySegment own = memory(type, x);
        MemorySegment incoming = memory(type, y);
        kernels.combine(own, 0, own, 0, incoming, 0, x.length, true);
        for (int i = 0; i < x.length; i++) {
            long scaled = ScalarReduction.scale(type, op, n, x[i]);
            long expected = ScalarReduction.hop(type, op, scaled, y[i]);
            expect(type, op, x[i], y[i], Elements.bits(own, type, i), expected);
        }
    }

    private void check(DataType type, ReduceOp op, long[] x, long[] y) {
        MemorySegment a = memory(type, x);
        MemorySegment b = memory(type, y);
        kernels.begin(type, op, 2);
        kernels.combine(a, 0, a, 0, b, 0, x.length, true);
        for (int i = 0; i < x.length; i++) {
            long expected = ScalarReduction.hop(type, op, x[i], y[i]);
            expect(type, op, x[i], y[i], Elements.bits(a, type, i), expected);
        }
    }

    private void expect(DataType type, ReduceOp op, long x, long y, long actual, long expected) {
        if (!ScalarReduction.same(type, actual, expected)) {
            throw new AssertionError(
                    String.format(
                            "%s %s of %x and %x: %x, expected %x (seed %d)",
                            type, op, x, y, actual, expected, seed));
        }
    }

    private static MemorySegment memory(DataType type, long[] bits) {
        MemorySegment segment = Arena.ofAuto().allocate(type.bytes(bits.length), 8);
        for (int i = 0; i < bits.length; i++) {
            Elements.setBits(segment, type, i, bits[i]);
        }
        return segment;
    }

    /** All bit patterns of 8 and 16 bits; special and random ones of 32 and 64. */
    private long[] patterns(DataType type) {
        if (type.sizeBytes() <= 2) {
            long[] all = new long[1 << 8 * type.sizeBytes()];
            for (int i = 0; i < all.length; i++) {
                all[i] = i;
            }
            return all;
        }
        long mask = type.sizeBytes() == 8 ? -1L : 0xffff_ffffL;
        List<Long> patterns = new ArrayList<>();
        for (long special : new long[] {0, 1, -1, 2, 3, 7, Long.MAX_VALUE, Long.MIN_VALUE}) {
            patterns.add(special & mask);
            patterns.add(special >>> 32);
        }
        if (type.isFloat()) {
            double[] specials = {
                -0.0,
                1,
                -1.5,
                Float.MIN_VALUE,
                Float.MAX_VALUE,
                Double.MIN_VALUE,
                -Double.MAX_VALUE,
                Double.POSITIVE_INFINITY,
                Double.NEGATIVE_INFINITY,
                Double.NaN,
                1e8,
                -1e8,
                Float.MIN_NORMAL
            };
            for (double special : specials) {
                patterns.add(type.bitsOf(special));
            }
            patterns.add(type.bitsOf(Double.NaN) | mask ^ mask >>> 1);
        }
        for (int i = 0; i < 5000; i++) {
            patterns.add(random.nextLong() & mask);
        }
        return patterns.stream().mapToLong(Long::longValue).toArray();
    }
}
