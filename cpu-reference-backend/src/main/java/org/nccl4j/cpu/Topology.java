package org.nccl4j.cpu;

/**
 * Where the ranks of an operation are: threads of one process, on as many cores as it has.
 *
 * <p>Thread safety: immutable.
 *
 * @param ranks how many
 * @param cores how many of them make progress at a time at most
 */
record Topology(int ranks, int cores) {
    /** Whether an operation is too small to be handed to other threads. */
    boolean isAlone(double touchedBytes) {
        return ranks == 1 || cores == 1 || touchedBytes <= 2.0 * Scheduler.SMALL_BYTES;
    }

    /** How many ranks make progress at a time. */
    int parallel(double touchedBytes) {
        return isAlone(touchedBytes) ? 1 : Math.min(ranks, cores);
    }
}
