package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.List;
import java.util.function.Supplier;
import jdk.incubator.vector.DoubleVector;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.LongVector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;
import org.nccl4j.collectives.DataType;

/**
 * The sums for which {@code jdk.incubator.vector} is faster than what the JIT makes of {@link
 * Loops}: mainly because these loops work on memory itself, without copies into arrays. Loaded by
 * {@link KernelChoice} alone, and only where that module is there. Each loop is a method of its own
 * with a constant operator: the JIT has SIMD code for no other form.
 *
 * <p>Thread safety: immutable.
 */
final class VectorSums implements Supplier<List<VectorSum>> {
    private static final ByteOrder ORDER = ByteOrder.nativeOrder();
    private static final VectorSpecies<Integer> INTS = IntVector.SPECIES_PREFERRED;
    private static final VectorSpecies<Long> LONGS = LongVector.SPECIES_PREFERRED;
    private static final VectorSpecies<Float> FLOATS = FloatVector.SPECIES_PREFERRED;
    private static final VectorSpecies<Double> DOUBLES = DoubleVector.SPECIES_PREFERRED;
    private static final ValueLayout.OfShort SHORT = ValueLayout.JAVA_SHORT_UNALIGNED;
    private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED;
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;
    private static final ValueLayout.OfFloat FLOAT = ValueLayout.JAVA_FLOAT_UNALIGNED;
    private static final ValueLayout.OfDouble DOUBLE = ValueLayout.JAVA_DOUBLE_UNALIGNED;

    VectorSums() {}

    /** All of them. */
    @Override
    public List<VectorSum> get() {
        return List.of(
                new Float32Sum(),
                new Float64Sum(),
                new Int32Sum(DataType.INT32),
                new Int32Sum(DataType.UINT32),
                new Int64Sum(DataType.INT64),
                new Int64Sum(DataType.UINT64),
                new Bfloat16Sum());
    }

    private static final class Float32Sum extends VectorSum {
        Float32Sum() {
            super(DataType.FLOAT32);
        }

        @Override
        void add(
                MemorySegment a,
                long aAt,
                MemorySegment b,
                long bAt,
                MemorySegment target,
                long targetAt,
                int countElements) {
            int bytes = countElements * Float.BYTES;
            int step = FLOATS.vectorByteSize();
            int whole = bytes / step * step;
            int at = 0;
            for (; at < whole; at += step) {
                FloatVector x = FloatVector.fromMemorySegment(FLOATS, a, aAt + at, ORDER);
                FloatVector y = FloatVector.fromMemorySegment(FLOATS, b, bAt + at, ORDER);
                FloatVector z = x.add(y);
                z.intoMemorySegment(target, targetAt + at, ORDER);
            }
            for (; at < bytes; at += Float.BYTES) {
                float z = a.get(FLOAT, aAt + at) + b.get(FLOAT, bAt + at);
                target.set(FLOAT, targetAt + at, z);
            }
        }

        @Override
        void addTwice(
                MemorySegment a,
                long aAt,
                MemorySegment b,
                long bAt,
                MemorySegment target,
                long targetAt,
                MemorySegment second,
                long secondAt,
                int countElements) {
            int bytes = countElements * Float.BYTES;
            int step = FLOATS.vectorByteSize();
            int whole = bytes / step * step;
            int at = 0;
            for (; at < whole; at += step) {
                FloatVector x = FloatVector.fromMemorySegment(FLOATS, a, aAt + at, ORDER);
                FloatVector y = FloatVector.fromMemorySegment(FLOATS, b, bAt + at, ORDER);
                FloatVector z = x.add(y);
                z.intoMemorySegment(target, targetAt + at, ORDER);
                z.intoMemorySegment(second, secondAt + at, ORDER);
            }
            for (; at < bytes; at += Float.BYTES) {
                float z = a.get(FLOAT, aAt + at) + b.get(FLOAT, bAt + at);
                target.set(FLOAT, targetAt + at, z);
                second.set(FLOAT, secondAt + at, z);
            }
        }
    }

    private static final class Float64Sum extends VectorSum {
        Float64Sum() {
            super(DataType.FLOAT64);
        }

        @Override
        void add(
                MemorySegment a,
                long aAt,
                MemorySegment b,
                long bAt,
                MemorySegment target,
                long targetAt,
                int countElements) {
            int bytes = countElements * Double.BYTES;
            int step = DOUBLES.vectorByteSize();
            int whole = bytes / step * step;
            int at = 0;
            for (; at < whole; at += step) {
                DoubleVector x = DoubleVector.fromMemorySegment(DOUBLES, a, aAt + at, ORDER);
                DoubleVector y = DoubleVector.fromMemorySegment(DOUBLES, b, bAt + at, ORDER);
                DoubleVector z = x.add(y);
                z.intoMemorySegment(target, targetAt + at, ORDER);
            }
            for (; at < bytes; at += Double.BYTES) {
                double z = a.get(DOUBLE, aAt + at) + b.get(DOUBLE, bAt + at);
                target.set(DOUBLE, targetAt + at, z);
            }
        }

        @Override
        void addTwice(
                MemorySegment a,
                long aAt,
                MemorySegment b,
                long bAt,
                MemorySegment target,
                long targetAt,
                MemorySegment second,
                long secondAt,
                int countElements) {
            int bytes = countElements * Double.BYTES;
            int step = DOUBLES.vectorByteSize();
            int whole = bytes / step * step;
            int at = 0;
            for (; at < whole; at += step) {
                DoubleVector x = DoubleVector.fromMemorySegment(DOUBLES, a, aAt + at, ORDER);
                DoubleVector y = DoubleVector.fromMemorySegment(DOUBLES, b, bAt + at, ORDER);
                DoubleVector z = x.add(y);
                z.intoMemorySegment(target, targetAt + at, ORDER);
                z.intoMemorySegment(second, secondAt + at, ORDER);
            }
            for (; at < bytes; at += Double.BYTES) {
                double z = a.get(DOUBLE, aAt + at) + b.get(DOUBLE, bAt + at);
                target.set(DOUBLE, targetAt + at, z);
                second.set(DOUBLE, secondAt + at, z);
            }
        }
    }

    private static final class Int32Sum extends VectorSum {
        Int32Sum(DataType type) {
            super(type);
        }

        @Override
        void add(
                MemorySegment a,
                long aAt,
                MemorySegment b,
                long bAt,
                MemorySegment target,
                long targetAt,
                int countElements) {
            int bytes = countElements * Integer.BYTES;
            int step = INTS.vectorByteSize();
            int whole = bytes / step * step;
            int at = 0;
            for (; at < whole; at += step) {
                IntVector x = IntVector.fromMemorySegment(INTS, a, aAt + at, ORDER);
                IntVector y = IntVector.fromMemorySegment(INTS, b, bAt + at, ORDER);
                IntVector z = x.add(y);
                z.intoMemorySegment(target, targetAt + at, ORDER);
            }
            for (; at < bytes; at += Integer.BYTES) {
                int z = a.get(INT, aAt + at) + b.get(INT, bAt + at);
                target.set(INT, targetAt + at, z);
            }
        }

        @Override
        void addTwice(
                MemorySegment a,
                long aAt,
                MemorySegment b,
                long bAt,
                MemorySegment target,
                long targetAt,
                MemorySegment second,
                long secondAt,
                int countElements) {
            int bytes = countElements * Integer.BYTES;
            int step = INTS.vectorByteSize();
            int whole = bytes / step * step;
            int at = 0;
            for (; at < whole; at += step) {
                IntVector x = IntVector.fromMemorySegment(INTS, a, aAt + at, ORDER);
                IntVector y = IntVector.fromMemorySegment(INTS, b, bAt + at, ORDER);
                IntVector z = x.add(y);
                z.intoMemorySegment(target, targetAt + at, ORDER);
                z.intoMemorySegment(second, secondAt + at, ORDER);
            }
            for (; at < bytes; at += Integer.BYTES) {
                int z = a.get(INT, aAt + at) + b.get(INT, bAt + at);
                target.set(INT, targetAt + at, z);
                second.set(INT, secondAt + at, z);
            }
        }
    }

    private static final class Int64Sum extends VectorSum {
        Int64Sum(DataType type) {
            super(type);
        }

        @Override
        void add(
                MemorySegment a,
                long aAt,
                MemorySegment b,
                long bAt,
                MemorySegment target,
                long targetAt,
                int countElements) {
            int bytes = countElements * Long.BYTES;
            int step = LONGS.vectorByteSize();
            int whole = bytes / step * step;
            int at = 0;
            for (; at < whole; at += step) {
                LongVector x = LongVector.fromMemorySegment(LONGS, a, aAt + at, ORDER);
                LongVector y = LongVector.fromMemorySegment(LONGS, b, bAt + at, ORDER);
                LongVector z = x.add(y);
                z.intoMemorySegment(target, targetAt + at, ORDER);
            }
            for (; at < bytes; at += Long.BYTES) {
                long z = a.get(LONG, aAt + at) + b.get(LONG, bAt + at);
                target.set(LONG, targetAt + at, z);
            }
        }

        @Override
        void addTwice(
                MemorySegment a,
                long aAt,
                MemorySegment b,
                long bAt,
                MemorySegment target,
                long targetAt,
                MemorySegment second,
                long secondAt,
                int countElements) {
            int bytes = countElements * Long.BYTES;
            int step = LONGS.vectorByteSize();
            int whole = bytes / step * step;
            int at = 0;
            for (; at < whole; at += step) {
                LongVector x = LongVector.fromMemorySegment(LONGS, a, aAt + at, ORDER);
                LongVector y = LongVector.fromMemorySegment(LONGS, b, bAt + at, ORDER);
                LongVector z = x.add(y);
                z.intoMemorySegment(target, targetAt + at, ORDER);
                z.intoMemorySegment(second, secondAt + at, ORDER);
            }
            for (; at < bytes; at += Long.BYTES) {
                long z = a.get(LONG, aAt + at) + b.get(LONG, bAt + at);
                target.set(LONG, targetAt + at, z);
                second.set(LONG, secondAt + at, z);
            }
        }
    }

    /**
     * Two bfloat16 per int. The upper half of a float32 is a bfloat16, and sums of two are rounded
     * so finely in float32 that rounding once more gives the correctly rounded result.
     */
    private static final class Bfloat16Sum extends VectorSum {
        Bfloat16Sum() {
            super(DataType.BFLOAT16);
        }

        @Override
        void add(
                MemorySegment a,
                long aAt,
                MemorySegment b,
                long bAt,
                MemorySegment target,
                long targetAt,
                int countElements) {
            int bytes = countElements * Short.BYTES;
            int step = INTS.vectorByteSize();
            int whole = bytes / step * step;
            int at = 0;
            for (; at < whole; at += step) {
                IntVector x = IntVector.fromMemorySegment(INTS, a, aAt + at, ORDER);
                IntVector y = IntVector.fromMemorySegment(INTS, b, bAt + at, ORDER);
                IntVector z = sum(x, y);
                z.intoMemorySegment(target, targetAt + at, ORDER);
            }
            for (; at < bytes; at += Short.BYTES) {
                short z = sum(a.get(SHORT, aAt + at), b.get(SHORT, bAt + at));
                target.set(SHORT, targetAt + at, z);
            }
        }

        @Override
        void addTwice(
                MemorySegment a,
                long aAt,
                MemorySegment b,
                long bAt,
                MemorySegment target,
                long targetAt,
                MemorySegment second,
                long secondAt,
                int countElements) {
            int bytes = countElements * Short.BYTES;
            int step = INTS.vectorByteSize();
            int whole = bytes / step * step;
            int at = 0;
            for (; at < whole; at += step) {
                IntVector x = IntVector.fromMemorySegment(INTS, a, aAt + at, ORDER);
                IntVector y = IntVector.fromMemorySegment(INTS, b, bAt + at, ORDER);
                IntVector z = sum(x, y);
                z.intoMemorySegment(target, targetAt + at, ORDER);
                z.intoMemorySegment(second, secondAt + at, ORDER);
            }
            for (; at < bytes; at += Short.BYTES) {
                short z = sum(a.get(SHORT, aAt + at), b.get(SHORT, bAt + at));
                target.set(SHORT, targetAt + at, z);
                second.set(SHORT, secondAt + at, z);
            }
        }

        private static IntVector sum(IntVector x, IntVector y) {
            IntVector high = round(x.and(0xffff_0000), y.and(0xffff_0000));
            IntVector low =
                    round(
                            x.lanewise(VectorOperators.LSHL, 16),
                            y.lanewise(VectorOperators.LSHL, 16));
            return high.and(0xffff_0000).or(low.lanewise(VectorOperators.LSHR, 16));
        }

        /** The sum with its upper half rounded to nearest even; NaN stays NaN. */
        private static IntVector round(IntVector x, IntVector y) {
            FloatVector sum = x.reinterpretAsFloats().add(y.reinterpretAsFloats());
            IntVector bits = sum.reinterpretAsInts();
            IntVector odd = bits.lanewise(VectorOperators.LSHR, 16).and(1);
            return bits.add(0x7fff)
                    .add(odd)
                    .blend(0x7fc0_0000, sum.test(VectorOperators.IS_NAN).cast(INTS));
        }

        private static short sum(short x, short y) {
            float sum = Float.intBitsToFloat(x << 16) + Float.intBitsToFloat(y << 16);
            if (Float.isNaN(sum)) {
                return 0x7fc0;
            }
            int bits = Float.floatToRawIntBits(sum);
            return (short) (bits + 0x7fff + (bits >>> 16 & 1) >>> 16);
        }
    }
}
