package org.nccl4j.cpu;

import java.lang.foreign.Arena;
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
    /** Both arrays together take a quarter of a level-one cache of 32 KiB. */
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

    /** float32 bits, and the memory by which they become floats. */
    private int[] bits;

    private MemorySegment reinterpreted;

    /** Each 8-bit float times a factor. */
    private byte[] multiples;

    private DataType multiplesType;
    private double multiplesFactor;

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
        if (scales && elementType.isFloat() && elementType.sizeBytes() == 1) {
            prepareMultiples();
        }
    }

    private void prepareMultiples() {
        if (multiples == null) {
            multiples = new byte[1 << 8];
        }
        if (multiplesType != type || Double.compare(multiplesFactor, floatFactor) != 0) {
            Float8Tables.of(type).multiples((float) floatFactor, multiples);
            multiplesType = type;
            multiplesFactor = floatFactor;
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

    /** How two elements become one. */
    Fold fold() {
        return fold;
    }

    /** Whether the complete sum is divided. */
    boolean divides() {
        return divisor > 1;
    }

    /**
     * The factor of {@link #scales}: an integer of the type, extended by its sign; of floats the
     * bits of a double.
     */
    long factorBits() {
        int unused = Long.SIZE - type.sizeBytes() * Byte.SIZE;
        return type.isFloat()
                ? Double.doubleToRawLongBits(floatFactor)
                : integerFactor << unused >> unused;
    }

    /**
     * Divides a complete sum where it lies.
     *
     * @param target the sum, and its quotient
     * @param targetOffset bytes
     * @param countElements how many
     */
    void divide(MemorySegment target, long targetOffset, int countElements) {
        run(target, targetOffset, target, targetOffset, null, 0, countElements, true);
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
            boolean arithmetic = fold == Fold.SUM || fold == Fold.PROD;
            switch (type) {
                case INT8, UINT8 -> {
                    if (arithmetic) {
                        bytes(target, to, own, from, incoming, with, count, divides);
                    } else {
                        packed(target, to, own, from, incoming, with, count);
                    }
                }
                case FLOAT8E4M3, FLOAT8E5M2 ->
                        bytes(target, to, own, from, incoming, with, count, false);
                case FLOAT16 -> {
                    if (arithmetic) {
                        shorts(target, to, own, from, incoming, with, count);
                    } else {
                        packed(target, to, own, from, incoming, with, count);
                    }
                }
                case BFLOAT16 -> packed(target, to, own, from, incoming, with, count);
                case INT32, UINT32 -> ints(target, to, own, from, incoming, with, count, divides);
                case INT64, UINT64 -> longs(target, to, own, from, incoming, with, count, divides);
                case FLOAT32 -> {
                    if (arithmetic) {
                        floats(target, to, own, from, incoming, with, count);
                    } else {
                        ints(target, to, own, from, incoming, with, count, false);
                    }
                }
                case FLOAT64 -> {
                    if (arithmetic) {
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
                Loops.multiplyFloat8(x, multiples, count);
            } else {
                Loops.multiply(x, (byte) integerFactor, count);
            }
        }
        if (incoming != null) {
            MemorySegment.copy(incoming, BYTE, with, y, 0, count);
            if (type.isFloat()) {
                Loops.combineFloat8(x, y, Float8Tables.of(type).results(fold), count);
            } else if (fold == Fold.SUM) {
                Loops.sum(x, y, count);
            } else {
                Loops.product(x, y, count);
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
        MemorySegment.copy(own, SHORT, from, x, 0, count);
        if (scales) {
            Loops.multiplyFloat16(x, (float) floatFactor, count);
        }
        if (incoming != null) {
            MemorySegment.copy(incoming, SHORT, with, y, 0, count);
            if (fold == Fold.SUM) {
                Loops.sumFloat16(x, y, count);
            } else {
                Loops.productFloat16(x, y, count);
            }
        }
        MemorySegment.copy(x, 0, target, SHORT, to, count);
    }

    /** Several elements per int, for what has no fast loop on bytes or shorts. */
    private void packed(
            MemorySegment target,
            long to,
            MemorySegment own,
            long from,
            MemorySegment incoming,
            long with,
            int count) {
        makeInts();
        int sizeBytes = count * type.sizeBytes();
        int ints = pack(own, from, xInts, sizeBytes);
        if (scales) {
            bfloat16(null, ints);
        }
        if (incoming != null) {
            int[] x = xInts;
            int[] y = yInts;
            pack(incoming, with, y, sizeBytes);
            int infinity = type == DataType.FLOAT16 ? 0x7c00_0000 : 0x7f80_0000;
            int flip = type == DataType.UINT8 ? 0x8080_8080 : 0;
            switch (fold) {
                case SUM, PROD -> bfloat16(y, ints);
                case MIN -> {
                    if (type.isFloat()) {
                        Loops.minimumPacked16(x, y, infinity, ints);
                    } else {
                        Loops.minimumPacked8(x, y, flip, ints);
                    }
                }
                case MAX -> {
                    if (type.isFloat()) {
                        Loops.maximumPacked16(x, y, infinity, ints);
                    } else {
                        Loops.maximumPacked8(x, y, flip, ints);
                    }
                }
            }
        }
        unpack(xInts, target, to, sizeBytes);
    }

    /** Scales the bfloat16 pairs in xInts, or combines them with others. */
    private void bfloat16(int[] others, int ints) {
        makeFloats();
        if (bits == null) {
            bits = new int[BLOCK_BYTES / Integer.BYTES];
            reinterpreted = Arena.ofAuto().allocate(BLOCK_BYTES, Long.BYTES);
        }
        for (int shift = 16; shift >= 0; shift -= 16) {
            toFloats(xInts, shift, xFloats, ints);
            if (others == null) {
                Loops.multiply(xFloats, (float) floatFactor, ints);
            } else {
                toFloats(others, shift, yFloats, ints);
                if (fold == Fold.SUM) {
                    Loops.sum(xFloats, yFloats, ints);
                } else {
                    Loops.product(xFloats, yFloats, ints);
                }
            }
            MemorySegment.copy(xFloats, 0, reinterpreted, FLOAT, 0, ints);
            MemorySegment.copy(reinterpreted, INT, 0, bits, 0, ints);
            Loops.narrowBfloat16(bits, shift, xInts, ints);
        }
    }

    /** Through memory, because Float.intBitsToFloat has no SIMD code. */
    private void toFloats(int[] packed, int shift, float[] floats, int ints) {
        Loops.widenBfloat16(packed, shift, bits, ints);
        MemorySegment.copy(bits, 0, reinterpreted, INT, 0, ints);
        MemorySegment.copy(reinterpreted, FLOAT, 0, floats, 0, ints);
    }

    /**
     * Copies a range into ints; elements that do not fill the last one go to its lower end.
     *
     * @return the number of ints
     */
    private int pack(MemorySegment from, long offset, int[] ints, int sizeBytes) {
        int whole = sizeBytes / Integer.BYTES;
        MemorySegment.copy(from, INT, offset, ints, 0, whole);
        if (whole * Integer.BYTES == sizeBytes) {
            return whole;
        }
        int bitsPerElement = type.sizeBytes() * Byte.SIZE;
        int last = 0;
        int shift = 0;
        for (int at = whole * Integer.BYTES; at < sizeBytes; at += type.sizeBytes()) {
            int element =
                    type.sizeBytes() == 1
                            ? from.get(BYTE, offset + at) & 0xff
                            : from.get(SHORT, offset + at) & 0xffff;
            last |= element << shift;
            shift += bitsPerElement;
        }
        ints[whole] = last;
        return whole + 1;
    }

    private void unpack(int[] ints, MemorySegment to, long offset, int sizeBytes) {
        int whole = sizeBytes / Integer.BYTES;
        MemorySegment.copy(ints, 0, to, INT, offset, whole);
        int shift = 0;
        for (int at = whole * Integer.BYTES; at < sizeBytes; at += type.sizeBytes()) {
            int element = ints[whole] >>> shift;
            if (type.sizeBytes() == 1) {
                to.set(BYTE, offset + at, (byte) element);
            } else {
                to.set(SHORT, offset + at, (short) element);
            }
            shift += type.sizeBytes() * Byte.SIZE;
        }
    }

    private void makeInts() {
        if (xInts == null) {
            xInts = new int[BLOCK_BYTES / Integer.BYTES];
            yInts = new int[BLOCK_BYTES / Integer.BYTES];
        }
    }

    private void makeFloats() {
        if (xFloats == null) {
            xFloats = new float[BLOCK_BYTES / Float.BYTES];
            yFloats = new float[BLOCK_BYTES / Float.BYTES];
        }
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
        makeInts();
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
        makeFloats();
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
