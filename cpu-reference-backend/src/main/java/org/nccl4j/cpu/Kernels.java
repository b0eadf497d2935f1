package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * One participant's reduction of one operation: the participant's own elements, scaled if the
 * reduction asks for it, combined with what comes in, divided at the end if the reduction asks for
 * that. Works through two small arrays, 4 KiB each: elements are copied there, the loops of {@link
 * Loops} run on the arrays, the result is copied out. The copies are cheap, alignment does not
 * matter, and the destination may be exactly one of the sources.
 *
 * <p>Thread safety: one thread at a time.
 */
final class Kernels {
    /** Half of a small level-one cache for both arrays. */
    private static final int BLOCK_BYTES = 4096;

    private static final ValueLayout.OfByte BYTE = ValueLayout.JAVA_BYTE;
    private static final ValueLayout.OfShort SHORT = ValueLayout.JAVA_SHORT_UNALIGNED;
    private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED;
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;
    private static final ValueLayout.OfFloat FLOAT = ValueLayout.JAVA_FLOAT_UNALIGNED;
    private static final ValueLayout.OfDouble DOUBLE = ValueLayout.JAVA_DOUBLE_UNALIGNED;

    private DataType type;
    private Fold fold;
    private boolean scales;
    private long integerFactor;
    private double floatFactor;
    private int divisor;

    // Made when first needed: a participant rarely sees more than one or two element types.
    private byte[] xBytes;
    private byte[] yBytes;
    private short[] xShorts;
    private short[] yShorts;
    private int[] xInts;
    private int[] yInts;
    private long[] xLongs;
    private long[] yLongs;
    private float[] xFloats;
    private float[] yFloats;
    private double[] xDoubles;
    private double[] yDoubles;

    /**
     * Sets up one reduction.
     *
     * @param elementType element type
     * @param reduction the reduction as this participant gave it
     * @param ranks how many participants it spans
     */
    void begin(DataType elementType, ReduceOp reduction, int ranks) {
        type = elementType;
        scales = false;
        divisor = 1;
        switch (reduction) {
            case ReduceOp.Predefined.SUM -> fold = Fold.SUM;
            case ReduceOp.Predefined.PROD -> fold = Fold.PROD;
            case ReduceOp.Predefined.MIN -> fold = Fold.MIN;
            case ReduceOp.Predefined.MAX -> fold = Fold.MAX;
            case ReduceOp.Predefined.AVG -> {
                fold = Fold.SUM;
                if (!elementType.isFloat()) {
                    divisor = ranks;
                } else if (ranks > 1) {
                    scales = true;
                    floatFactor = inverse(elementType, ranks);
                }
            }
            case ReduceOp.PreMulSum(DataType scalarType, long bits) -> {
                fold = Fold.SUM;
                scales = true;
                integerFactor = bits;
                floatFactor = scalarType.isFloat() ? scalarType.valueOf(bits) : 0;
            }
        }
    }

    /** 1/n in the type; for the 8-bit floats in float16, where their arithmetic happens. */
    private static double inverse(DataType type, int ranks) {
        DataType arithmetic = type.sizeBytes() == 1 ? DataType.FLOAT16 : type;
        return arithmetic.valueOf(arithmetic.bitsOf(1.0 / ranks));
    }

    /**
     * Whether this participant's own elements are scaled before they are combined. A range that is
     * sent before anything was added to it must then be scaled first.
     */
    boolean scales() {
        return scales;
    }

    /**
     * {@code target[i] = own[i]}, scaled.
     *
     * @param target where to write
     * @param targetOffset bytes
     * @param own this participant's elements
     * @param ownOffset bytes
     * @param countElements how many
     */
    void scale(
            MemorySegment target,
            long targetOffset,
            MemorySegment own,
            long ownOffset,
            int countElements) {
        run(target, targetOffset, own, ownOffset, null, 0, countElements, false);
    }

    /**
     * {@code target[i] = own[i] + incoming[i]} for a sum, likewise for the others; own is scaled
     * first, incoming never: it already is.
     *
     * @param target where to write; may start exactly where {@code own} does
     * @param targetOffset bytes
     * @param own this participant's elements
     * @param ownOffset bytes
     * @param incoming what other participants' elements were combined to
     * @param incomingOffset bytes
     * @param countElements how many
     * @param last whether this completes the result
     */
    void combine(
            MemorySegment target,
            long targetOffset,
            MemorySegment own,
            long ownOffset,
            MemorySegment incoming,
            long incomingOffset,
            int countElements,
            boolean last) {
        run(
                target,
                targetOffset,
                own,
                ownOffset,
                incoming,
                incomingOffset,
                countElements,
                last && divisor > 1);
    }

    private void run(
            MemorySegment target,
            long targetOffset,
            MemorySegment own,
            long ownOffset,
            MemorySegment incoming,
            long incomingOffset,
            int countElements,
            boolean divides) {
        int block = BLOCK_BYTES / type.sizeBytes();
        for (int done = 0; done < countElements; done += block) {
            int count = Math.min(block, countElements - done);
            long skip = (long) done * type.sizeBytes();
            long from = ownOffset + skip;
            long with = incomingOffset + skip;
            long to = targetOffset + skip;
            switch (type) {
                case INT8, UINT8, FLOAT8E4M3, FLOAT8E5M2 ->
                        bytes(target, to, own, from, incoming, with, count, divides);
                case FLOAT16, BFLOAT16 -> shorts(target, to, own, from, incoming, with, count);
                case INT32, UINT32 -> ints(target, to, own, from, incoming, with, count, divides);
                case INT64, UINT64 -> longs(target, to, own, from, incoming, with, count, divides);
                case FLOAT32 -> {
                    if (fold == Fold.SUM || fold == Fold.PROD) {
                        floats(target, to, own, from, incoming, with, count);
                    } else {
                        ints(target, to, own, from, incoming, with, count, false);
                    }
                }
                case FLOAT64 -> {
                    if (fold == Fold.SUM || fold == Fold.PROD) {
                        doubles(target, to, own, from, incoming, with, count);
                    } else {
                        longs(target, to, own, from, incoming, with, count, false);
                    }
                }
            }
        }
    }

    private void bytes(
            MemorySegment target,
            long to,
            MemorySegment own,
            long from,
            MemorySegment incoming,
            long with,
            int count,
            boolean divides) {
        if (xBytes == null) {
            xBytes = new byte[BLOCK_BYTES];
            yBytes = new byte[BLOCK_BYTES];
        }
        byte[] x = xBytes;
        byte[] y = yBytes;
        MemorySegment.copy(own, BYTE, from, x, 0, count);
        if (scales) {
            if (type.isFloat()) {
                Float8Tables tables = Float8Tables.of(type);
                Loops.multiplyFloat8(
                        x, (float) floatFactor, tables.values(), tables.rounded(), count);
            } else {
                Loops.multiply(x, (byte) integerFactor, count);
            }
        }
        if (incoming != null) {
            MemorySegment.copy(incoming, BYTE, with, y, 0, count);
            if (type.isFloat()) {
                Loops.combineFloat8(x, y, Float8Tables.of(type).results(fold), count);
            } else {
                boolean signed = type.isSigned();
                switch (fold) {
                    case SUM -> Loops.sum(x, y, count);
                    case PROD -> Loops.product(x, y, count);
                    case MIN -> {
                        if (signed) {
                            Loops.minimum(x, y, count);
                        } else {
                            Loops.minimumUnsigned(x, y, count);
                        }
                    }
                    case MAX -> {
                        if (signed) {
                            Loops.maximum(x, y, count);
                        } else {
                            Loops.maximumUnsigned(x, y, count);
                        }
                    }
                }
            }
        }
        if (divides) {
            if (type.isSigned()) {
                Loops.divide(x, divisor, count);
            } else {
                Loops.divideUnsigned(x, divisor, count);
            }
        }
        MemorySegment.copy(x, 0, target, BYTE, to, count);
    }

    private void shorts(
            MemorySegment target,
            long to,
            MemorySegment own,
            long from,
            MemorySegment incoming,
            long with,
            int count) {
        if (xShorts == null) {
            xShorts = new short[BLOCK_BYTES / Short.BYTES];
            yShorts = new short[BLOCK_BYTES / Short.BYTES];
        }
        short[] x = xShorts;
        short[] y = yShorts;
        boolean half = type == DataType.FLOAT16;
        int infinity = half ? 0x7c00 : 0x7f80;
        MemorySegment.copy(own, SHORT, from, x, 0, count);
        if (scales) {
            if (half) {
                Loops.multiplyFloat16(x, (float) floatFactor, count);
            } else {
                Loops.multiplyBfloat16(x, (float) floatFactor, count);
            }
        }
        if (incoming != null) {
            MemorySegment.copy(incoming, SHORT, with, y, 0, count);
            switch (fold) {
                case SUM -> {
                    if (half) {
                        Loops.sumFloat16(x, y, count);
                    } else {
                        Loops.sumBfloat16(x, y, count);
                    }
                }
                case PROD -> {
                    if (half) {
                        Loops.productFloat16(x, y, count);
                    } else {
                        Loops.productBfloat16(x, y, count);
                    }
                }
                case MIN -> Loops.minimumFloat16(x, y, infinity, count);
                case MAX -> Loops.maximumFloat16(x, y, infinity, count);
            }
        }
        MemorySegment.copy(x, 0, target, SHORT, to, count);
    }

    private void ints(
            MemorySegment target,
            long to,
            MemorySegment own,
            long from,
            MemorySegment incoming,
            long with,
            int count,
            boolean divides) {
        if (xInts == null) {
            xInts = new int[BLOCK_BYTES / Integer.BYTES];
            yInts = new int[BLOCK_BYTES / Integer.BYTES];
        }
        int[] x = xInts;
        int[] y = yInts;
        MemorySegment.copy(own, INT, from, x, 0, count);
        if (scales) {
            Loops.multiply(x, (int) integerFactor, count);
        }
        if (incoming != null) {
            MemorySegment.copy(incoming, INT, with, y, 0, count);
            switch (fold) {
                case SUM -> Loops.sum(x, y, count);
                case PROD -> Loops.product(x, y, count);
                case MIN -> {
                    if (type == DataType.FLOAT32) {
                        Loops.minimumFloat32(x, y, count);
                    } else if (type == DataType.INT32) {
                        Loops.minimum(x, y, count);
                    } else {
                        Loops.minimumUnsigned(x, y, count);
                    }
                }
                case MAX -> {
                    if (type == DataType.FLOAT32) {
                        Loops.maximumFloat32(x, y, count);
                    } else if (type == DataType.INT32) {
                        Loops.maximum(x, y, count);
                    } else {
                        Loops.maximumUnsigned(x, y, count);
                    }
                }
            }
        }
        if (divides) {
            if (type.isSigned()) {
                Loops.divide(x, divisor, count);
            } else {
                Loops.divideUnsigned(x, divisor, count);
            }
        }
        MemorySegment.copy(x, 0, target, INT, to, count);
    }

    private void longs(
            MemorySegment target,
            long to,
            MemorySegment own,
            long from,
            MemorySegment incoming,
            long with,
            int count,
            boolean divides) {
        if (xLongs == null) {
            xLongs = new long[BLOCK_BYTES / Long.BYTES];
            yLongs = new long[BLOCK_BYTES / Long.BYTES];
        }
        long[] x = xLongs;
        long[] y = yLongs;
        MemorySegment.copy(own, LONG, from, x, 0, count);
        if (scales) {
            Loops.multiply(x, integerFactor, count);
        }
        if (incoming != null) {
            MemorySegment.copy(incoming, LONG, with, y, 0, count);
            switch (fold) {
                case SUM -> Loops.sum(x, y, count);
                case PROD -> Loops.product(x, y, count);
                case MIN -> {
                    if (type == DataType.FLOAT64) {
                        Loops.minimumFloat64(x, y, count);
                    } else if (type == DataType.INT64) {
                        Loops.minimum(x, y, count);
                    } else {
                        Loops.minimumUnsigned(x, y, count);
                    }
                }
                case MAX -> {
                    if (type == DataType.FLOAT64) {
                        Loops.maximumFloat64(x, y, count);
                    } else if (type == DataType.INT64) {
                        Loops.maximum(x, y, count);
                    } else {
                        Loops.maximumUnsigned(x, y, count);
                    }
                }
            }
        }
        if (divides) {
            if (type.isSigned()) {
                Loops.divide(x, divisor, count);
            } else {
                Loops.divideUnsigned(x, divisor, count);
            }
        }
        MemorySegment.copy(x, 0, target, LONG, to, count);
    }

    private void floats(
            MemorySegment target,
            long to,
            MemorySegment own,
            long from,
            MemorySegment incoming,
            long with,
            int count) {
        if (xFloats == null) {
            xFloats = new float[BLOCK_BYTES / Float.BYTES];
            yFloats = new float[BLOCK_BYTES / Float.BYTES];
        }
        float[] x = xFloats;
        float[] y = yFloats;
        MemorySegment.copy(own, FLOAT, from, x, 0, count);
        if (scales) {
            Loops.multiply(x, (float) floatFactor, count);
        }
        if (incoming != null) {
            MemorySegment.copy(incoming, FLOAT, with, y, 0, count);
            if (fold == Fold.SUM) {
                Loops.sum(x, y, count);
            } else {
                Loops.product(x, y, count);
            }
        }
        MemorySegment.copy(x, 0, target, FLOAT, to, count);
    }

    private void doubles(
            MemorySegment target,
            long to,
            MemorySegment own,
            long from,
            MemorySegment incoming,
            long with,
            int count) {
        if (xDoubles == null) {
            xDoubles = new double[BLOCK_BYTES / Double.BYTES];
            yDoubles = new double[BLOCK_BYTES / Double.BYTES];
        }
        double[] x = xDoubles;
        double[] y = yDoubles;
        MemorySegment.copy(own, DOUBLE, from, x, 0, count);
        if (scales) {
            Loops.multiply(x, floatFactor, count);
        }
        if (incoming != null) {
            MemorySegment.copy(incoming, DOUBLE, with, y, 0, count);
            if (fold == Fold.SUM) {
                Loops.sum(x, y, count);
            } else {
                Loops.product(x, y, count);
            }
        }
        MemorySegment.copy(x, 0, target, DOUBLE, to, count);
    }
}
