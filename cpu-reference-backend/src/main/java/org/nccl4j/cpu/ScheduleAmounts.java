package org.nccl4j.cpu;

import org.nccl4j.cpu.schedule.Action;
import org.nccl4j.cpu.schedule.Schedule;

/**
 * What a schedule costs for any size, counted from its actions once.
 *
 * <p>Thread safety: immutable.
 */
final class ScheduleAmounts {
    private static final int MESSAGES = 0;
    private static final int CHUNK_MESSAGES = 1;
    private static final int MOVED = 2;
    private static final int REDUCED = 3;
    private static final int COUNTS = 4;

    private final int chunks;
    private final int steps;

    /** Of all ranks, as {@link ScheduleEngine} counts steps. */
    private final long actions;

    /**
     * Of the rank that has most: messages if chunks go together, if not, chunks written, reduced.
     */
    private final double[] most = new double[COUNTS];

    /** Of all ranks. */
    private final double[] all = new double[COUNTS];

    ScheduleAmounts(Schedule schedule) {
        chunks = schedule.chunks();
        steps = schedule.steps();
        actions = schedule.actions();
        for (int rank = 0; rank < schedule.ranks(); rank++) {
            double[] own = new double[COUNTS];
            for (Action action : schedule.program(rank)) {
                switch (action.kind()) {
                    case SEND -> {
                        own[MESSAGES]++;
                        own[CHUNK_MESSAGES] += action.chunks();
                    }
                    case RECEIVE, COPY -> own[MOVED] += action.chunks();
                    case REDUCE, COMBINE -> {
                        own[MOVED] += action.chunks();
                        own[REDUCED] += action.chunks();
                    }
                }
            }
            for (int i = 0; i < COUNTS; i++) {
                most[i] = Math.max(most[i], own[i]);
                all[i] += own[i];
            }
        }
    }

    /**
     * What an operation costs.
     *
     * @param kind what the schedule is for
     * @param totalBytes of the full buffer: all blocks where each rank has one of its own
     */
    Amounts of(OperationKind kind, Topology topology, long totalBytes) {
        int ranks = topology.ranks();
        boolean alone = topology.isAlone(Amounts.sizeBytes(kind, ranks, totalBytes), actions);
        int parallel = alone ? 1 : Math.min(ranks, topology.cores());
        double chunkBytes = (double) totalBytes / chunks;
        // Passes follow each other without a wait, so that only their messages add up.
        double passes = Math.ceil(chunkBytes / ChunkMap.pieceBytes(chunks));
        double messages =
                passes <= 1
                        ? longest(MESSAGES, parallel)
                        : longest(CHUNK_MESSAGES, parallel) * passes;
        return new Amounts(
                alone ? 0 : 1,
                ranks,
                Math.max(steps, messages),
                longest(MOVED, parallel) * chunkBytes,
                longest(REDUCED, parallel) * chunkBytes,
                Amounts.touchedBytes(kind, ranks, totalBytes));
    }

    private double longest(int count, int parallel) {
        return Math.max(most[count], all[count] / parallel);
    }
}
