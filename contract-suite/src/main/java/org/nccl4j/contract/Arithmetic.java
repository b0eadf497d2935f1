package org.nccl4j.contract;

import org.nccl4j.collectives.DataType;

/**
 * What a reduction must yield, element by element on stored bits: the value rules of
 * docs/semantics.md, written down a second time. Bits above an element's width are zero.
 */
abstract sealed class Arithmetic {
    private static final Arithmetic[] BY_TYPE = new Arithmetic[DataType.values().length];

    static {
        for (DataType type : DataType.values()) {
            BY_TYPE[type.ordinal()] =
                    switch (type) {
                        case INT8 -> new Integers(1, true);
                        case UINT8 -> new Integers(1, false);
                        case INT32 -> new Integers(4, true);
                        case UINT32 -> new Integers(4, false);
                        case INT64 -> new Integers(8, true);
                        case UINT64 -> new Integers(8, false);
                        case FLOAT32 -> new Singles();
                        case FLOAT64 -> new Doubles();
                        case FLOAT16 -> new Narrow(2, 5, 10, BinaryFormat.FLOAT16);
                        case BFLOAT16 -> new Narrow(2, 8, 7, BinaryFormat.BFLOAT16);
                        case FLOAT8E4M3 -> new Narrow(1, 4, 3, BinaryFormat.FLOAT8E4M3);
                        case FLOAT8E5M2 -> new Narrow(1, 5, 2, BinaryFormat.FLOAT8E5M2);
                    };
        }
    }

    private final int widthBytes;

    private Arithmetic(int widthBytes) {
        this.widthBytes = widthBytes;
    }

    static Arithmetic of(DataType type) {
        return BY_TYPE[type.ordinal()];
    }

    final int widthBytes() {
        return widthBytes;
    }

    /** Combines what has been reduced so far with one more input. */
    final long combine(Reduction reduction, long a, long b) {
        return switch (reduction) {
            case SUM, AVG, PRE_MUL_SUM -> add(a, b);
            case PROD -> multiply(a, b);
            case MIN -> min(a, b);
            case MAX -> max(a, b);
        };
    }

    /** What becomes of an input before it is combined. */
    final long prepare(Reduction reduction, long input, int ranks, long scalar) {
        return switch (reduction) {
            case AVG -> scaleForAverage(input, ranks);
            case PRE_MUL_SUM -> multiply(input, scalar);
            case SUM, PROD, MIN, MAX -> input;
        };
    }

    /** What becomes of the combined value. */
    final long finish(Reduction reduction, long combined, int ranks) {
        return reduction == Reduction.AVG ? divideSum(combined, ranks) : combined;
    }

    /**
     * Reduces one element of every rank, innermost first: input {@code order[0]} is combined with
     * {@code order[1]}, the outcome with {@code order[2]}, and so on.
     */
    final long reduce(Reduction reduction, long[] inputByRank, long[] scalarByRank, int[] order) {
        int ranks = inputByRank.length;
        if (ranks == 1 && reduction != Reduction.PRE_MUL_SUM) {
            return inputByRank[0];
        }
        long combined = 0;
        for (int i = 0; i < ranks; i++) {
            int rank = order[i];
            long prepared = prepare(reduction, inputByRank[rank], ranks, scalarByRank[rank]);
            combined = i == 0 ? prepared : combine(reduction, prepared, combined);
        }
        return finish(reduction, combined, ranks);
    }

    /** Whether two results are the same; a NaN equals any NaN. */
    final boolean same(long a, long b) {
        return a == b || (isNaN(a) && isNaN(b));
    }

    abstract long add(long a, long b);

    abstract long multiply(long a, long b);

    abstract long min(long a, long b);

    abstract long max(long a, long b);

    abstract long scaleForAverage(long input, int ranks);

    abstract long divideSum(long sum, int ranks);

    abstract boolean isNaN(long bits);

    /** The stored bits of a small whole number. */
    abstract long ofInteger(long value);

    /** An element for a message: its bits and its value. */
    final String describe(long bits) {
        String hex = Long.toHexString(bits);
        return "0x" + "0".repeat(2 * widthBytes - hex.length()) + hex + " (" + value(bits) + ")";
    }

    abstract String value(long bits);

    /** Two's complement that wraps. */
    static final class Integers extends Arithmetic {
        private final int unusedBits;
        private final boolean signed;

        private Integers(int widthBytes, boolean signed) {
            super(widthBytes);
            this.unusedBits = 64 - 8 * widthBytes;
            this.signed = signed;
        }

        private long wrap(long value) {
            return value << unusedBits >>> unusedBits;
        }

        private long number(long bits) {
            return signed ? bits << unusedBits >> unusedBits : bits;
        }

        private boolean less(long a, long b) {
            return signed ? number(a) < number(b) : Long.compareUnsigned(a, b) < 0;
        }

        @Override
        long add(long a, long b) {
            return wrap(a + b);
        }

        @Override
        long multiply(long a, long b) {
            return wrap(a * b);
        }

        @Override
        long min(long a, long b) {
            return less(b, a) ? b : a;
        }

        @Override
        long max(long a, long b) {
            return less(a, b) ? b : a;
        }

        @Override
        long scaleForAverage(long input, int ranks) {
            return input;
        }

        @Override
        long divideSum(long sum, int ranks) {
            return wrap(signed ? number(sum) / ranks : Long.divideUnsigned(sum, ranks));
        }

        @Override
        boolean isNaN(long bits) {
            return false;
        }

        @Override
        long ofInteger(long value) {
            return wrap(value);
        }

        @Override
        String value(long bits) {
            return signed ? Long.toString(number(bits)) : Long.toUnsignedString(bits);
        }
    }

    /** What all floats share: arithmetic on doubles, rounded as the type demands. */
    abstract static sealed class Floats extends Arithmetic {
        private final int exponentBits;
        private final int mantissaBits;

        private Floats(int widthBytes, int exponentBits, int mantissaBits) {
            super(widthBytes);
            this.exponentBits = exponentBits;
            this.mantissaBits = mantissaBits;
        }

        final int exponentBits() {
            return exponentBits;
        }

        final int mantissaBits() {
            return mantissaBits;
        }

        abstract double decode(long bits);

        abstract long encode(double value);

        @Override
        long min(long a, long b) {
            double x = decode(a);
            double y = decode(b);
            // With NaN out of the way Math.min is C's fmin, and puts -0 below +0.
            return encode(Double.isNaN(x) ? y : Double.isNaN(y) ? x : Math.min(x, y));
        }

        @Override
        long max(long a, long b) {
            double x = decode(a);
            double y = decode(b);
            return encode(Double.isNaN(x) ? y : Double.isNaN(y) ? x : Math.max(x, y));
        }

        @Override
        long divideSum(long sum, int ranks) {
            return sum;
        }

        @Override
        boolean isNaN(long bits) {
            return Double.isNaN(decode(bits));
        }

        @Override
        long ofInteger(long value) {
            return encode((double) value);
        }

        @Override
        String value(long bits) {
            return Double.toString(decode(bits));
        }
    }

    /** binary64, by the JVM. */
    static final class Doubles extends Floats {
        private Doubles() {
            super(8, 11, 52);
        }

        @Override
        double decode(long bits) {
            return Double.longBitsToDouble(bits);
        }

        @Override
        long encode(double value) {
            return Double.doubleToRawLongBits(value);
        }

        @Override
        long add(long a, long b) {
            return encode(decode(a) + decode(b));
        }

        @Override
        long multiply(long a, long b) {
            return encode(decode(a) * decode(b));
        }

        @Override
        long scaleForAverage(long input, int ranks) {
            return encode(decode(input) * (1.0 / ranks));
        }
    }

    /** binary32, by the JVM. */
    static final class Singles extends Floats {
        private Singles() {
            super(4, 8, 23);
        }

        private static float single(long bits) {
            return Float.intBitsToFloat((int) bits);
        }

        private static long bits(float value) {
            return Float.floatToRawIntBits(value) & 0xffff_ffffL;
        }

        @Override
        double decode(long bits) {
            return single(bits);
        }

        @Override
        long encode(double value) {
            return bits((float) value);
        }

        @Override
        long add(long a, long b) {
            return bits(single(a) + single(b));
        }

        @Override
        long multiply(long a, long b) {
            return bits(single(a) * single(b));
        }

        @Override
        long scaleForAverage(long input, int ranks) {
            return bits(single(input) * (1.0f / ranks));
        }
    }

    /**
     * 16- and 8-bit floats. A double holds any sum or product of two 16-bit floats closely enough
     * that one rounding to 16 bits is the correct one; the 8-bit floats compute in float16 first.
     */
    static final class Narrow extends Floats {
        private final BinaryFormat format;
        private final boolean inHalf;

        private Narrow(int widthBytes, int exponentBits, int mantissaBits, BinaryFormat format) {
            super(widthBytes, exponentBits, mantissaBits);
            this.format = format;
            this.inHalf = widthBytes == 1;
        }

        @Override
        double decode(long bits) {
            return format.decode(bits);
        }

        @Override
        long encode(double value) {
            return format.encode(value);
        }

        private long store(double value) {
            return format.encode(inHalf ? half(value) : value);
        }

        private static double half(double value) {
            return BinaryFormat.FLOAT16.decode(BinaryFormat.FLOAT16.encode(value));
        }

        @Override
        long add(long a, long b) {
            return store(decode(a) + decode(b));
        }

        @Override
        long multiply(long a, long b) {
            return store(decode(a) * decode(b));
        }

        @Override
        long scaleForAverage(long input, int ranks) {
            double share = 1.0 / ranks;
            double factor = inHalf ? half(share) : format.decode(format.encode(share));
            return store(decode(input) * factor);
        }
    }
}
