package org.nccl4j.bench;

import org.nccl4j.collectives.DataType;

/**
 * Inputs of a reduction over n ranks, and its result. Inputs are such that every order and tree of
 * the reduction gives the same bits (float averages: within two units in the last place), so that a
 * check can be exact without knowing the algorithm.
 *
 * <p>Choices that depend on a random bit are made by arithmetic: a branch on it would cost more
 * than the rest of an element.
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
            case MAX -> new FloatExtremum(layout, 1, ranks, start);
            case MIN -> new FloatExtremum(layout, -1, ranks, start);
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

        /** Makes unsigned numbers order as signed ones do. */
        private final long orderFlip;

        OfIntegers(DataType type, RedOp op, int ranks, long start) {
            this.op = op;
            this.ranks = ranks;
            this.start = start;
            this.unusedBits = 64 - 8 * type.sizeBytes();
            this.signed = type.isSigned();
            this.orderFlip = signed ? 0 : Long.MIN_VALUE;
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
                case MAX -> Math.max(a ^ orderFlip, b ^ orderFlip) ^ orderFlip;
                case MIN -> Math.min(a ^ orderFlip, b ^ orderFlip) ^ orderFlip;
            };
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
                    // The totals differ by an exclusive or.
                    long total = positive(hash) ^ (difference(hash) & -group);
                    long share = splits[group].share(total, hash, place >> 1);
                    bits[i] = layout.units(hash & 1 ^ group, share, exponent(hash));
                }
            };
        }

        @Override
        Content result() {
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    long positive = positive(hash);
                    long sum = positive - (positive ^ difference(hash));
                    long sign = hash & 1 ^ sum >>> 63;
                    bits[i] = layout.units(sign, Math.abs(sum), exponent(hash));
                }
            };
        }

        private long positive(long hash) {
            return halfTotal + Mixer.topBits(hash, layout.mantissaBits);
        }

        private long difference(long hash) {
            return Math.max(1, Mixer.topBits(Mixer.derive(hash, ODD_1), layout.mantissaBits));
        }

        private long exponent(long hash) {
            return 1 + layout.mantissaBits + Mixer.below(Mixer.derive(hash, ODD_2), exponents);
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
                    bits[i] = layout.units(hash & 1, share, exponent(hash));
                }
            };
        }

        @Override
        Content result() {
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    long sum = total(hash, 0) + RedOp.mulSumScalar(1) * total(hash, 1);
                    bits[i] = layout.units(hash & 1, sum, exponent(hash));
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
                    long precise = isZero(place ^ Mixer.below(Mixer.derive(hash, ODD_2), ranks));
                    bits[i] = layout.of(place & 1, layout.bias + power, mantissa(hash) & precise);
                }
            };
        }

        @Override
        Content result() {
            long sign = ranks / 2 & 1;
            return (firstIndex, bits, count) -> {
                for (int i = 0; i < count; i++) {
                    long hash = Mixer.at(start, firstIndex + i);
                    bits[i] = layout.of(sign, layout.bias + power(hash), mantissa(hash));
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

        /** 1 for the maximum, -1 for the minimum, which is the maximum of the negated. */
        private final long direction;

        private final int ranks;
        private final long start;

        FloatExtremum(FloatLayout layout, long direction, int ranks, long start) {
            this.layout = layout;
            this.direction = direction;
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
                    long best = key(hash, 0);
                    for (int rank = 1; rank < ranks; rank++) {
                        best = Math.max(best, key(hash, rank));
                    }
                    bits[i] = layout.ofOrderKey(direction * best);
                }
            };
        }

        private long value(long hash, int rank) {
            return layout.ordinary(Mixer.mix(hash + rank));
        }

        private long key(long hash, int rank) {
            return direction * layout.orderKey(value(hash, rank));
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
                            first(hash) & isZero(place)
                                    | second(hash) & isZero(place ^ secondPlace(hash));
                    bits[i] = layout.units(0, value, layout.bias + layout.mantissaBits);
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
        int place = rank - ranks + (int) Mixer.below(Mixer.derive(hash, ODD_3), ranks);
        return place + (ranks & place >> 31);
    }

    /** All bits set if a number that is not negative is 0, else none. */
    private static long isZero(long number) {
        return (number - 1) >> 63;
    }

    /**
     * Cuts a total into shares at random, one share at a time: a cut lies at random within its
     * equal part of the total, so it is found without the others.
     */
    private static final class Split {
        private final int shares;

        /**
         * Per cut: where it is at least, as a fraction of 2^63, and by how much it may be beyond.
         */
        private final long[] fractions;

        private final long[] jitterMasks;

        Split(int shares) {
            this.shares = shares;
            long part = Long.MAX_VALUE / shares;
            this.fractions = new long[shares + 1];
            this.jitterMasks = new long[shares + 1];
            for (int cut = 1; cut < shares; cut++) {
                fractions[cut] = cut * part;
                jitterMasks[cut] = Long.highestOneBit(part) - 1;
            }
            // All of it: 2^63, unsigned.
            fractions[shares] = Long.MIN_VALUE;
        }

        long share(long total, long hash, int index) {
            return shares == 1 ? total : cut(total, hash, index + 1) - cut(total, hash, index);
        }

        private long cut(long total, long hash, int index) {
            long jitter = Mixer.derive(hash, ODD_4 + 2L * index) >>> 1 & jitterMasks[index];
            return Math.unsignedMultiplyHigh(total << 1, fractions[index] + jitter);
        }
    }
}
