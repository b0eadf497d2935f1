package org.nccl4j.bench;

import java.lang.foreign.MemorySegment;
import org.nccl4j.collectives.DataType;

/** The fields of a float type, and values put together from them without any rounding. */
final class FloatLayout {

    private static final int DOUBLE_MANTISSA_BITS = 52;
    private static final int DOUBLE_BIAS = 1023;

    final int exponentBits;
    final int mantissaBits;

    /** The exponent field of 1.0. */
    final int bias;

    private final int signShift;
    private final long magnitudeMask;
    private final long mantissaMask;
    private final long lowestOrdinaryExponent;

    FloatLayout(DataType type) {
        exponentBits = type.exponentBits();
        mantissaBits = type.mantissaBits();
        bias = (1 << (exponentBits - 1)) - 1;
        signShift = exponentBits + mantissaBits;
        magnitudeMask = (1L << signShift) - 1;
        mantissaMask = (1L << mantissaBits) - 1;
        lowestOrdinaryExponent = 1L << (exponentBits - 2);
    }

    /**
     * A value whose exponent is in the middle half of the range.
     *
     * @param random 64 random bits
     */
    long ordinary(long random) {
        long exponent = lowestOrdinaryExponent + Mixer.topBits(random, exponentBits - 1);
        // The mantissa takes the low bits and the sign the one above them: double uses all 64.
        long sign = random >>> mantissaBits & 1;
        return of(sign, exponent, random & mantissaMask);
    }

    /**
     * A value from its fields.
     *
     * @param sign 1 for negative, else 0
     * @param exponent the exponent field
     * @param mantissa the mantissa field
     */
    long of(long sign, long exponent, long mantissa) {
        return sign << signShift | exponent << mantissaBits | mantissa;
    }

    /**
     * Values that are integers times the last place of an exponent, converted by the hardware's
     * exact conversion to double, whose fields are then moved to where this type has them.
     *
     * @param units integers of magnitude 0 to {@code 2^(mantissaBits + 1) - 1}; 0 gives +0;
     *     replaced by the values' bits
     * @param exponents the exponent fields whose last places are the units, all above mantissaBits,
     *     so that one unit is still a normal number
     * @param count how many
     */
    void ofUnits(long[] units, long[] exponents, int count) {
        double[] doubles = new double[count];
        for (int i = 0; i < count; i++) {
            doubles[i] = (double) units[i];
        }
        // A loop around doubleToRawLongBits would stay scalar.
        MemorySegment.copy(
                MemorySegment.ofArray(doubles), 0, MemorySegment.ofArray(units), 0, 8L * count);
        int shift = DOUBLE_MANTISSA_BITS - mantissaBits;
        for (int i = 0; i < count; i++) {
            long magnitude = units[i] & Long.MAX_VALUE;
            long scale = exponents[i] - mantissaBits - DOUBLE_BIAS;
            long bits = (magnitude >>> shift) + (scale << mantissaBits);
            long sign = units[i] >>> 63;
            units[i] = sign << signShift | bits & ~Mixer.isZero(magnitude);
        }
    }

    /** A number that orders as the value does; the value must be neither NaN nor zero. */
    long orderKey(long bits) {
        long negative = -(bits >>> signShift & 1);
        return ((bits & magnitudeMask) ^ negative) - negative;
    }

    /** The value of an {@link #orderKey}. */
    long ofOrderKey(long key) {
        return of(key >>> 63, 0, Math.abs(key));
    }
}
