package org.nccl4j.cpu;

/**
 * The element loops of the reductions, on arrays: {@code x[i] = x[i] op y[i]}. Each is a method of
 * its own, so that the JIT compiles it for one purpose; nearly all become SIMD code. On memory
 * segments they would not: the compiler cannot prove that the ranges of three native segments are
 * apart. Nor does it find SIMD code for comparisons of bytes and shorts, and for float bits taken
 * as an int: so those work on ints that hold four bytes or two shorts.
 */
final class Loops {
    private Loops() {}

    // Integers: two's complement, so one loop adds and multiplies signed and unsigned.

    static void sum(byte[] x, byte[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = (byte) (x[i] + y[i]);
        }
    }

    static void sum(int[] x, int[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] += y[i];
        }
    }

    static void sum(long[] x, long[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] += y[i];
        }
    }

    static void product(byte[] x, byte[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = (byte) (x[i] * y[i]);
        }
    }

    static void product(int[] x, int[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] *= y[i];
        }
    }

    static void product(long[] x, long[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] *= y[i];
        }
    }

    static void minimum(int[] x, int[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = Math.min(x[i], y[i]);
        }
    }

    static void minimum(long[] x, long[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = Math.min(x[i], y[i]);
        }
    }

    static void maximum(int[] x, int[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = Math.max(x[i], y[i]);
        }
    }

    static void maximum(long[] x, long[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = Math.max(x[i], y[i]);
        }
    }

    static void minimumUnsigned(int[] x, int[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = Math.min(x[i] ^ Integer.MIN_VALUE, y[i] ^ Integer.MIN_VALUE) ^ Integer.MIN_VALUE;
        }
    }

    static void minimumUnsigned(long[] x, long[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = Math.min(x[i] ^ Long.MIN_VALUE, y[i] ^ Long.MIN_VALUE) ^ Long.MIN_VALUE;
        }
    }

    static void maximumUnsigned(int[] x, int[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = Math.max(x[i] ^ Integer.MIN_VALUE, y[i] ^ Integer.MIN_VALUE) ^ Integer.MIN_VALUE;
        }
    }

    static void maximumUnsigned(long[] x, long[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = Math.max(x[i] ^ Long.MIN_VALUE, y[i] ^ Long.MIN_VALUE) ^ Long.MIN_VALUE;
        }
    }

    static void multiply(byte[] x, byte factor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = (byte) (x[i] * factor);
        }
    }

    static void multiply(int[] x, int factor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] *= factor;
        }
    }

    static void multiply(long[] x, long factor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] *= factor;
        }
    }

    // For |x| < 256 and any divisor d, x * (65536 / d + 1) / 65536 is x / d.

    static void divide(byte[] x, int divisor, int count) {
        int reciprocal = (1 << 16) / divisor + 1;
        for (int i = 0; i < count; i++) {
            int quotient = Math.abs(x[i]) * reciprocal >>> 16;
            x[i] = (byte) (x[i] < 0 ? -quotient : quotient);
        }
    }

    static void divideUnsigned(byte[] x, int divisor, int count) {
        int reciprocal = (1 << 16) / divisor + 1;
        for (int i = 0; i < count; i++) {
            x[i] = (byte) ((x[i] & 0xff) * reciprocal >>> 16);
        }
    }

    // A quotient of 32-bit integers is never so close below an integer that a double would be
    // rounded to it; and there is SIMD code for the division of doubles.

    static void divide(int[] x, int divisor, int count) {
        double d = divisor;
        for (int i = 0; i < count; i++) {
            x[i] = (int) (x[i] / d);
        }
    }

    static void divide(long[] x, int divisor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] /= divisor;
        }
    }

    static void divideUnsigned(int[] x, int divisor, int count) {
        double d = divisor;
        for (int i = 0; i < count; i++) {
            x[i] = (int) (long) ((x[i] & 0xffff_ffffL) / d);
        }
    }

    static void divideUnsigned(long[] x, int divisor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = Long.divideUnsigned(x[i], divisor);
        }
    }

    // float32 and float64.

    static void sum(float[] x, float[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] += y[i];
        }
    }

    static void sum(double[] x, double[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] += y[i];
        }
    }

    static void product(float[] x, float[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] *= y[i];
        }
    }

    static void product(double[] x, double[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] *= y[i];
        }
    }

    static void multiply(float[] x, float factor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] *= factor;
        }
    }

    static void multiply(double[] x, double factor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] *= factor;
        }
    }

    // Minimum and maximum of floats work on their bits. A float's bits with the magnitude inverted
    // if the sign is set compare as signed integers the way floats do, -0 before +0; a NaN gets the
    // key that loses every comparison, so that it survives only where both are NaN.

    static void minimumFloat32(int[] x, int[] y, int count) {
        for (int i = 0; i < count; i++) {
            int a = x[i];
            int b = y[i];
            int aNaN = (0x7f80_0000 - (a & 0x7fff_ffff)) >> 31;
            int bNaN = (0x7f80_0000 - (b & 0x7fff_ffff)) >> 31;
            int aKey = (a ^ ((a >> 31) >>> 1)) & ~aNaN | aNaN & Integer.MAX_VALUE;
            int bKey = (b ^ ((b >> 31) >>> 1)) & ~bNaN | bNaN & Integer.MAX_VALUE;
            int key = Math.min(aKey, bKey);
            x[i] = key ^ ((key >> 31) >>> 1);
        }
    }

    static void maximumFloat32(int[] x, int[] y, int count) {
        for (int i = 0; i < count; i++) {
            int a = x[i];
            int b = y[i];
            int aNaN = (0x7f80_0000 - (a & 0x7fff_ffff)) >> 31;
            int bNaN = (0x7f80_0000 - (b & 0x7fff_ffff)) >> 31;
            int aKey = (a ^ ((a >> 31) >>> 1)) & ~aNaN | aNaN & Integer.MIN_VALUE;
            int bKey = (b ^ ((b >> 31) >>> 1)) & ~bNaN | bNaN & Integer.MIN_VALUE;
            int key = Math.max(aKey, bKey);
            x[i] = key ^ ((key >> 31) >>> 1);
        }
    }

    static void minimumFloat64(long[] x, long[] y, int count) {
        for (int i = 0; i < count; i++) {
            long a = x[i];
            long b = y[i];
            long aNaN = (0x7ff0_0000_0000_0000L - (a & Long.MAX_VALUE)) >> 63;
            long bNaN = (0x7ff0_0000_0000_0000L - (b & Long.MAX_VALUE)) >> 63;
            long aKey = (a ^ ((a >> 63) >>> 1)) & ~aNaN | aNaN & Long.MAX_VALUE;
            long bKey = (b ^ ((b >> 63) >>> 1)) & ~bNaN | bNaN & Long.MAX_VALUE;
            long key = Math.min(aKey, bKey);
            x[i] = key ^ ((key >> 63) >>> 1);
        }
    }

    static void maximumFloat64(long[] x, long[] y, int count) {
        for (int i = 0; i < count; i++) {
            long a = x[i];
            long b = y[i];
            long aNaN = (0x7ff0_0000_0000_0000L - (a & Long.MAX_VALUE)) >> 63;
            long bNaN = (0x7ff0_0000_0000_0000L - (b & Long.MAX_VALUE)) >> 63;
            long aKey = (a ^ ((a >> 63) >>> 1)) & ~aNaN | aNaN & Long.MIN_VALUE;
            long bKey = (b ^ ((b >> 63) >>> 1)) & ~bNaN | bNaN & Long.MIN_VALUE;
            long key = Math.max(aKey, bKey);
            x[i] = key ^ ((key >> 63) >>> 1);
        }
    }

    /**
     * Two 16-bit floats per int.
     *
     * @param infinity the type's infinity in the upper half: 0x7c00_0000 or 0x7f80_0000
     */
    static void minimumPacked16(int[] x, int[] y, int infinity, int count) {
        for (int i = 0; i < count; i++) {
            int high = minimum16(x[i] & 0xffff_0000, y[i] & 0xffff_0000, infinity);
            int low = minimum16(x[i] << 16, y[i] << 16, infinity);
            x[i] = high & 0xffff_0000 | low >>> 16;
        }
    }

    private static int minimum16(int a, int b, int infinity) {
        int aNaN = (infinity - (a & 0x7fff_ffff)) >> 31;
        int bNaN = (infinity - (b & 0x7fff_ffff)) >> 31;
        int aKey = (a ^ ((a >> 31) >>> 1)) & ~aNaN | aNaN & Integer.MAX_VALUE;
        int bKey = (b ^ ((b >> 31) >>> 1)) & ~bNaN | bNaN & Integer.MAX_VALUE;
        int key = Math.min(aKey, bKey);
        return key ^ ((key >> 31) >>> 1);
    }

    /**
     * Two 16-bit floats per int.
     *
     * @param infinity the type's infinity in the upper half: 0x7c00_0000 or 0x7f80_0000
     */
    static void maximumPacked16(int[] x, int[] y, int infinity, int count) {
        for (int i = 0; i < count; i++) {
            int high = maximum16(x[i] & 0xffff_0000, y[i] & 0xffff_0000, infinity);
            int low = maximum16(x[i] << 16, y[i] << 16, infinity);
            x[i] = high & 0xffff_0000 | low >>> 16;
        }
    }

    private static int maximum16(int a, int b, int infinity) {
        int aNaN = (infinity - (a & 0x7fff_ffff)) >> 31;
        int bNaN = (infinity - (b & 0x7fff_ffff)) >> 31;
        int aKey = (a ^ ((a >> 31) >>> 1)) & ~aNaN | aNaN & Integer.MIN_VALUE;
        int bKey = (b ^ ((b >> 31) >>> 1)) & ~bNaN | bNaN & Integer.MIN_VALUE;
        int key = Math.max(aKey, bKey);
        return key ^ ((key >> 31) >>> 1);
    }

    /**
     * Four 8-bit integers per int.
     *
     * @param flip 0 for signed, 0x8080_8080 for unsigned integers
     */
    static void minimumPacked8(int[] x, int[] y, int flip, int count) {
        for (int i = 0; i < count; i++) {
            int a = x[i] ^ flip;
            int b = y[i] ^ flip;
            int third = Math.min(a, b) & 0xff00_0000;
            int second = Math.min(a << 8, b << 8) >>> 8 & 0x00ff_0000;
            int first = Math.min(a << 16, b << 16) >>> 16 & 0x0000_ff00;
            int zeroth = Math.min(a << 24, b << 24) >>> 24;
            x[i] = (third | second | first | zeroth) ^ flip;
        }
    }

    /**
     * Four 8-bit integers per int.
     *
     * @param flip 0 for signed, 0x8080_8080 for unsigned integers
     */
    static void maximumPacked8(int[] x, int[] y, int flip, int count) {
        for (int i = 0; i < count; i++) {
            int a = x[i] ^ flip;
            int b = y[i] ^ flip;
            int third = Math.max(a, b) & 0xff00_0000;
            int second = Math.max(a << 8, b << 8) >>> 8 & 0x00ff_0000;
            int first = Math.max(a << 16, b << 16) >>> 16 & 0x0000_ff00;
            int zeroth = Math.max(a << 24, b << 24) >>> 24;
            x[i] = (third | second | first | zeroth) ^ flip;
        }
    }

    // float16: sums and products of two values are exact in float32 or rounded there so finely
    // (24 bits >= 2 * 11 + 2) that rounding again to 11 bits gives the correctly rounded result.

    static void sumFloat16(short[] x, short[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = Float.floatToFloat16(Float.float16ToFloat(x[i]) + Float.float16ToFloat(y[i]));
        }
    }

    static void productFloat16(short[] x, short[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = Float.floatToFloat16(Float.float16ToFloat(x[i]) * Float.float16ToFloat(y[i]));
        }
    }

    static void multiplyFloat16(short[] x, float factor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = Float.floatToFloat16(Float.float16ToFloat(x[i]) * factor);
        }
    }

    // bfloat16: the upper half of a float32, by the same argument (24 >= 2 * 8 + 2). The
    // arithmetic is that of float32; these loops take the halves of ints apart and put them back.

    /**
     * The float32 bits of one half of each int.
     *
     * @param shift 16 for the lower half, 0 for the upper
     */
    static void widenBfloat16(int[] packed, int shift, int[] bits, int count) {
        for (int i = 0; i < count; i++) {
            bits[i] = packed[i] << shift & 0xffff_0000;
        }
    }

    /**
     * Rounds float32 bits to nearest even and puts them into one half of each int.
     *
     * @param shift 16 for the lower half, 0 for the upper
     */
    static void narrowBfloat16(int[] bits, int shift, int[] packed, int count) {
        int others = ~(0xffff_0000 >>> shift);
        for (int i = 0; i < count; i++) {
            int value = bits[i];
            // A NaN must neither be rounded into infinity nor carried over into zero.
            int nan = (0x7f80_0000 - (value & 0x7fff_ffff)) >> 31;
            int rounded = value + 0x7fff + (value >>> 16 & 1);
            int result = (rounded & ~nan | 0x7fc0_0000 & nan) & 0xffff_0000;
            packed[i] = packed[i] & others | result >>> shift;
        }
    }

    // 8-bit floats: one look-up.

    /** {@code table[x << 8 | y]} is the result. */
    static void combineFloat8(byte[] x, byte[] y, byte[] table, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = table[(x[i] & 0xff) << 8 | y[i] & 0xff];
        }
    }

    /** {@code table[x]} is the result. */
    static void multiplyFloat8(byte[] x, byte[] table, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = table[x[i] & 0xff];
        }
    }
}
