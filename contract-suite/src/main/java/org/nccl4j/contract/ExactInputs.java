package org.nccl4j.contract;

import org.nccl4j.collectives.DataType;

/**
 * Inputs whose reduction has one right answer, whatever the order in which ranks are combined, so
 * that results can be compared bit for bit. Floats are never NaN, infinite or subnormal; with one
 * rank every reduction that must return its input gets any value.
 */
final class ExactInputs {
    private final DataType type;
    private final Arithmetic arithmetic;
    private final Reduction reduction;
    private final int ranks;
    private final long seed;
    private final int[] permutation;
    private final long[] shares;
    private final long[] scalars;

    ExactInputs(DataType type, Reduction reduction, int ranks, long seed) {
        this.type = type;
        this.arithmetic = Arithmetic.of(type);
        this.reduction = reduction;
        this.ranks = ranks;
        this.seed = seed;
        this.permutation = new int[ranks];
        this.shares = new long[ranks];
        this.scalars = new long[ranks];
        for (int r = 0; r < ranks; r++) {
            scalars[r] = scalar(r);
        }
    }

    /** The factor of each rank of a pre-multiplied sum. */
    long[] scalars() {
        return scalars.clone();
    }

    private long scalar(int rank) {
        if (arithmetic instanceof Arithmetic.Integers) {
            return arithmetic.ofInteger(Mix.hash(seed ^ 0x5ca1a, rank));
        }
        return arithmetic.ofInteger(ranks == 1 || rank % 2 == 1 ? 2 : 1);
    }

    /** An element that is only copied. */
    static long copied(DataType type, long seed, long index) {
        return copied(Arithmetic.of(type), Mix.hash(seed, index));
    }

    private static long copied(Arithmetic arithmetic, long random) {
        return switch (arithmetic) {
            case Arithmetic.Integers integers -> integers.ofInteger(random);
            case Arithmetic.Floats floats -> {
                // The middle half of the exponents: far from zero, subnormals and infinity.
                int e = floats.exponentBits();
                int m = floats.mantissaBits();
                long exponent = (1L << (e - 2)) + (random >>> 1 & ((1L << (e - 1)) - 1));
                long mantissa = Mix.hash(random) & ((1L << m) - 1);
                yield (random & 1) << (e + m) | exponent << m | mantissa;
            }
        };
    }

    /** Element {@code index} of every rank. */
    void element(long index, long[] inputByRank) {
        Mix random = new Mix(Mix.hash(seed, index));
        switch (arithmetic) {
            case Arithmetic.Integers integers -> {
                for (int r = 0; r < ranks; r++) {
                    long value = integers.ofInteger(random.next());
                    inputByRank[r] = reduction == Reduction.PROD && value == 0 ? 1 : value;
                }
            }
            case Arithmetic.Floats floats -> floats(floats, random, inputByRank);
        }
    }

    private void floats(Arithmetic.Floats floats, Mix random, long[] inputByRank) {
        boolean copies =
                (ranks == 1 && reduction != Reduction.PRE_MUL_SUM)
                        || reduction == Reduction.MIN
                        || reduction == Reduction.MAX;
        if (copies) {
            for (int r = 0; r < ranks; r++) {
                inputByRank[r] = copied(floats, random.next());
            }
            return;
        }
        permute(random);
        switch (reduction) {
            case SUM -> sum(floats, random, inputByRank);
            case PROD -> product(floats, random, inputByRank);
            case AVG -> average(floats, random, inputByRank);
            case PRE_MUL_SUM -> preMultipliedSum(floats, random, inputByRank);
            case MIN, MAX -> throw new IllegalStateException(type + " " + reduction);
        }
    }

    /**
     * Two groups of opposite sign, each a handful of units in the last place of one common exponent
     * whose total the mantissa can still count: no partial sum can leave that range.
     */
    private void sum(Arithmetic.Floats floats, Mix random, long[] inputByRank) {
        double unit = unit(floats, random);
        boolean firstIsNegative = random.nextBoolean();
        long most = (1L << (floats.mantissaBits() + 1)) - 1;
        int first = (ranks + 1) / 2;
        long firstTotal = most - random.next(most / 2 + 1);
        long secondTotal;
        do {
            secondTotal = most - random.next(most / 2 + 1);
        } while (secondTotal == firstTotal);
        share(random, firstTotal, 0, first);
        share(random, secondTotal, first, ranks);
        for (int i = 0; i < ranks; i++) {
            boolean negative = (i < first) == firstIsNegative;
            inputByRank[permutation[i]] = scaled(floats, shares[i], unit, negative);
        }
    }

    /** Powers of two whose exponents add up within range; one rank brings all the mantissa bits. */
    private void product(Arithmetic.Floats floats, Mix random, long[] inputByRank) {
        long most = (1L << (floats.exponentBits() - 1)) - 1;
        share(random, most - random.next(most / 2 + 1), 0, ranks);
        int m = floats.mantissaBits();
        long mantissa = (1L << m) + 1 + random.next((1L << m) - 1);
        int bearer = random.next(ranks);
        for (int i = 0; i < ranks; i++) {
            long significand = i == bearer ? mantissa : 1L << m;
            double unit = Math.scalb(1.0, (int) shares[i] - m);
            inputByRank[permutation[i]] = scaled(floats, significand, unit, i % 2 == 1);
        }
    }

    /** Two inputs that are not zero: one addition, whose order does not matter. */
    private void average(Arithmetic.Floats floats, Mix random, long[] inputByRank) {
        for (int i = 0; i < ranks; i++) {
            long integer = i < 2 ? 1 + random.next(1L << floats.mantissaBits()) : 0;
            inputByRank[permutation[i]] = scaled(floats, integer, 1, false);
        }
    }

    /** One sign, and room for the doubling that odd ranks bring. */
    private void preMultipliedSum(Arithmetic.Floats floats, Mix random, long[] inputByRank) {
        double unit = unit(floats, random);
        boolean negative = random.nextBoolean();
        long most = (1L << (floats.mantissaBits() + 1)) - 1;
        int even = (ranks + 1) / 2;
        share(random, Math.max(1, most / 2 - random.next(most / 4 + 1)), 0, even);
        share(random, Math.max(1, most / 4 - random.next(most / 8 + 1)), even, ranks);
        for (int i = 0; i < ranks; i++) {
            int rank = i < even ? 2 * i : 2 * (i - even) + 1;
            inputByRank[rank] = scaled(floats, shares[i], unit, negative);
        }
    }

    /** One unit in the last place of a random exponent that leaves a single unit normal. */
    private static double unit(Arithmetic.Floats floats, Mix random) {
        int e = floats.exponentBits();
        int m = floats.mantissaBits();
        int lowest = 1 + m;
        int highest = (1 << e) - 2;
        int exponent = lowest + random.next(highest - lowest + 1);
        return Math.scalb(1.0, exponent - ((1 << (e - 1)) - 1) - m);
    }

    private static long scaled(
            Arithmetic.Floats floats, long integer, double unit, boolean negative) {
        double magnitude = (double) integer * unit;
        return floats.encode(negative && integer != 0 ? -magnitude : magnitude);
    }

    /** Cuts a total into random parts at places from (inclusive) to to (exclusive). */
    private void share(Mix random, long total, int from, int to) {
        long left = total;
        for (int i = from; i < to; i++) {
            int members = to - i;
            // Twice the fair share at most, so that those who come last are not left with nothing;
            // with more members than units most get none, which is fine.
            long bound = Math.min(left, Math.max(1, 2 * (left / members)));
            shares[i] = members == 1 ? left : random.next(bound + 1);
            left -= shares[i];
        }
    }

    private void permute(Mix random) {
        for (int i = 0; i < ranks; i++) {
            int j = random.next(i + 1);
            permutation[i] = permutation[j];
            permutation[j] = i;
        }
    }
}
