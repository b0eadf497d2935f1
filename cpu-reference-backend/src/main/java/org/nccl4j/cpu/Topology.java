package org.nccl4j.cpu;

/**
 * Where the ranks of an operation are: threads of one process, on as many cores as it has.
 *
 * <p>Thread safety: immutable.
 *
 * @param ranks how many
 * @param cores how many threads make progress at a time at most
 */
record Topology(int ranks, int cores) {
    /**
     * Whether the scheduler finds an operation too small to be handed to other threads.
     *
     * @param sizeBytes its {@link Amounts#sizeBytes}
     * @param steps its {@link Engine#steps}
     */
    boolean isAlone(double sizeBytes, long steps) {
        return ranks == 1
                || cores == 1
                || Work.costBytes((long) sizeBytes, steps) <= Scheduler.SMALL_BYTES;
    }
}
