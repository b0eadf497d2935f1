package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;
import org.nccl4j.cpu.schedule.Collective;

/**
 * One operation being run by the {@link ScheduleEngine} among the ranks of one process: a {@link
 * ScheduleRank} each, and the {@link Edge}s between them as their transport. The schedule's rank 0
 * is the operation's root if it has one. Reused from operation to operation with all its memory.
 *
 * <p>Thread safety: as {@link Engine.Run} says; ranks share nothing but edges.
 */
final class ScheduleRun implements Engine.Run, Transport {
    private final Program program;
    private final Edge[][] edges;
    private final List<Edge> used = new ArrayList<>();
    private final ScheduleRank[] ranks;
    private JoinedOperation operation;
    private int root;

    ScheduleRun(Program program) {
        this.program = program;
        this.edges = new Edge[program.ranks][program.ranks];
        this.ranks = new ScheduleRank[program.ranks];
        int depth = Math.max(Edge.DEPTH, 2 * Integer.highestOneBit(program.longestRun));
        for (int rank = 0; rank < program.ranks; rank++) {
            int[][] sent = program.sentPerPass(rank);
            for (int peer = 0; peer < program.ranks; peer++) {
                if (sent[peer] != null) {
                    Edge edge = new Edge(depth);
                    edges[rank][peer] = edge;
                    used.add(edge);
                }
            }
        }
        for (int rank = 0; rank < program.ranks; rank++) {
            ranks[rank] = new ScheduleRank(program, rank, this);
        }
    }

    /** Sets up for one operation; by one thread, before anything else. */
    void begin(JoinedOperation joined) {
        operation = joined;
        boolean rooted =
                program.collective == Collective.REDUCE
                        || program.collective == Collective.BROADCAST;
        root = rooted ? joined.root() : 0;
        for (int rank = 0; rank < ranks.length; rank++) {
            ranks[rank].begin(joined, participant(rank), this);
        }
    }

    /** The participant that a rank of the schedule is. */
    int participant(int rank) {
        int participant = rank + root;
        return participant < ranks.length ? participant : participant - ranks.length;
    }

    /** Each participant is one. */
    @Override
    public int shares() {
        return ranks.length;
    }

    @Override
    public Engine.Progress progress(int participant) {
        int rank = participant - root;
        return ranks[rank < 0 ? rank + ranks.length : rank].progress();
    }

    /** Counts and traces a range that a rank has just posted. */
    void sent(int from, int to, int step, int chunk, long offsetBytes, long bytes) {
        int sender = participant(from);
        int receiver = participant(to);
        if (bytes > 0) {
            operation.countSent(sender, receiver, bytes);
        }
        StepTrace trace = operation.trace(sender);
        if (trace != null) {
            trace.sent(operation, step, sender, receiver, chunk, offsetBytes, bytes);
        }
    }

    @Override
    public void finish(boolean done) {
        for (ScheduleRank rank : ranks) {
            rank.end();
        }
        for (Edge edge : used) {
            edge.reset();
        }
        operation = null;
        program.recycle(this);
    }

    @Override
    public Outgoing outgoing(int rank, int peer) {
        return edges[rank][peer];
    }

    @Override
    public Incoming incoming(int rank, int peer) {
        return edges[peer][rank];
    }
}
