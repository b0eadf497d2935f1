package org.nccl4j.collectives;

/**
 * Conversion between double and the stored bits of any {@link DataType} float, by exact integer
 * arithmetic.
 */
final class FloatFormat {
    private FloatFormat() {}

    static long encode(DataType type, double value) {
        switch (type) {
            case FLOAT64 -> {
                return Double.doubleToRawLongBits(value);
            }
            case FLOAT32 -> {
                return Float.floatToRawIntBits((float) value) & 0xffff_ffffL;
            }
            default -> {}
        }
        int e = type.exponentBits();
        int m = type.mantissaBits();
        boolean saturates = type == DataType.FLOAT8E4M3 || type == DataType.FLOAT8E5M2;
        long raw = Double.doubleToRawLongBits(value);
        long sign = (raw >>> 63) << (e + m);
        if (Double.isNaN(value)) {
            return sign
                    | (type == DataType.FLOAT8E4M3
                            ? 0x7f
                            : (((1L << e) - 1) << m) | (1L << (m - 1)));
        }
        long largest = largestFiniteBits(type);
        long overflow = saturates ? largest : ((1L << e) - 1) << m;
        if (Double.isInfinite(value)) {
            return sign | overflow;
        }
        int bias = (1 << (e - 1)) - 1;
        int exponent = Math.getExponent(value);
        long significand = raw & ((1L << 52) - 1);
        if (exponent < Double.MIN_EXPONENT) {
            return sign; // A subnormal double is below half of the least value of every narrow
            // type.
        }
        significand |= 1L << 52;
        // Bits to drop so that the result counts units in the last place of the target.
        int drop = 52 - m + Math.max(0, 1 - bias - exponent);
        if (drop > 54) {
            return sign;
        }
        long kept = significand >>> drop;
        long rest = significand & ((1L << drop) - 1);
        long half = 1L << (drop - 1);
        if (rest > half || (rest == half && (kept & 1) == 1)) {
            kept++;
        }
        // Adding instead of or-ing lets a carry out of the mantissa raise the exponent.
        long bits = exponent < 1 - bias ? kept : ((long) (exponent + bias - 1) << m) + kept;
        return sign | (bits > largest ? overflow : bits);
    }

    static double decode(DataType type, long bits) {
        switch (type) {
            case FLOAT64 -> {
                return Double.longBitsToDouble(bits);
            }
            case FLOAT32 -> {
                return Float.intBitsToFloat((int) bits);
            }
            default -> {}
        }
        int e = type.exponentBits();
        int m = type.mantissaBits();
        int bias = (1 << (e - 1)) - 1;
        boolean negative = (bits >>> (e + m) & 1) == 1;
        long magnitude = bits & ((1L << (e + m)) - 1);
        long largest = largestFiniteBits(type);
        double value;
        if (magnitude > largest) {
            boolean infinite = type != DataType.FLOAT8E4M3 && magnitude == largest + 1;
            value = infinite ? Double.POSITIVE_INFINITY : Double.NaN;
        } else {
            int exponent = (int) (magnitude >>> m);
            long fraction = magnitude & ((1L << m) - 1);
            value =
                    exponent == 0
                            ? Math.scalb((double) fraction, 1 - bias - m)
                            : Math.scalb((double) (fraction | 1L << m), exponent - bias - m);
        }
        return negative ? -value : value;
    }

    private static long largestFiniteBits(DataType type) {
        if (type == DataType.FLOAT8E4M3) {
            return 0x7e;
        }
        return (((1L << type.exponentBits()) - 1) << type.mantissaBits()) - 1;
    }
}
