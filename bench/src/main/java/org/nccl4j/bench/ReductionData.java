package org.nccl4j.bench;

import java.util.Arrays;
import org.nccl4j.collectives.DataType;

/**
 * Inputs of a reduction over n ranks, and its result. Inputs are such that every order and tree of
 * the reduction gives the same bits (float averages: within two units in the last place), so that a
 * check can be exact without knowing the algorithm.
 *
 * <p>Filling and checking buffers takes a good part of a benchmark's time, so loops are such that
 * the compiler does several elements at a time: no branch on random bits, a small body, one array
 * written.
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
                Mixer.fill(start, firstIndex, bits, count);
                for (int i = 0; i < count; i++) {
                    bits[i] = value(bits[i], rank);
                }
            };
        }

        @Override
        Content result() {
            return (firstIndex, bits, count) -> {
                long[] hashes = hashes(start, firstIndex, count);
                input(0).generate(firstIndex, bits, count);
                for (int rank = 1; rank < ranks; rank++) {
                    reduce(bits, hashes, rank);
                }
                if (op == RedOp.AVG) {
                    for (int i = 0; i < count; i++) {
                        bits[i] = dividedByRanks(wrapped(bits[i]));
                    }
                }
            };
        }

        /** One loop per reduction, so that none of them decides per element. */
        private void reduce(long[] results, long[] hashes, int rank) {
            switch (op) {
                case SUM, AVG -> addScaled(results, hashes, rank, 1);
                case MULSUM -> addScaled(results, hashes, rank, RedOp.mulSumScalar(rank));
                case PROD -> {
                    for (int i = 0; i < hashes.length; i++) {
                        results[i] *= value(hashes[i], rank);
                    }
                }
                case MAX -> takeLarger(results, hashes, rank, orderFlip);
                // What is smaller is larger with all bits inverted.
                case MIN -> takeLarger(results, hashes, rank, ~orderFlip);
            }
        }

        private void addScaled(long[] results, long[] hashes, int rank, long scalar) {
            for (int i = 0; i < hashes.length; i++) {
                results[i] += scalar * value(hashes[i], rank);
            }
        }

        private void takeLarger(long[] results, long[] hashes, int rank, long flip) {
            for (int i = 0; i < hashes.length; i++) {
                long other = value(hashes[i], rank) ^ flip;
                results[i] = Math.max(results[i] ^ flip, other) ^ flip;
            }
        }

        private long value(long hash, int rank) {
            long value = wrapped(Mixer.mix(hash + rank));
            // A product of random numbers soon ends in zeros, but a zero would end it at once.
            return op == RedOp.PROD ? value | Mixer.isZero(value) & 1 : value;
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
        private final Split split;

        FloatSum(FloatLayout layout, int ranks, long start) {
            this.layout = layout;
            this.ranks = ranks;
            this.start = start;
            this.halfTotal = 1L << layout.mantissaBits;
            this.exponents = exponentsOf(layout);
            this.split = new Split((ranks + 1) / 2, ranks / 2, layout);
        }

        @Override
        Content input(int rank) {
            return (firstIndex, bits, count) -> {
                long[] hashes = hashes(start, firstIndex, count);
                long[] places = places(hashes, rank, ranks);
                for (int i = 0; i < count; i++) {
                    // The totals differ by an exclusive or.
                    long isOther = -(places[i] & 1);
                    bits[i] = positive(hashes[i]) ^ difference(hashes[i]) & isOther;
                }
                split.replaceByShares(bits, hashes, places);
                for (int i = 0; i < count; i++) {
                    bits[i] = negatedIfOdd(bits[i], hashes[i] ^ places[i]);
                }
                toExponents(hashes);
                layout.ofUnits(bits, hashes, count);
            };
        }

        @Override
        Content result() {
            return (firstIndex, bits, count) -> {
                long[] hashes = hashes(start, firstIndex, count);
                for (int i = 0; i < count; i++) {
                    long positive = positive(hashes[i]);
                    long sum = positive - (positive ^ difference(hashes[i]));
                    bits[i] = negatedIfOdd(sum, hashes[i]);
                }
                toExponents(hashes);
                layout.ofUnits(bits, hashes, count);
            };
        }

        private void toExponents(long[] hashes) {
            for (int i = 0; i < hashes.length; i++) {
                hashes[i] = exponentOf(hashes[i], layout, exponents);
            }
        }

        private long positive(long hash) {
            return halfTotal + Mixer.topBits(hash, layout.mantissaBits);
        }

        private long difference(long hash) {
            return atLeastOne(Mixer.topBits(Mixer.derive(hash, ODD_1), layout.mantissaBits));
        }
    }

    /**
     * Even ranks' integers count once, odd ranks' twice; all of one sign and in one unit, with a
     * weighted total below 2^(mantissaBits + 1).
     */
    private static final class FloatScaledSum extends ReductionData {
        private static final long ODD_SCALAR = RedOp.mulSumScalar(1);

        private final FloatLayout layout;
        private final long start;
        private final long exponents;
        private final Split split;

        FloatScaledSum(FloatLayout layout, int ranks, long start) {
            this.layout = layout;
            this.start = start;
            this.exponents = exponentsOf(layout);
            this.split = new Split((ranks + 1) / 2, ranks / 2, layout);
        }

        @Override
        Content input(int rank) {
            return (firstIndex, bits, count) -> {
                long[] hashes = hashes(start, firstIndex, count);
                long[] places = new long[count];
                Arrays.fill(places, rank);
                for (int i = 0; i < count; i++) {
                    bits[i] = total(hashes[i], rank & 1);
                }
                split.replaceByShares(bits, hashes, places);
                toSignedUnits(bits, hashes);
            };
        }

        @Override
        Content result() {
            return (firstIndex, bits, count) -> {
                long[] hashes = hashes(start, firstIndex, count);
                for (int i = 0; i < count; i++) {
                    bits[i] = total(hashes[i], 0) + ODD_SCALAR * total(hashes[i], 1);
                }
                toSignedUnits(bits, hashes);
            };
        }

        private void toSignedUnits(long[] bits, long[] hashes) {
            for (int i = 0; i < hashes.length; i++) {
                bits[i] = negatedIfOdd(bits[i], hashes[i]);
            }
            for (int i = 0; i < hashes.length; i++) {
                hashes[i] = exponentOf(hashes[i], layout, exponents);
            }
            layout.ofUnits(bits, hashes, hashes.length);
        }

        /** The integers of a group's ranks together: the odd group has half as many bits. */
        private long total(long hash, int group) {
            int bits = layout.mantissaBits - 1 - group;
            return (1L << bits) + Mixer.topBits(Mixer.derive(hash, ODD_1), bits);
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
            this.split = new Split(ranks, ranks, layout);
        }

        @Override
        Content input(int rank) {
            return (firstIndex, bits, count) -> {
                long[] hashes = hashes(start, firstIndex, count);
                long[] places = places(hashes, rank, ranks);
                for (int i = 0; i < count; i++) {
                    bits[i] = power(hashes[i]);
                }
                for (int i = 0; i < count; i++) {
                    places[i] <<= 1;
                }
                split.replaceByShares(bits, hashes, places);
                for (int i = 0; i < count; i++) {
                    long isPrecise =
                            Mixer.isZero(
                                    (places[i] >>> 1)
                                            ^ Mixer.below(Mixer.derive(hashes[i], ODD_2), ranks));
                    hashes[i] = mantissa(hashes[i]) & isPrecise;
                }
                for (int i = 0; i < count; i++) {
                    bits[i] = layout.of(places[i] >>> 1 & 1, layout.bias + bits[i], hashes[i]);
                }
            };
        }

        @Override
        Content result() {
            long sign = ranks / 2 & 1;
            return (firstIndex, bits, count) -> {
                Mixer.fill(start, firstIndex, bits, count);
                for (int i = 0; i < count; i++) {
                    long hash = bits[i];
                    bits[i] = layout.of(sign, layout.bias + power(hash), mantissa(hash));
                }
            };
        }

        private long power(long hash) {
            long largest = layout.bias;
            return largest - Mixer.below(hash, largest / 2 + 1);
        }

        private long mantissa(long hash) {
            return atLeastOne(Mixer.topBits(Mixer.derive(hash, ODD_1), layout.mantissaBits));
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
                Mixer.fill(start, firstIndex, bits, count);
                for (int i = 0; i < count; i++) {
                    bits[i] = value(bits[i], rank);
                }
            };
        }

        @Override
        Content result() {
            return (firstIndex, bits, count) -> {
                long[] hashes = hashes(start, firstIndex, count);
                Arrays.fill(bits, 0, count, Long.MIN_VALUE);
                long[] values = new long[count];
                for (int rank = 0; rank < ranks; rank++) {
                    for (int i = 0; i < count; i++) {
                        values[i] = value(hashes[i], rank);
                    }
                    for (int i = 0; i < count; i++) {
                        bits[i] = Math.max(bits[i], direction * layout.orderKey(values[i]));
                    }
                }
                for (int i = 0; i < count; i++) {
                    bits[i] = layout.ofOrderKey(direction * bits[i]);
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
                long[] hashes = hashes(start, firstIndex, count);
                long[] places = places(hashes, rank, ranks);
                for (int i = 0; i < count; i++) {
                    bits[i] = first(hashes[i]) & Mixer.isZero(places[i]);
                }
                for (int i = 0; i < count; i++) {
                    long isSecond = Mixer.isZero(places[i] ^ secondPlace(hashes[i]));
                    bits[i] |= second(hashes[i]) & isSecond;
                }
                Arrays.fill(hashes, layout.bias + layout.mantissaBits);
                layout.ofUnits(bits, hashes, count);
            };
        }

        @Override
        Content result() {
            return (firstIndex, bits, count) -> {
                Mixer.fill(start, firstIndex, bits, count);
                for (int i = 0; i < count; i++) {
                    bits[i] = type.bitsOf(share(first(bits[i])) + share(second(bits[i])));
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

    private static long exponentOf(long hash, FloatLayout layout, long exponents) {
        return 1 + layout.mantissaBits + Mixer.below(Mixer.derive(hash, ODD_2), exponents);
    }

    /** A random number per element. */
    private static long[] hashes(long start, long firstIndex, int count) {
        long[] hashes = new long[count];
        Mixer.fill(start, firstIndex, hashes, count);
        return hashes;
    }

    /** A rank's place in the ranks' order, which is another one per element: a rotation. */
    private static long[] places(long[] hashes, long rank, long ranks) {
        long[] places = new long[hashes.length];
        for (int i = 0; i < hashes.length; i++) {
            long place = rank - ranks + Mixer.below(Mixer.derive(hashes[i], ODD_3), ranks);
            places[i] = place + (ranks & -(place >>> 63));
        }
        return places;
    }

    private static long atLeastOne(long number) {
        return number | Mixer.isZero(number) & 1;
    }

    private static long negatedIfOdd(long number, long decides) {
        long negative = -(decides & 1);
        return (number ^ negative) - negative;
    }

    /**
     * Cuts totals into shares that are not negative, one share at a time: neighbours take a random
     * amount from each other, and the last takes what equal shares leave.
     *
     * <p>The shares are of two groups; a place holds the group in its lowest bit and the number of
     * the share in the others.
     */
    private static final class Split {
        private final long shares;
        private final long sharesFlip;
        private final long reciprocal;
        private final long reciprocalFlip;
        private final int droppedBits;

        /**
         * @param even shares of group 0
         * @param odd shares of group 1
         * @param layout of the type in whose units totals are counted: all its mantissa bits and
         *     one more
         */
        Split(int even, int odd, FloatLayout layout) {
            this.shares = even;
            this.sharesFlip = even ^ odd;
            this.reciprocal = (1L << 31) / even;
            this.reciprocalFlip = reciprocal ^ (1L << 31) / odd;
            this.droppedBits = Math.max(0, layout.mantissaBits + 1 - 31);
        }

        /**
         * Replaces totals by one share of each.
         *
         * @param hashes make the cuts random
         * @param places which share
         */
        void replaceByShares(long[] totals, long[] hashes, long[] places) {
            if (shares == 1) {
                return;
            }
            int count = hashes.length;
            long[] equal = new long[count];
            for (int i = 0; i < count; i++) {
                // Rounded down, so that the equal shares never exceed the total.
                long inverse = reciprocal ^ reciprocalFlip & -(places[i] & 1);
                equal[i] = ((totals[i] >>> droppedBits) * inverse >>> 31) << droppedBits;
            }
            for (int i = 0; i < count; i++) {
                totals[i] = totals[i] - equal[i] * sharesOf(places[i]) & isLast(places[i]);
            }
            long[] taken = new long[count];
            for (int i = 0; i < count; i++) {
                // Neighbours have the same constant, hence the same amount.
                long random = Mixer.derive(hashes[i], ODD_4 + (places[i] & ~3L)) >>> 54;
                taken[i] = equal[i] * random >>> 10;
            }
            for (int i = 0; i < count; i++) {
                // The last of an odd number has no neighbour.
                long number = places[i] >>> 1;
                long isAlone = isLast(places[i]) & (number & 1) - 1;
                taken[i] = negatedIfOdd(taken[i], number) & ~isAlone;
            }
            for (int i = 0; i < count; i++) {
                totals[i] += equal[i] + taken[i];
            }
        }

        private long sharesOf(long place) {
            return shares ^ sharesFlip & -(place & 1);
        }

        private long isLast(long place) {
            return Mixer.isZero((place >>> 1) - sharesOf(place) + 1);
        }
    }
}
