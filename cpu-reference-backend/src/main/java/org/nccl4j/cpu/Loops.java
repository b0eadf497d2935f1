package org.nccl4j.cpu;

/**
 * The element loops of the reductions, on arrays: {@code x[i] = x[i] op y[i]}. Each is a method of
 * its own, so that the JIT compiles it for one purpose; most become SIMD code. On memory segments
 * they would not: the compiler cannot prove that the ranges of three native segments are apart.
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

    static void minimum(byte[] x, byte[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = (byte) Math.min(x[i], y[i]);
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

    static void maximum(byte[] x, byte[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = (byte) Math.max(x[i], y[i]);
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

    static void minimumUnsigned(byte[] x, byte[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = (byte) Math.min(x[i] & 0xff, y[i] & 0xff);
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

    static void maximumUnsigned(byte[] x, byte[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = (byte) Math.max(x[i] & 0xff, y[i] & 0xff);
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

    static void divide(byte[] x, int divisor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = (byte) (x[i] / divisor);
        }
    }

    static void divide(int[] x, int divisor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] /= divisor;
        }
    }

    static void divide(long[] x, int divisor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] /= divisor;
        }
    }

    static void divideUnsigned(byte[] x, int divisor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = (byte) ((x[i] & 0xff) / divisor);
        }
    }

    static void divideUnsigned(int[] x, int divisor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = (int) ((x[i] & 0xffff_ffffL) / divisor);
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
            int aKey = (a ^ ((a >> 31) >>> 1)) & ~aNaN | aNaN >>> 1;
            int bKey = (b ^ ((b >> 31) >>> 1)) & ~bNaN | bNaN >>> 1;
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
            long aKey = (a ^ ((a >> 63) >>> 1)) & ~aNaN | aNaN >>> 1;
            long bKey = (b ^ ((b >> 63) >>> 1)) & ~bNaN | bNaN >>> 1;
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

    /** float16 ({@code infinity} 0x7c00) and bfloat16 (0x7f80). */
    static void minimumFloat16(short[] x, short[] y, int infinity, int count) {
        for (int i = 0; i < count; i++) {
            int a = x[i];
            int b = y[i];
            int aNaN = (infinity - (a & 0x7fff)) >> 31;
            int bNaN = (infinity - (b & 0x7fff)) >> 31;
            int aKey = (a ^ ((a >> 31) & 0x7fff)) & ~aNaN | aNaN & 0x7fff;
            int bKey = (b ^ ((b >> 31) & 0x7fff)) & ~bNaN | bNaN & 0x7fff;
            int key = Math.min(aKey, bKey);
            x[i] = (short) (key ^ ((key >> 31) & 0x7fff));
        }
    }

    /** float16 ({@code infinity} 0x7c00) and bfloat16 (0x7f80). */
    static void maximumFloat16(short[] x, short[] y, int infinity, int count) {
        for (int i = 0; i < count; i++) {
            int a = x[i];
            int b = y[i];
            int aNaN = (infinity - (a & 0x7fff)) >> 31;
            int bNaN = (infinity - (b & 0x7fff)) >> 31;
            int aKey = (a ^ ((a >> 31) & 0x7fff)) & ~aNaN | aNaN & Short.MIN_VALUE;
            int bKey = (b ^ ((b >> 31) & 0x7fff)) & ~bNaN | bNaN & Short.MIN_VALUE;
            int key = Math.max(aKey, bKey);
            x[i] = (short) (key ^ ((key >> 31) & 0x7fff));
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

    // bfloat16: the upper half of a float32, by the same argument (24 >= 2 * 8 + 2).

    static void sumBfloat16(short[] x, short[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = toBfloat16(Float.intBitsToFloat(x[i] << 16) + Float.intBitsToFloat(y[i] << 16));
        }
    }

    static void productBfloat16(short[] x, short[] y, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = toBfloat16(Float.intBitsToFloat(x[i] << 16) * Float.intBitsToFloat(y[i] << 16));
        }
    }

    static void multiplyBfloat16(short[] x, float factor, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = toBfloat16(Float.intBitsToFloat(x[i] << 16) * factor);
        }
    }

    /** Rounds to nearest even; NaN stays NaN. */
    static short toBfloat16(float value) {
        int bits = Float.floatToRawIntBits(value);
        int nan = (0x7f80_0000 - (bits & 0x7fff_ffff)) >> 31;
        int rounded = (bits + 0x7fff + (bits >>> 16 & 1)) >>> 16;
        // A NaN must neither be rounded into infinity nor carried over into zero.
        return (short) (rounded & ~nan | 0x7fc0 & nan);
    }

    // 8-bit floats: one look-up.

    /** {@code table[x << 8 | y]} is the result. */
    static void combineFloat8(byte[] x, byte[] y, byte[] table, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = table[(x[i] & 0xff) << 8 | y[i] & 0xff];
        }
    }

    /**
     * Multiplies in float16 and rounds to the 8-bit type.
     *
     * @param values the 8-bit type's values
     * @param rounded for each float16 its nearest 8-bit value
     */
    static void multiplyFloat8(byte[] x, float factor, float[] values, byte[] rounded, int count) {
        for (int i = 0; i < count; i++) {
            x[i] = rounded[Float.floatToFloat16(values[x[i] & 0xff] * factor) & 0xffff];
        }
    }
}
