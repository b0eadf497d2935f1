package org.nccl4j.bench;

import org.nccl4j.collectives.DataType;

/** The fields of a float type, and values put together from them without any rounding. */
final class FloatLayout {

    final int exponentBits;
    final int mantissaBits;

    /** The exponent field of 1.0. */
    final int bias;

    private final long signBit;
    private final long mantissaMask;
    private final long lowestOrdinaryExponent;

    FloatLayout(DataType type) {
        exponentBits = type.exponentBits();
        mantissaBits = type.mantissaBits();
        bias = (1 << (exponentBits - 1)) - 1;
        signBit = 1L << (exponentBits + mantissaBits);
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
        long sign = (random << (63 - mantissaBits)) >>> 63 == 0 ? 0 : signBit;
        return sign | exponent << mantissaBits | (random & mantissaMask);
    }

    /**
     * A value from its fields.
     *
     * @param negative the sign
     * @param exponent the exponent field
     * @param mantissa the mantissa field
     */
    long of(boolean negative, long exponent, long mantissa) {
        return (negative ? signBit : 0) | exponent << mantissaBits | mantissa;
    }

    /**
     * A number of units in the last place of an exponent.
     *
     * @param negative the sign
     * @param units 0 to {@code 2^(mantissaBits + 1) - 1}; 0 gives +0
     * @param exponent the exponent field whose last place is the unit, above mantissaBits so that
     *     one unit is still a normal number
     */
    long units(boolean negative, long units, long exponent) {
        if (units == 0) {
            return 0;
        }
        int highest = 63 - Long.numberOfLeadingZeros(units);
        long mantissa = (units << (mantissaBits - highest)) & mantissaMask;
        return of(negative, exponent - mantissaBits + highest, mantissa);
    }

    /** Orders stored bits as the numbers are ordered; there must be no NaN and no zero. */
    long orderKey(long bits) {
        long magnitude = bits & (signBit - 1);
        return (bits & signBit) == 0 ? magnitude : -magnitude;
    }
}
