package org.nccl4j.bench;

/**
 * The source of all random-looking numbers: a 64-bit hash of (seed, index), splitmix64's. All of it
 * is arithmetic that a compiler can do for several elements at a time.
 */
final class Mixer {

    private static final long GOLDEN = 0x9e3779b97f4a7c15L;

    /** The most elements that {@link #fill} makes at a time. */
    static final int BLOCK = 1024;

    /** Multiples of the increment: a loop that converts its index would stay scalar. */
    private static final long[] STEPS = new long[BLOCK];

    static {
        for (int i = 0; i < BLOCK; i++) {
            STEPS[i] = i * GOLDEN;
        }
    }

    private Mixer() {}

    /** Where the sequence of a seed starts. */
    static long start(long seed) {
        return mix(seed * GOLDEN + 0x632be59bd9b4e019L);
    }

    /**
     * Elements {@code firstIndex} and up of the sequence that starts at {@code start}.
     *
     * @param hashes receives them
     * @param count how many, at most {@link #BLOCK}
     */
    static void fill(long start, long firstIndex, long[] hashes, int count) {
        long base = start + firstIndex * GOLDEN;
        for (int i = 0; i < count; i++) {
            hashes[i] = mix(base + STEPS[i]);
        }
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
     * @param hash a number that {@link #fill} gave
     * @param odd a constant per use, odd
     */
    static long derive(long hash, long odd) {
        return hash * odd;
    }

    /** The upper {@code count} bits of a random number, 0 to 63 of them. */
    static long topBits(long random, int count) {
        return (random >>> 1) >>> (63 - count);
    }

    /** A number in {@code 0..bound-1} from a random number; the bound is 1 to 2^31. */
    static long below(long random, long bound) {
        return ((random >>> 32) * bound) >>> 32;
    }

    /** All bits set if a number is 0, else none. */
    static long isZero(long number) {
        return ((number | -number) >>> 63) - 1;
    }
}
