package org.nccl4j.contract;

/** A repeatable source of random numbers: the same seed gives the same numbers everywhere. */
final class Mix {
    private long state;

    Mix(long seed) {
        this.state = seed;
    }

    /** A 64-bit hash in which each bit of the input flips half of the output (splitmix64). */
    static long hash(long value) {
        long z = value + 0x9e3779b97f4a7c15L;
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return z ^ (z >>> 31);
    }

    static long hash(long seed, long value) {
        return hash(hash(seed) ^ value * 0xd1342543de82ef95L);
    }

    long next() {
        state += 0x9e3779b97f4a7c15L;
        return hash(state);
    }

    /** A number from 0 to {@code bound - 1}. */
    long next(long bound) {
        return Long.remainderUnsigned(next(), bound);
    }

    /** A number from 0 to {@code bound - 1}. */
    int next(int bound) {
        return (int) next((long) bound);
    }

    boolean nextBoolean() {
        return next() < 0;
    }
}
