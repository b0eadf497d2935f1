package org.nccl4j.cpu;

/**
 * Broadcast over a binomial tree, for the published cases about trees: in round s every rank that
 * already has the data, of which there are 2^s, sends it to the rank 2^s further on from the root,
 * if there is one.
 *
 * <p>Thread safety: immutable.
 *
 * @param ranks the number of ranks, at least 1
 * @param root where the data starts
 */
record BinomialTree(int ranks, int root) {
    /** ceil(log2 n). */
    static int rounds(int ranks) {
        return Integer.SIZE - Integer.numberOfLeadingZeros(ranks - 1);
    }

    /** Whom a rank sends to in a round; -1 if nobody. */
    int receiver(int rank, int round) {
        int place = Math.floorMod(rank - root, ranks);
        int distance = 1 << round;
        return place < distance && place + distance < ranks
                ? Math.floorMod(rank + distance, ranks)
                : -1;
    }
}
