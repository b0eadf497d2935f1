package org.nccl4j.cpu;

/**
 * The textbook's cost of the algorithms, for the published cases about times: each step takes
 * alpha, each byte on a link beta; what goes over different links at the same time costs once.
 * Sizes are those of the full buffer of n ranks. Units are decimal: 1 GB/s is 1000 bytes per
 * microsecond.
 *
 * <p>Thread safety: immutable.
 *
 * @param alphaMicros the start-up time of a step
 * @param bandwidthGBps of a link in one direction, 1/beta
 */
record AlphaBetaModel(double alphaMicros, double bandwidthGBps) {
    /**
     * A time in its two parts.
     *
     * @param latencyMicros the steps' start-up times
     * @param bandwidthMicros the bytes' time
     */
    record Cost(double latencyMicros, double bandwidthMicros) {
        double totalMicros() {
            return latencyMicros + bandwidthMicros;
        }
    }

    /** How blocks are exchanged between all pairs. */
    enum AllToAllSchedule {
        /** Each block straight to its receiver. */
        DIRECT,
        /** Blocks of one node for another are merged into one message first. */
        HIERARCHICAL,
        /** Each block straight to its receiver with a length of its own. */
        VARIABLE;

        /**
         * The textbook's choice.
         *
         * @param lengthsDiffer whether counts differ per destination, so that padding would waste
         * @param manySmallRemoteBlocks whether nodes of several ranks send each other many small
         *     blocks
         */
        static AllToAllSchedule choose(boolean lengthsDiffer, boolean manySmallRemoteBlocks) {
            if (lengthsDiffer) {
                return VARIABLE;
            }
            return manySmallRemoteBlocks ? HIERARCHICAL : DIRECT;
        }
    }

    /** Steps of a ring all-reduce: 2(n-1). */
    static int ringAllReduceSteps(int ranks) {
        return 2 * (ranks - 1);
    }

    /** Steps of a tree all-reduce, up and down: 2 ceil(log2 n). */
    static int treeAllReduceSteps(int ranks) {
        return 2 * BinomialTree.rounds(ranks);
    }

    /** What the busiest rank of a binomial tree all-reduce sends: S ceil(log2 n). */
    static long treeAllReduceBusiestRankBytes(int ranks, long sizeBytes) {
        return sizeBytes * BinomialTree.rounds(ranks);
    }

    /** Bytes per rank of a ring all-reduce as a multiple of S: 2(n-1)/n. */
    static double ringAllReduceFactor(int ranks) {
        return 2.0 * (ranks - 1) / ranks;
    }

    /** 2(n-1) alpha + 2(n-1)/n S beta. */
    Cost ringAllReduce(int ranks, double sizeBytes) {
        return new Cost(
                ringAllReduceSteps(ranks) * alphaMicros,
                transferMicros(ringAllReduceFactor(ranks) * sizeBytes));
    }

    /** Reduce-scatter or all-gather: (n-1) alpha + (n-1)/n S beta. */
    Cost halfRing(int ranks, double sizeBytes) {
        Cost both = ringAllReduce(ranks, sizeBytes);
        return new Cost(both.latencyMicros / 2, both.bandwidthMicros / 2);
    }

    /** The size at which the ring's two parts are equal: n alpha / beta. Below, latency rules. */
    double ringBoundaryBytes(int ranks) {
        return ranks * alphaMicros * bandwidthGBps * 1e3;
    }

    private double transferMicros(double bytes) {
        return bytes / (bandwidthGBps * 1e3);
    }

    /** What bounds an all-to-all: the longest of four times. */
    enum AllToAllBound {
        /** Sending at the busiest rank. */
        INJECT,
        /** Receiving at the busiest rank. */
        RECEIVE,
        /** Crossing the middle of the network. */
        BISECTION,
        /** Starting the messages. */
        STARTUP;

        /** Which of the four times is the longest; the first of equals. */
        static AllToAllBound binding(
                double injectMicros,
                double receiveMicros,
                double bisectionMicros,
                double startupMicros) {
            AllToAllBound longest = INJECT;
            double[] micros = {injectMicros, receiveMicros, bisectionMicros, startupMicros};
            for (AllToAllBound bound : values()) {
                if (micros[bound.ordinal()] > micros[longest.ordinal()]) {
                    longest = bound;
                }
            }
            return longest;
        }
    }
}
