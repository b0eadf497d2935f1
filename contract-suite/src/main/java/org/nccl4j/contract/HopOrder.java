package org.nccl4j.contract;

/** The order in which an algorithm combines the ranks' inputs of a chunk, rounding at each hop. */
@FunctionalInterface
public interface HopOrder {
    /**
     * The ranks in the order in which their inputs join. All-reduce cuts its buffer into one chunk
     * per rank, as evenly as possible, longer ones first; reduce-scatter's chunk r is rank r's
     * block; reduce's only chunk is the root's.
     *
     * @param ranks the number of ranks
     * @param chunk 0 to {@code ranks - 1}
     * @return the first pair to be combined, then each further rank
     */
    int[] ranksInOrder(int ranks, int chunk);

    /**
     * The ring in which rank r ends with chunk r: chunk c starts at rank c + 1 and travels upwards.
     *
     * @return the order
     */
    static HopOrder ring() {
        return (ranks, chunk) -> {
            int[] order = new int[ranks];
            for (int i = 0; i < ranks; i++) {
                order[i] = (chunk + 1 + i) % ranks;
            }
            return order;
        };
    }
}
