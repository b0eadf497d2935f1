package org.nccl4j.cpu;

import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.List;
import org.nccl4j.cpu.schedule.Action;
import org.nccl4j.cpu.schedule.Collective;
import org.nccl4j.cpu.schedule.Schedule;

/**
 * A schedule made ready to be run: for each action, which earlier messages must have been read
 * before it may write; and runs kept for reuse.
 *
 * <p>Thread safety: immutable but for the idle runs, which any thread may take and give.
 */
final class Program {
    /** Runs kept for reuse; more only run at once by many streams. */
    private static final int IDLE_RUNS = 4;

    private static final int[] NONE = {};

    final Collective collective;
    final int ranks;
    final int chunks;
    final int scratchSlots;

    /** The most chunks that go in one message. */
    final int longestRun;

    private final Action[][] actions;

    /**
     * By rank and action: triples of a peer and how much must have been released of what was sent
     * to it in this pass, in messages and in chunks. The second is for input and output in one
     * memory.
     */
    private final int[][][] waitsApart;

    private final int[][][] waitsInPlace;

    /** By rank and peer: messages and chunks sent in one pass; null if none. */
    private final int[][][] sentPerPass;

    private final long actionCount;

    /** Guarded by itself. */
    private final ArrayDeque<ScheduleRun> idle = new ArrayDeque<>();

    Program(Schedule schedule) {
        collective = schedule.collective();
        ranks = schedule.ranks();
        chunks = schedule.chunks();
        scratchSlots = schedule.scratchSlots();
        actionCount = schedule.actions();
        actions = new Action[ranks][];
        waitsApart = new int[ranks][][];
        waitsInPlace = new int[ranks][][];
        sentPerPass = new int[ranks][ranks][];
        int longest = 1;
        for (int rank = 0; rank < ranks; rank++) {
            List<Action> program = schedule.program(rank);
            actions[rank] = program.toArray(Action[]::new);
            waitsApart[rank] = new int[program.size()][];
            waitsInPlace[rank] = new int[program.size()][];
            for (int at = 0; at < program.size(); at++) {
                Action action = program.get(at);
                longest = Math.max(longest, action.chunks());
                if (action.kind() == Action.Kind.SEND) {
                    int[] sent = sentPerPass[rank][action.peer()];
                    if (sent == null) {
                        sent = new int[2];
                        sentPerPass[rank][action.peer()] = sent;
                    }
                    sent[0]++;
                    sent[1] += action.chunks();
                } else {
                    waitsApart[rank][at] = readersOf(program, at, false);
                    waitsInPlace[rank][at] = readersOf(program, at, collective.mayBeInPlace());
                }
            }
        }
        longestRun = longest;
    }

    /** Who must have read what before an action may write its target. */
    private int[] readersOf(List<Action> program, int writer, boolean inPlace) {
        Action write = program.get(writer);
        int[] messages = new int[ranks];
        int[] chunksSent = new int[ranks];
        int[] found = new int[3 * ranks];
        int length = 0;
        for (int at = 0; at < writer; at++) {
            Action send = program.get(at);
            if (send.kind() != Action.Kind.SEND) {
                continue;
            }
            int peer = send.peer();
            messages[peer]++;
            chunksSent[peer] += send.chunks();
            if (!send.source().overlaps(write.target(), send.chunks(), write.chunks(), inPlace)) {
                continue;
            }
            int entry = 0;
            while (entry < length && found[entry] != peer) {
                entry += 3;
            }
            length = Math.max(length, entry + 3);
            found[entry] = peer;
            found[entry + 1] = messages[peer];
            found[entry + 2] = chunksSent[peer];
        }
        return length == 0 ? NONE : Arrays.copyOf(found, length);
    }

    Action[] actions(int rank) {
        return actions[rank];
    }

    int[][] waits(int rank, boolean inPlace) {
        return inPlace ? waitsInPlace[rank] : waitsApart[rank];
    }

    int[][] sentPerPass(int rank) {
        return sentPerPass[rank];
    }

    /** How many actions all ranks together take. */
    long actionCount() {
        return actionCount;
    }

    /** A run that nobody uses. */
    ScheduleRun idleRun() {
        synchronized (idle) {
            if (!idle.isEmpty()) {
                return idle.pop();
            }
        }
        return new ScheduleRun(this);
    }

    /** Takes back a run that has finished. */
    void recycle(ScheduleRun run) {
        synchronized (idle) {
            if (idle.size() < IDLE_RUNS) {
                idle.push(run);
            }
        }
    }
}
