package org.nccl4j.bench;

import org.nccl4j.collectives.DataType;

/** The fields of a float type, and values put together from them without any rounding. */
final class FloatLayout {

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
     * A number of units in the last place of an exponent.
     *
     * @param sign 1 for negative, else 0
     * @param units 0 to {@code 2^(mantissaBits + 1) - 1}; 0 gives +0
     * @param exponent the exponent field whose last place is the unit, above mantissaBits so that
     *     one unit is still a normal number
     */
    long units(long sign, long units, long exponent) {
        if (units == 0) {
            return 0;
        }
        int highest = 63 - Long.numberOfLeadingZeros(units);
        long mantissa = (units << (mantissaBits - highest)) & mantissaMask;
        return of(sign, exponent - mantissaBits + highest, mantissa);
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
