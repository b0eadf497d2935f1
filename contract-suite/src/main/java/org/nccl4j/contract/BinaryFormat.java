package org.nccl4j.contract;

/**
 * The narrow float formats, by their definition: all non-negative finite values in ascending order,
 * so that rounding is a search among neighbours. Slow and plain on purpose: it shares no idea with
 * the conversions that it checks.
 */
final class BinaryFormat {
    static final BinaryFormat FLOAT16 = new BinaryFormat(5, 10, 0x7c00, true, false);
    static final BinaryFormat BFLOAT16 = new BinaryFormat(8, 7, 0x7f80, true, false);
    static final BinaryFormat FLOAT8E4M3 = new BinaryFormat(4, 3, 0x7f, false, true);
    static final BinaryFormat FLOAT8E5M2 = new BinaryFormat(5, 2, 0x7c, true, true);

    private final long signBit;
    private final boolean hasInfinity;
    private final boolean saturates;
    private final double[] magnitudes;
    private final double overflow;

    /** Values per power of two. */
    private final int binade;

    private BinaryFormat(
            int exponentBits,
            int mantissaBits,
            int finitePatterns,
            boolean hasInfinity,
            boolean saturates) {
        this.signBit = 1L << (exponentBits + mantissaBits);
        this.hasInfinity = hasInfinity;
        this.saturates = saturates;
        this.magnitudes = new double[finitePatterns];
        // The smallest step; it doubles with every binade after the first two, which share it.
        double step = 1;
        for (int i = 0; i < (1 << (exponentBits - 1)) - 2 + mantissaBits; i++) {
            step /= 2;
        }
        this.binade = 1 << mantissaBits;
        for (int k = 1; k < finitePatterns; k++) {
            magnitudes[k] = magnitudes[k - 1] + step;
            if (k % binade == 0 && k > binade) {
                step *= 2;
            }
        }
        double last = magnitudes[finitePatterns - 1];
        this.overflow = last + (last - magnitudes[finitePatterns - 2]) / 2;
    }

    double decode(long bits) {
        int magnitude = (int) (bits & (signBit - 1));
        double value =
                magnitude < magnitudes.length
                        ? magnitudes[magnitude]
                        : hasInfinity && magnitude == magnitudes.length
                                ? Double.POSITIVE_INFINITY
                                : Double.NaN;
        return (bits & signBit) == 0 ? value : -value;
    }

    /** Rounds to nearest, ties to even. */
    long encode(double value) {
        if (Double.isNaN(value)) {
            return signBit - 1;
        }
        boolean negative = value < 0 || (value == 0 && 1 / value < 0);
        return (negative ? signBit : 0) | encodeMagnitude(Math.abs(value));
    }

    private int encodeMagnitude(double magnitude) {
        if (magnitude >= overflow) {
            return saturates ? magnitudes.length - 1 : magnitudes.length;
        }
        int low = guess(magnitude);
        while (magnitudes[low] > magnitude) {
            low--;
        }
        while (low + 1 < magnitudes.length && magnitudes[low + 1] <= magnitude) {
            low++;
        }
        int high = low + 1;
        if (high == magnitudes.length) {
            return low;
        }
        double half = (magnitudes[low] + magnitudes[high]) / 2;
        boolean up = magnitude > half || (magnitude == half && low % 2 == 1);
        return up ? high : low;
    }

    /** About where a magnitude stands among the values; the search starts there. */
    private int guess(double magnitude) {
        double normal = magnitudes[binade];
        if (magnitude < normal) {
            return (int) (magnitude / magnitudes[1]);
        }
        int exponent = Math.getExponent(magnitude);
        double fraction = magnitude / Math.scalb(1.0, exponent) - 1;
        int index = (exponent - Math.getExponent(normal) + 1) * binade + (int) (fraction * binade);
        return Math.min(index, magnitudes.length - 1);
    }
}
