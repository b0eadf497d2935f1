package org.nccl4j.bench;

import org.nccl4j.collectives.DataType;

/**
 * Inputs of a reduction over n ranks, and its result. Inputs are such that every order and tree of
 * the reduction gives the same bits (float averages: within two units in the last place), so that a
 * check can be exact without knowing the algorithm.
 *
 * <p>Thread safety: immutable.
 */
abstract sealed class ReductionData {

    private static final long ODD_1 = 0xd1342543de82ef95L;
    private static final long ODD_2 = 0xaf251af3b0f025b5L;
    private static final long ODD_3 = 0x9fb21c651e98df25L;
    private static final long ODD_4 = 0xc2b2ae3d27d4eb4fL;

    /** Elements that a rank contributes. */
    abstract Content input(int rank);

    /** Elements that come out. */
    abstract Content result();

    /**
     * The data of one reduction.
     *
     * @param seed chooses the data
     */
    static ReductionData of(DataType type, RedOp op, int ranks, long seed) {
        if (ranks == 1) {
            return new Copied(Content.copyPattern(type, seed));
        }
        long start = Mixer.start(seed);
        if (!type.isFloat()) {
            return new OfIntegers(type, op, ranks, start);
        }
        FloatLayout layout = new FloatLayout(type);
        return switch (op) {
            case SUM -> new FloatSum(layout, ranks, start);
            case MULSUM -> new FloatScaledSum(layout, ranks, start);
            case PROD -> new FloatProduct(layout, ranks, start);
            case MAX, MIN -> new FloatExtremum(layout, op == RedOp.MAX, ranks, start);
            case AVG -> new FloatAverage(type, layout, ranks, start);
        };
    }

    /** How many units in the last place a result may be off. */
    static long toleranceUnits(DataType type, RedOp op) {
        return type.isFloat() && op == RedOp.AVG ? 2 : 0;
    }

    /** One rank: nothing to reduce. */
    private static final class Copied extends ReductionData {
        private final Content content;

        Copied(Content content) {
            this.content = content;
        }

        @Override
        Content input(int rank) {
            return content;
        }

        @Override
        Content result() {
            return content;
        }
    }

    /** Any bits; the result is computed with wrap-around. */
    private static final class OfIntegers extends ReductionData {
        private final RedOp op;
        private final int ranks;
        private final long start;
        private final int unusedBits;
        private final boolean signed;

        OfIntegers(DataType type, RedOp op, int ranks, long start) {
            this.op = op;
            this.ranks = ranks;
            this.start = start;
            this.unusedBits = 64 - 8 * type.sizeBytes();
            this.signed = type.isSigned();
        }

        @Override
        Content input(int rank) {
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    bits[i] = value(Mixer.at(start, firstIndex + i), rank);
                }
            };
        }

        @Override
        Content result() {
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    long value = scaled(value(hash, 0), 0);
                    for (int rank = 1; rank < ranks; rank++) {
                        value = combine(value, scaled(value(hash, rank), rank));
                    }
                    bits[i] = op == RedOp.AVG ? dividedByRanks(wrapped(value)) : value;
                }
            };
        }

        private long value(long hash, int rank) {
            long value = wrapped(Mixer.mix(hash + rank));
            return op == RedOp.PROD && value == 0 ? 1 : value;
        }

        private long scaled(long value, int rank) {
            return op == RedOp.MULSUM ? value * RedOp.mulSumScalar(rank) : value;
        }

        private long combine(long a, long b) {
            return switch (op) {
                case SUM, AVG, MULSUM -> a + b;
                case PROD -> a * b;
                case MAX -> compare(a, b) >= 0 ? a : b;
                case MIN -> compare(a, b) <= 0 ? a : b;
            };
        }

        private int compare(long a, long b) {
            return signed ? Long.compare(a, b) : Long.compareUnsigned(a, b);
        }

        private long dividedByRanks(long sum) {
            return signed ? sum / ranks : Long.divideUnsigned(sum, ranks);
        }

        /** The value of the low bits as a number of the type. */
        private long wrapped(long value) {
            long high = value << unusedBits;
            return signed ? high >> unusedBits : high >>> unusedBits;
        }
    }

    /**
     * Ranks in two groups of opposite sign. In each group the magnitudes are integers that add up
     * to a total below 2^(mantissaBits + 1), all in the same unit: every partial sum is such an
     * integer, hence exact. The totals differ, so the result is never zero.
     */
    private static final class FloatSum extends ReductionData {
        private final FloatLayout layout;
        private final int ranks;
        private final long start;
        private final long halfTotal;
        private final long exponents;
        private final Split[] splits;

        FloatSum(FloatLayout layout, int ranks, long start) {
            this.layout = layout;
            this.ranks = ranks;
            this.start = start;
            this.halfTotal = 1L << layout.mantissaBits;
            this.exponents = exponentsOf(layout);
            this.splits = new Split[] {new Split((ranks + 1) / 2), new Split(ranks / 2)};
        }

        @Override
        Content input(int rank) {
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    int place = place(hash, rank, ranks);
                    int group = place & 1;
                    long total = group == 0 ? positive(hash) : negative(hash);
                    long share = splits[group].share(total, hash, place >> 1);
                    bits[i] = layout.units(isNegative(hash) ^ (group == 1), share, exponent(hash));
                }
            };
        }

        @Override
        Content result() {
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    long sum = positive(hash) - negative(hash);
                    boolean flipped = isNegative(hash) ^ (sum < 0);
                    bits[i] = layout.units(flipped, Math.abs(sum), exponent(hash));
                }
            };
        }

        private long positive(long hash) {
            return halfTotal + Mixer.topBits(hash, layout.mantissaBits);
        }

        private long negative(long hash) {
            long difference = Mixer.topBits(Mixer.derive(hash, ODD_1), layout.mantissaBits);
            return positive(hash) ^ Math.max(1, difference);
        }

        private long exponent(long hash) {
            return 1 + layout.mantissaBits + Mixer.below(Mixer.derive(hash, ODD_2), exponents);
        }

        private static boolean isNegative(long hash) {
            return (hash & 1) != 0;
        }
    }

    /**
     * Even ranks' integers count once, odd ranks' twice; all of one sign and in one unit, with a
     * weighted total below 2^(mantissaBits + 1).
     */
    private static final class FloatScaledSum extends ReductionData {
        private final FloatLayout layout;
        private final long start;
        private final long exponents;
        private final Split[] splits;

        FloatScaledSum(FloatLayout layout, int ranks, long start) {
            this.layout = layout;
            this.start = start;
            this.exponents = exponentsOf(layout);
            this.splits = new Split[] {new Split((ranks + 1) / 2), new Split(ranks / 2)};
        }

        @Override
        Content input(int rank) {
            int group = rank & 1;
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    long share = splits[group].share(total(hash, group), hash, rank >> 1);
                    bits[i] = layout.units((hash & 1) != 0, share, exponent(hash));
                }
            };
        }

        @Override
        Content result() {
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    long sum = total(hash, 0) + RedOp.mulSumScalar(1) * total(hash, 1);
                    bits[i] = layout.units((hash & 1) != 0, sum, exponent(hash));
                }
            };
        }

        /** The integers of a group's ranks together: the odd group has half as many bits. */
        private long total(long hash, int group) {
            int bits = layout.mantissaBits - 1 - group;
            return (1L << bits) + Mixer.topBits(Mixer.derive(hash, ODD_1), bits);
        }

        private long exponent(long hash) {
            return 1 + layout.mantissaBits + Mixer.below(Mixer.derive(hash, ODD_2), exponents);
        }
    }

    /**
     * Powers of two, one rank with a mantissa besides: exact in any order. Their exponents add up
     * to at most the type's bias, so the product is finite.
     */
    private static final class FloatProduct extends ReductionData {
        private final FloatLayout layout;
        private final int ranks;
        private final long start;
        private final Split split;

        FloatProduct(FloatLayout layout, int ranks, long start) {
            this.layout = layout;
            this.ranks = ranks;
            this.start = start;
            this.split = new Split(ranks);
        }

        @Override
        Content input(int rank) {
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    int place = place(hash, rank, ranks);
                    long power = split.share(power(hash), hash, place);
                    boolean precise = place == Mixer.below(Mixer.derive(hash, ODD_2), ranks);
                    bits[i] =
                            layout.of(
                                    (place & 1) == 1,
                                    layout.bias + power,
                                    precise ? mantissa(hash) : 0);
                }
            };
        }

        @Override
        Content result() {
            boolean negative = (ranks / 2 & 1) == 1;
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    bits[i] = layout.of(negative, layout.bias + power(hash), mantissa(hash));
                }
            };
        }

        private long power(long hash) {
            long largest = layout.bias;
            return largest - Mixer.below(hash, largest / 2 + 1);
        }

        private long mantissa(long hash) {
            long values = (1L << layout.mantissaBits) - 1;
            return 1 + Mixer.below(Mixer.derive(hash, ODD_1), values);
        }
    }

    /** Ordinary numbers, independent of each other. */
    private static final class FloatExtremum extends ReductionData {
        private final FloatLayout layout;
        private final boolean max;
        private final int ranks;
        private final long start;

        FloatExtremum(FloatLayout layout, boolean max, int ranks, long start) {
            this.layout = layout;
            this.max = max;
            this.ranks = ranks;
            this.start = start;
        }

        @Override
        Content input(int rank) {
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    bits[i] = value(Mixer.at(start, firstIndex + i), rank);
                }
            };
        }

        @Override
        Content result() {
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    long best = value(hash, 0);
                    for (int rank = 1; rank < ranks; rank++) {
                        long other = value(hash, rank);
                        boolean larger = layout.orderKey(other) > layout.orderKey(best);
                        best = larger == max ? other : best;
                    }
                    bits[i] = best;
                }
            };
        }

        private long value(long hash, int rank) {
            return layout.ordinary(Mixer.mix(hash + rank));
        }
    }

    /**
     * Two ranks hold an integer, the others zero: each is scaled by 1/n, and there is one addition.
     */
    private static final class FloatAverage extends ReductionData {
        private final DataType type;
        private final FloatLayout layout;
        private final int ranks;
        private final long start;

        FloatAverage(DataType type, FloatLayout layout, int ranks, long start) {
            this.type = type;
            this.layout = layout;
            this.ranks = ranks;
            this.start = start;
        }

        @Override
        Content input(int rank) {
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    int place = place(hash, rank, ranks);
                    long value =
                            place == 0
                                    ? first(hash)
                                    : place == secondPlace(hash) ? second(hash) : 0;
                    bits[i] = layout.units(false, value, layout.bias + layout.mantissaBits);
                }
            };
        }

        @Override
        Content result() {
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    bits[i] = type.bitsOf(share(first(hash)) + share(second(hash)));
                }
            };
        }

        /** A rank's part as the type holds it: scaled in float32, or in double for double. */
        private double share(long value) {
            if (type == DataType.FLOAT64) {
                return value * (1.0 / ranks);
            }
            float scaled = value * (1.0f / ranks);
            return type == DataType.FLOAT32 ? scaled : type.valueOf(type.bitsOf((double) scaled));
        }

        private long first(long hash) {
            return 1 + Mixer.topBits(hash, layout.mantissaBits);
        }

        private long second(long hash) {
            return 1 + Mixer.topBits(Mixer.derive(hash, ODD_1), layout.mantissaBits);
        }

        private long secondPlace(long hash) {
            return 1 + Mixer.below(Mixer.derive(hash, ODD_2), ranks - 1L);
        }
    }

    /** How many exponents there are whose unit is a normal number and whose totals are finite. */
    private static long exponentsOf(FloatLayout layout) {
        return (1L << layout.exponentBits) - 2 - layout.mantissaBits;
    }

    /** The ranks' order, another one per element: a rotation. */
    private static int place(long hash, int rank, int ranks) {
        int place = rank + (int) Mixer.below(Mixer.derive(hash, ODD_3), ranks);
        return place < ranks ? place : place - ranks;
    }

    /**
     * Cuts a total into shares at random, one share at a time: a cut lies at random within its
     * equal part of the total, so it is found without the others.
     */
    private static final class Split {
        private final int shares;
        private final long partFraction;
        private final long jitterMask;

        Split(int shares) {
            this.shares = shares;
            // Fractions are of 2^63.
            this.partFraction = Long.MAX_VALUE / shares;
            this.jitterMask = Long.highestOneBit(partFraction) - 1;
        }

        long share(long total, long hash, int index) {
            if (shares == 1) {
                return total;
            }
            long end = index == shares - 1 ? total : cut(total, hash, index + 1);
            return index == 0 ? end : end - cut(total, hash, index);
        }

        private long cut(long total, long hash, int index) {
            long jitter = Mixer.derive(hash, ODD_4 + 2L * index) >>> 1 & jitterMask;
            return Math.multiplyHigh(total << 1, index * partFraction + jitter);
        }
    }
}
