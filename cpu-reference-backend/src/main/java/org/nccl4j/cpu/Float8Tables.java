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
        short[] a = new short[1];
        short[] b = new short[1];
        for (Fold fold : Fold.values()) {
            for (int x = 0; x < values.length; x++) {
                for (int y = 0; y < values.length; y++) {
                    a[0] = Float.floatToFloat16(values[x]);
                    b[0] = Float.floatToFloat16(values[y]);
                    switch (fold) {
                        case SUM -> Loops.sumFloat16(a, b, 1);
                        case PROD -> Loops.productFloat16(a, b, 1);
                        case MIN -> Loops.minimumFloat16(a, b, 0x7c00, 1);
                        case MAX -> Loops.maximumFloat16(a, b, 0x7c00, 1);
                    }
                    results[fold.ordinal()][x << 8 | y] = rounded[a[0] & 0xffff];
                }
            }
        }
    }

    /** The tables of an 8-bit float type, made when first needed. */
    static Float8Tables of(DataType type) {
        return type == DataType.FLOAT8E4M3 ? E4M3.TABLES : E5M2.TABLES;
    }

    byte[] results(Fold fold) {
        return results[fold.ordinal()];
    }

    float[] values() {
        return values;
    }

    byte[] rounded() {
        return rounded;
    }
}
