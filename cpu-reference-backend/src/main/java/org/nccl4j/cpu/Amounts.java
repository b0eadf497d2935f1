package org.nccl4j.cpu;

/**
 * What an operation costs, counted where it takes longest: on the busiest rank, or, where fewer
 * ranks than there are make progress at a time, on all of them together divided by those.
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
     * Of the {@link DirectEngine}, which is no schedule: it writes each output once.
     *
     * @param totalBytes of the full buffer: all blocks where each rank has one of its own
     */
    static Amounts ofDirect(OperationKind kind, Topology topology, long totalBytes) {
        int ranks = topology.ranks();
        double touched = touchedBytes(kind, ranks, totalBytes);
        int parallel = topology.parallel(touched);
        double written = outputs(kind, ranks) * totalBytes;
        double reduced = kind.reduces() ? (ranks - 1.0) * totalBytes : 0;
        return new Amounts(
                topology.isAlone(touched) ? 0 : 1,
                ranks,
                inputs(kind, ranks) + outputs(kind, ranks),
                written / parallel,
                reduced / parallel,
                touched);
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
