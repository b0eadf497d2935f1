package org.nccl4j.cpu;

import java.util.ArrayDeque;
import java.util.ArrayList;
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
    private static final int IDLE_RUNS = Train.MOST;

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
            for (Action action : program) {
                longest = Math.max(longest, action.chunks());
            }
            waitsApart[rank] = new int[program.size()][];
            waitsInPlace[rank] = new int[program.size()][];
            findReaders(rank);
        }
        longestRun = longest;
    }

    /** A message of a pass: how many messages and chunks its receiver got with it. */
    private record Sent(Action action, int messages, int chunks) {}

    /** Finds for each of a rank's actions who must have read what before it may write. */
    private void findReaders(int rank) {
        List<Sent> sends = new ArrayList<>();
        for (int at = 0; at < actions[rank].length; at++) {
            Action action = actions[rank][at];
            if (action.kind() == Action.Kind.SEND) {
                int[] total = sentPerPass[rank][action.peer()];
                if (total == null) {
                    total = new int[2];
                    sentPerPass[rank][action.peer()] = total;
                }
                total[0]++;
                total[1] += action.chunks();
                sends.add(new Sent(action, total[0], total[1]));
            } else {
                waitsApart[rank][at] = readersOf(sends, action, false);
                waitsInPlace[rank][at] =
                        collective.mayBeInPlace()
                                ? readersOf(sends, action, true)
                                : waitsApart[rank][at];
            }
        }
    }

    /** Of each peer the last message that shares memory with what an action writes. */
    private static int[] readersOf(List<Sent> sends, Action write, boolean inPlace) {
        int[] found = NONE;
        for (int i = sends.size() - 1; i >= 0; i--) {
            Sent sent = sends.get(i);
            Action send = sent.action;
            if (!send.source().overlaps(write.target(), send.chunks(), write.chunks(), inPlace)) {
                continue;
            }
            boolean known = false;
            for (int entry = 0; entry < found.length; entry += 3) {
                known |= found[entry] == send.peer();
            }
            if (!known) {
                found = Arrays.copyOf(found, found.length + 3);
                found[found.length - 3] = send.peer();
                found[found.length - 2] = sent.messages;
                found[found.length - 1] = sent.chunks;
            }
        }
        return found;
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
