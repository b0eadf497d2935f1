package org.nccl4j.bench;

/** The source of all random-looking numbers: a 64-bit hash of (seed, index), splitmix64's. */
final class Mixer {

    private static final long GOLDEN = 0x9e3779b97f4a7c15L;

    private Mixer() {}

    /** Where the sequence of a seed starts. */
    static long start(long seed) {
        return mix(seed * GOLDEN + 0x632be59bd9b4e019L);
    }

    /** Element {@code index} of the sequence that starts at {@code start}. */
    static long at(long start, long index) {
        return mix(start + index * GOLDEN);
    }

    /** A bijection of 64 bits in which every bit of the input moves about half of the output's. */
    static long mix(long bits) {
        long z = bits;
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return z ^ (z >>> 31);
    }

    /**
     * A further number from a hash, cheaper than mixing again: good in its upper bits.
     *
     * @param hash a number that {@link #at} gave
     * @param odd a constant per use, odd
     */
    static long derive(long hash, long odd) {
        return hash * odd;
    }

    /** The upper {@code count} bits of a random number, 0 to 63 of them. */
    static long topBits(long random, int count) {
        return (random >>> 1) >>> (63 - count);
    }

    /** A number in {@code 0..bound-1} from a random number; the bound is positive. */
    static long below(long random, long bound) {
        return Math.multiplyHigh(random >>> 1, bound << 1);
    }
}
