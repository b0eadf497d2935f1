package org.nccl4j.cpu.schedule;

import static org.nccl4j.cpu.schedule.Place.input;
import static org.nccl4j.cpu.schedule.Place.output;
import static org.nccl4j.cpu.schedule.Place.scratch;

/**
 * Everyone with everyone, or with one. All sum in the order of ranks: ((x0 + x1) + x2) + ...
 *
 * <p>Thread safety: no state.
 */
public final class DirectReads {
    private DirectReads() {}

    /**
     * Parameter server: all send to rank 0, which sums and sends the result to all. 2 steps; rank 0
     * receives and sends (n-1) S, the others S. The baseline to beat.
     */
    public static Schedule star(int ranks) {
        Schedule.Plan plan = new Schedule.Plan("star", Collective.ALL_REDUCE, ranks, 1);
        if (ranks == 1) {
            plan.copy(0, 0, input(0), output(0), 0, 1);
        }
        for (int rank = 1; rank < ranks; rank++) {
            Place own = rank == 1 ? input(0) : output(0);
            plan.reduce(0, rank, input(0), 0, own, output(0), 0, 1, rank == ranks - 1);
            plan.move(1, 0, output(0), rank, output(0), 0, 1);
        }
        return plan.build();
    }

    /**
     * One shot: every rank reads all others' buffers and sums for itself. 1 step, (n-1) S. The sum
     * is made in scratch memory, because in place the output is what others still read.
     */
    public static Schedule oneShot(int ranks) {
        Schedule.Plan plan = new Schedule.Plan("one-shot", Collective.ALL_REDUCE, ranks, 1);
        for (int rank = 0; rank < ranks; rank++) {
            sumInOrder(plan, rank, 0);
            plan.copy(0, rank, ranks == 1 ? input(0) : scratch(0), output(0), 0, 1);
        }
        return plan.build();
    }

    /**
     * Two shots: every rank sums its own n-th part, reading all others', then reads theirs. 2
     * steps, 2(n-1)/n S.
     */
    public static Schedule twoShot(int ranks) {
        Schedule.Plan plan = new Schedule.Plan("two-shot", Collective.ALL_REDUCE, ranks, ranks);
        for (int rank = 0; rank < ranks; rank++) {
            sumInOrder(plan, rank, rank);
            plan.copy(0, rank, ranks == 1 ? input(0) : scratch(0), output(rank), rank, 1);
        }
        for (int distance = 1; distance < ranks; distance++) {
            for (int rank = 0; rank < ranks; rank++) {
                int to = (rank + distance) % ranks;
                plan.move(1, rank, output(rank), to, output(rank), rank, 1);
            }
        }
        return plan.build();
    }

    /** Sums a chunk of all ranks at one of them, into its scratch slot 0. */
    private static void sumInOrder(Schedule.Plan plan, int at, int chunk) {
        int ranks = plan.ranks();
        // Of the first two the one that is not sent is added to the one that is.
        if (ranks == 1) {
            return;
        }
        int first = at <= 1 ? 1 - at : 0;
        Place input = input(chunk);
        Place sum = scratch(0);
        if (at <= 1) {
            plan.reduce(0, first, input, at, input, sum, chunk, 1, ranks == 2);
        } else {
            plan.move(0, 0, input, at, sum, chunk, 1);
            plan.reduce(0, 1, input, at, sum, sum, chunk, 1, false);
        }
        for (int rank = 2; rank < ranks; rank++) {
            boolean last = rank == ranks - 1;
            if (rank == at) {
                plan.combine(0, at, input, sum, chunk, 1, last);
            } else {
                plan.reduce(0, rank, input, at, sum, sum, chunk, 1, last);
            }
        }
    }
}
