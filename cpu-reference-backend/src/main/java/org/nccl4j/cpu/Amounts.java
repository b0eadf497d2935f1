package org.nccl4j.cpu;

/**
 * What an operation costs, counted where it takes longest: by a schedule on the busiest rank, or,
 * where fewer ranks than there are make progress at a time, on all of them together divided by
 * those; by the direct engine on each of its shares.
 *
 * <p>Thread safety: immutable.
 *
 * @param handovers 1 if other threads have to be woken for it
 * @param ranks how many take part
 * @param steps messages one after the other; of the direct engine, buffers read and written
 * @param movedBytes bytes written, from a message or another buffer
 * @param reducedBytes bytes combined with others
 * @param touchedBytes memory that all ranks together must touch at least: what does not fit a cache
 */
record Amounts(
        double handovers,
        double ranks,
        double steps,
        double movedBytes,
        double reducedBytes,
        double touchedBytes) {

    /**
     * Of the {@link DirectEngine}, which is no schedule: it writes each output once, by as many
     * threads as there are cores, however many ranks there are.
     *
     * @param totalBytes of the full buffer: all blocks where each rank has one of its own
     */
    static Amounts ofDirect(OperationKind kind, Topology topology, long totalBytes) {
        int ranks = topology.ranks();
        double touched = touchedBytes(kind, ranks, totalBytes);
        boolean alone =
                topology.isAlone(
                        sizeBytes(kind, ranks, totalBytes), DirectEngine.steps(kind, ranks));
        int parallel = alone ? 1 : shares(kind, topology, totalBytes);
        double written = outputs(kind, ranks) * totalBytes;
        double reduced = kind.reduces() ? (ranks - 1.0) * totalBytes : 0;
        return new Amounts(
                alone ? 0 : 1,
                ranks,
                inputs(kind, ranks) + outputs(kind, ranks),
                written / parallel,
                reduced / parallel,
                touched);
    }

    /** How many shares the direct engine cuts it into. */
    private static int shares(OperationKind kind, Topology topology, long totalBytes) {
        double cut =
                switch (kind) {
                    case ALL_TO_ALL, ALL_TO_ALL_V -> (double) totalBytes * topology.ranks();
                    default -> totalBytes;
                };
        return DirectRun.shareCount((long) cut, DirectEngine.LEAST_SHARE_BYTES, topology.cores());
    }

    /** The larger buffer of each rank, as {@link Part#bytes} has it, of all ranks together. */
    static double sizeBytes(OperationKind kind, int ranks, long totalBytes) {
        return switch (kind) {
            case GATHER, SCATTER -> totalBytes + (ranks - 1.0) / ranks * totalBytes;
            case SEND_RECV -> 2.0 * totalBytes;
            case BARRIER, SPLIT, EXCHANGE_COUNTS -> 0;
            default -> (double) ranks * totalBytes;
        };
    }

    /** What all ranks together must read and write at least. */
    static double touchedBytes(OperationKind kind, int ranks, long totalBytes) {
        return (inputs(kind, ranks) + outputs(kind, ranks)) * totalBytes;
    }

    /** What all ranks together read, in full buffers. */
    private static double inputs(OperationKind kind, int ranks) {
        return switch (kind) {
            case ALL_REDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_V, ALL_TO_ALL, ALL_TO_ALL_V ->
                    ranks;
            case BROADCAST, ALL_GATHER, ALL_GATHER_V, GATHER, SCATTER, SEND_RECV -> 1;
            case BARRIER, SPLIT, EXCHANGE_COUNTS -> 0;
        };
    }

    /** What all ranks together write, in full buffers. */
    private static double outputs(OperationKind kind, int ranks) {
        return switch (kind) {
            case ALL_REDUCE, BROADCAST, ALL_GATHER, ALL_GATHER_V, ALL_TO_ALL, ALL_TO_ALL_V -> ranks;
            case REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_V, GATHER, SCATTER, SEND_RECV -> 1;
            case BARRIER, SPLIT, EXCHANGE_COUNTS -> 0;
        };
    }
}
