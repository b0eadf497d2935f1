package org.nccl4j.cpu.schedule;

import static org.nccl4j.cpu.schedule.Place.input;
import static org.nccl4j.cpu.schedule.Place.output;
import static org.nccl4j.cpu.schedule.Place.scratch;

/**
 * Rings, and rings along the dimensions of a grid of ranks. In each step every rank sends to its
 * successor and receives from its predecessor. Rank r ends a reduce-scatter with block r, whose sum
 * started at rank r + 1 and went upwards.
 *
 * <p>Thread safety: no state.
 */
public final class Rings {
    private Rings() {}

    /** Reduce-scatter, then all-gather: 2(n-1) steps, 2(n-1)/n S sent by each rank. */
    public static Schedule allReduce(int ranks) {
        return allReduce("ring", ranks);
    }

    /**
     * Reduce-scatter along each dimension in turn, every time on what the one before has left, then
     * all-gather in reverse: 2 sum(d-1) steps and still 2(n-1)/n S. Rank {@code i0 + d0 (i1 + d1
     * i2)} has coordinates i0, i1, i2 and owns the chunk in which i0 counts most. With nodes as the
     * first dimension it is the hierarchical all-reduce: reduce-scatter within, all-reduce across,
     * all-gather within.
     */
    public static Schedule allReduce(String algorithm, int... dimensions) {
        int ranks = 1;
        for (int size : dimensions) {
            ranks *= size;
        }
        Schedule.Plan plan = new Schedule.Plan(algorithm, Collective.ALL_REDUCE, ranks, ranks);
        if (ranks == 1) {
            plan.copy(0, 0, input(0), output(0), 0, 1);
            return plan.build();
        }
        boolean first = true;
        int step = 0;
        int stride = 1;
        for (int size : dimensions) {
            boolean last = stride * size == ranks;
            for (int s = 0; s < size - 1; s++, step++) {
                for (int rank = 0; rank < ranks; rank++) {
                    int place = rank / stride % size;
                    int to = rank + ((place + 1) % size - place) * stride;
                    int width = ranks / (stride * size);
                    int block = Math.floorMod(place - s - 1, size);
                    int chunk = base(rank, stride, dimensions) + block * width;
                    // The first dimension is where a rank's own elements join.
                    plan.reduce(
                            step,
                            rank,
                            first && s == 0 ? input(chunk) : output(chunk),
                            to,
                            first ? input(chunk) : output(chunk),
                            output(chunk),
                            chunk,
                            width,
                            last && s == size - 2);
                }
            }
            first &= size == 1;
            stride *= size;
        }
        for (int d = dimensions.length - 1; d >= 0; d--) {
            int size = dimensions[d];
            stride /= size;
            for (int s = 0; s < size - 1; s++, step++) {
                for (int rank = 0; rank < ranks; rank++) {
                    int place = rank / stride % size;
                    int to = rank + ((place + 1) % size - place) * stride;
                    int width = ranks / (stride * size);
                    int block = Math.floorMod(place - s, size);
                    int chunk = base(rank, stride, dimensions) + block * width;
                    plan.move(step, rank, output(chunk), to, output(chunk), chunk, width);
                }
            }
        }
        return plan.build();
    }

    /** The first chunk of what a rank has left after the dimensions before a stride. */
    private static int base(int rank, int stride, int[] dimensions) {
        int ranks = 1;
        for (int size : dimensions) {
            ranks *= size;
        }
        int base = 0;
        int width = ranks;
        int before = 1;
        for (int size : dimensions) {
            if (before == stride) {
                break;
            }
            width /= size;
            base += rank / before % size * width;
            before *= size;
        }
        return base;
    }

    /** n-1 steps, (n-1)/n S. Partial sums are in two slots in turn. */
    public static Schedule reduceScatter(int ranks) {
        Schedule.Plan plan = new Schedule.Plan("ring", Collective.REDUCE_SCATTER, ranks, ranks);
        if (ranks == 1) {
            plan.copy(0, 0, input(0), output(0), 0, 1);
        }
        for (int s = 0; s < ranks - 1; s++) {
            boolean last = s == ranks - 2;
            for (int rank = 0; rank < ranks; rank++) {
                int chunk = Math.floorMod(rank - s - 1, ranks);
                plan.reduce(
                        s,
                        rank,
                        s == 0 ? input(chunk) : scratch((s - 1) % 2),
                        (rank + 1) % ranks,
                        input(chunk),
                        last ? output(chunk) : scratch(s % 2),
                        chunk,
                        1,
                        last);
            }
        }
        return plan.build();
    }

    /** n-1 steps, (n-1)/n S. */
    public static Schedule allGather(int ranks) {
        Schedule.Plan plan = new Schedule.Plan("ring", Collective.ALL_GATHER, ranks, ranks);
        for (int rank = 0; rank < ranks; rank++) {
            plan.copy(0, rank, input(rank), output(rank), rank, 1);
        }
        for (int s = 0; s < ranks - 1; s++) {
            for (int rank = 0; rank < ranks; rank++) {
                int chunk = Math.floorMod(rank - s, ranks);
                plan.move(
                        s,
                        rank,
                        s == 0 ? input(chunk) : output(chunk),
                        (rank + 1) % ranks,
                        output(chunk),
                        chunk,
                        1);
            }
        }
        return plan.build();
    }
}
