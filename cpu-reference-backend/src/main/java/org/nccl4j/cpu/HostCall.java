package org.nccl4j.cpu;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/**
 * A split or an exchange of counts: joined on the host, with a number among the collectives. The
 * last rank that posts it works out the outcome. Guarded by the scheduler's lock.
 */
final class HostCall {
    private final Clique clique;
    private final OperationKind kind;
    private final long number;

    /** What each rank gave: color and key, or its send counts. */
    private final long[][] given;

    /** A split's communicators by rank of the parent, null for those that join none. */
    private final CpuCommunicator[] children;

    private final ArrayDeque<Batch> held = new ArrayDeque<>(0);
    private long sinceNanos;
    private volatile boolean done;

    HostCall(Clique clique, OperationKind kind, long number) {
        this.clique = clique;
        this.kind = kind;
        this.number = number;
        this.given = new long[clique.size][];
        this.children = new CpuCommunicator[clique.size];
    }

    Clique clique() {
        return clique;
    }

    OperationKind kind() {
        return kind;
    }

    long number() {
        return number;
    }

    /** Nothing before it is open any more: from now on it is waited for. */
    void startClock() {
        sinceNanos = System.nanoTime();
    }

    /** When it became the oldest that is not complete. */
    long sinceNanos() {
        return sinceNanos;
    }

    boolean isDone() {
        return done;
    }

    /** Keeps a batch that comes after it. */
    void hold(Batch batch) {
        held.add(batch);
    }

    Batch takeHeld() {
        return held.poll();
    }

    void give(int rank, long[] what) {
        given[rank] = what;
    }

    /** All ranks have given; works out the outcome. */
    void finish() {
        if (kind == OperationKind.SPLIT) {
            split();
        }
        done = true;
    }

    private void split() {
        List<Integer> order = new ArrayList<>();
        for (int rank = 0; rank < clique.size; rank++) {
            if (given[rank][0] >= 0) {
                order.add(rank);
            }
        }
        order.sort(
                Comparator.<Integer>comparingLong(rank -> given[rank][0])
                        .thenComparingLong(rank -> given[rank][1])
                        .thenComparingInt(rank -> rank));
        int begin = 0;
        while (begin < order.size()) {
            long color = given[order.get(begin)][0];
            int end = begin;
            String name = clique.name + "/" + number + "." + color;
            List<Seat> seats = new ArrayList<>();
            while (end < order.size() && given[order.get(end)][0] == color) {
                seats.add(clique.members[order.get(end++)].seat.inPart(name));
            }
            Clique child = new Clique(clique.scheduler, clique.engine, name, seats);
            List<CpuCommunicator> communicators = CpuCommunicator.open(child);
            for (int i = begin; i < end; i++) {
                children[order.get(i)] = communicators.get(i - begin);
            }
            begin = end;
        }
    }

    /** The communicator that a rank got from a split, or null. */
    CpuCommunicator child(int rank) {
        return children[rank];
    }

    /** What each rank will send to a rank. */
    long[] countsFor(int rank) {
        long[] counts = new long[clique.size];
        for (int from = 0; from < counts.length; from++) {
            counts[from] = given[from][rank];
        }
        return counts;
    }
}
