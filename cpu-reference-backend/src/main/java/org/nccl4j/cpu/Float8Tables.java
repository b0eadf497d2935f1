package org.nccl4j.cpu;

import org.nccl4j.collectives.DataType;

/**
 * An 8-bit float type as tables. Arithmetic on 8-bit floats happens in float16, whose result is
 * rounded to the nearest 8-bit value, saturating.
 *
 * <p>Thread safety: immutable.
 */
final class Float8Tables {
    /** For each pair of operands ({@code x << 8 | y}) the result, by {@link Fold}. */
    private final byte[][] results = new byte[Fold.values().length][1 << 16];

    /** The value of each bit pattern. */
    private final float[] values = new float[1 << 8];

    /** The nearest 8-bit value of each float16 bit pattern. */
    private final byte[] rounded = new byte[1 << 16];

    private static final class E4M3 {
        static final Float8Tables TABLES = new Float8Tables(DataType.FLOAT8E4M3);
    }

    private static final class E5M2 {
        static final Float8Tables TABLES = new Float8Tables(DataType.FLOAT8E5M2);
    }

    private Float8Tables(DataType type) {
        for (int x = 0; x < values.length; x++) {
            values[x] = (float) type.valueOf(x);
        }
        for (int half = 0; half < rounded.length; half++) {
            rounded[half] = (byte) type.bitsOf((double) Float.float16ToFloat((short) half));
        }
        for (Fold fold : Fold.values()) {
            byte[] table = results[fold.ordinal()];
            for (int pair = 0; pair < table.length; pair++) {
                float x = values[pair >> 8];
                float y = values[pair & 0xff];
                table[pair] = round(combine(fold, x, y));
            }
        }
    }

    private static float combine(Fold fold, float x, float y) {
        return switch (fold) {
            case SUM -> x + y;
            case PROD -> x * y;
            case MIN -> Float.isNaN(x) ? y : Float.isNaN(y) ? x : Math.min(x, y);
            case MAX -> Float.isNaN(x) ? y : Float.isNaN(y) ? x : Math.max(x, y);
        };
    }

    /** To float16, then to the 8-bit type. */
    private byte round(float value) {
        return rounded[Float.floatToFloat16(value) & 0xffff];
    }

    /** The tables of an 8-bit float type, made when first needed. */
    static Float8Tables of(DataType type) {
        return type == DataType.FLOAT8E4M3 ? E4M3.TABLES : E5M2.TABLES;
    }

    byte[] results(Fold fold) {
        return results[fold.ordinal()];
    }

    /** Fills a table with each 8-bit value's product with a factor. */
    void multiples(float factor, byte[] table) {
        for (int x = 0; x < values.length; x++) {
            table[x] = round(values[x] * factor);
        }
    }
}
