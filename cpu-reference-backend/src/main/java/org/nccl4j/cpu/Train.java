package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicIntegerArray;

/**
 * Operations that are run as one work: the first of them, and those that nothing else than it keeps
 * from running. Their runners go from one to the next by themselves, and the scheduler hears of all
 * of them at the end. To end one operation and to begin the next, with the lock, takes as long as
 * moving 64 KiB; in a train a runner only waits until the others have done their shares of what was
 * before.
 *
 * <p>They come in <em>rounds</em>. The first round is a joined operation, and whatever else the
 * batches that it belongs to have joined. The next one is what joins when that is done: each stream
 * of the round before has another batch waiting, and these batches have all they need in one
 * another. Operations of one round may run at the same time.
 *
 * <p>Share i is share i of each operation, one after the other. One that an operation does not have
 * is done at once.
 *
 * <p>Thread safety: gathered and cleared with the scheduler's lock held, by {@link #begin} and
 * {@link #end} in one thread while no share is advanced; shares as {@link Engine.Pieces} says.
 */
final class Train implements Engine.Pieces {
    /** The most operations. */
    static final int MOST = 64;

    /**
     * The most that all of them may cost. What waits for one of them has to wait for the last, so
     * that is one or two tenths of a millisecond; what is larger gains nothing.
     */
    static final long MOST_BYTES = 8 << 20;

    private static final int LINE_INTS = 16;

    private final Match[] operations = new Match[MOST];

    /** For each of them the first of its round. */
    private final int[] firstOfRound = new int[MOST];

    /** For each of them how many the other shares must have done before a share can begin it. */
    private final int[] needed = new int[MOST];

    /** Whether the run of the round before carries it out as well. */
    private final boolean[] repeating = new boolean[MOST];

    private final Engine.Run[] runs = new Engine.Run[MOST];
    private final List<CpuStream> streams = new ArrayList<>();

    private final int mostShares;
    private int count;
    private int shares;
    private long leftBytes;

    /** How many operations are done, by share, a cache line each. */
    private final AtomicIntegerArray done;

    /** Which operation is being begun or ended; -1 in between. */
    private int beginningOrEnding = -1;

    /**
     * An empty one.
     *
     * @param mostShares how many shares an operation may have to be taken
     */
    Train(int mostShares) {
        this.mostShares = mostShares;
        this.done = new AtomicIntegerArray((mostShares + 1) * LINE_INTS);
    }

    private static int word(int share) {
        return (share + 1) * LINE_INTS;
    }

    // ---- with the lock

    boolean isEmpty() {
        return count == 0;
    }

    /** The operations but the first. */
    int followers() {
        return Math.max(0, count - 1);
    }

    Match follower(int index) {
        return operations[index + 1];
    }

    void clear() {
        Arrays.fill(runs, 0, count, null);
        removeFrom(0);
        streams.clear();
        beginningOrEnding = -1;
    }

    /**
     * Fills an empty one; it stays empty if nothing follows.
     *
     * @param first joined, and in nobody's hands yet
     */
    void gather(Match first) {
        boolean gathered = false;
        try {
            gathered = hasSomethingBehind(first) && addRounds(first);
        } finally {
            if (!gathered) {
                clear();
            }
        }
    }

    /** A quick look: most often nothing has been enqueued behind a single operation. */
    private static boolean hasSomethingBehind(Match first) {
        Batch batch = first.part(0).batch;
        return batch.parts.size() > 1 || batch.streams.getFirst().batchBehindHead(1) != null;
    }

    /** Adds all there is, and takes what is joined from whoever waits for a runner of it. */
    private boolean addRounds(Match first) {
        leftBytes = MOST_BYTES;
        if (!addFirstRound(first)) {
            return false;
        }
        int siblings = count;
        int round = 1;
        int before = count;
        while (addRound(round, before)) {
            round++;
            before = count;
        }
        removeFrom(before);
        if (count == 1) {
            return false;
        }
        // From here on nothing needs memory.
        for (int i = 1; i < siblings; i++) {
            first.scheduler().withdraw(operations[i]);
        }
        return true;
    }

    private boolean addFirstRound(Match first) {
        if (!add(first, 0)) {
            return false;
        }
        for (int i = 0; i < count; i++) {
            Match operation = operations[i];
            for (int participant = 0; participant < operation.participants(); participant++) {
                Batch batch = operation.part(participant).batch;
                if (batch.streams.size() != 1) {
                    return false;
                }
                CpuStream stream = batch.streams.getFirst();
                if (!streams.contains(stream)) {
                    streams.add(stream);
                    if (!addJoined(batch)) {
                        return false;
                    }
                }
            }
        }
        return true;
    }

    private boolean addJoined(Batch batch) {
        if (batch.parts.size() > MOST) {
            return false;
        }
        for (int i = 0; i < batch.parts.size(); i++) {
            Part part = batch.parts.get(i);
            if (!part.ended
                    && !isAdded(part.match)
                    && !(part.match.isWaitingForRunner() && add(part.match, 0))) {
                return false;
            }
        }
        return true;
    }

    private boolean addRound(int round, int before) {
        int parts = 0;
        int participants = 0;
        for (int i = 0; i < streams.size(); i++) {
            Batch batch = streams.get(i).batchBehindHead(round);
            if (batch == null
                    // Another one's may have failed, with parts that are in no match.
                    || batch.member.clique != operations[0].clique
                    || batch.cancelled
                    || batch.waitsForHostCall()
                    || batch.streams.size() != 1) {
                return false;
            }
            parts += batch.parts.size();
            for (int p = 0; p < batch.parts.size(); p++) {
                Part part = batch.parts.get(p);
                if (part.isEmpty() || !part.match.isPostedByAll()) {
                    return false;
                }
                if (!isAdded(part.match)) {
                    part.match.weigh();
                    if (!add(part.match, before)) {
                        return false;
                    }
                    participants += part.match.participants();
                }
            }
        }
        // Else some operation has a part that is not in these batches.
        return parts == participants;
    }

    private boolean isAdded(Match operation) {
        return operation.isTakenAlong() || operation == operations[0];
    }

    private boolean add(Match operation, int before) {
        if (count == MOST
                || operation.costBytes() > leftBytes
                || operation.isMeasured()
                || operation.shares.most() > mostShares) {
            return false;
        }
        leftBytes -= operation.costBytes();
        firstOfRound[count] = before;
        operations[count] = operation;
        operation.takeAlong(count > 0);
        count++;
        return true;
    }

    private void removeFrom(int index) {
        while (count > index) {
            count--;
            operations[count].takeAlong(false);
            operations[count] = null;
        }
    }

    /**
     * Which operation a share is at; for -1 the one that is being begun or ended, or else the one
     * that is furthest behind.
     */
    Match guilty(int share) {
        int guilty = share < 0 ? beginningOrEnding : done.get(word(share));
        if (guilty < 0) {
            guilty = count - 1;
            for (int each = 0; each < shares; each++) {
                guilty = Math.min(guilty, done.get(word(each)));
            }
        }
        return operations[Math.min(count - 1, guilty)];
    }

    // ---- without the lock

    Engine.Pieces begin() {
        shares = 0;
        int before = 0;
        int others = 0;
        for (int round = 0; round < count; ) {
            int next = round;
            while (next < count && firstOfRound[next] == round) {
                next++;
            }
            boolean repeats = next - round == round - before;
            for (int i = round; repeats && i < next; i++) {
                repeats = runs[before + i - round].canRepeatAs(operations[i]);
            }
            if (!repeats) {
                others = round;
            }
            for (int i = round; i < next; i++) {
                beginningOrEnding = i;
                needed[i] = others;
                repeating[i] = repeats;
                runs[i] = repeats ? runs[before + i - round] : operations[i].start();
                shares = Math.max(shares, runs[i].shares());
            }
            before = round;
            round = next;
        }
        beginningOrEnding = -1;
        for (int share = 0; share < Math.min(shares, mostShares); share++) {
            done.setOpaque(word(share), 0);
        }
        return this;
    }

    void end() {
        for (int i = 0; i < count; i++) {
            if (!repeating[i]) {
                beginningOrEnding = i;
                int times = times(i);
                if (times > 1) {
                    runs[i].repeated(times);
                }
                operations[i].finish();
            }
        }
        beginningOrEnding = -1;
    }

    /** How many operations a run has carried out that began with one. */
    private int times(int first) {
        int times = 1;
        for (int i = first + 1; i < count; i++) {
            if (repeating[i] && runs[i].equals(runs[first])) {
                times++;
            }
        }
        return times;
    }

    /** Whether memory that one of them uses has been closed by its owner. */
    boolean usesClosedArena() {
        for (int i = 0; i < count; i++) {
            if (operations[i].usesClosedMemory()) {
                return true;
            }
        }
        return false;
    }

    @Override
    public int shares() {
        return shares;
    }

    @Override
    public Engine.Progress progress(int share) {
        int mine = done.getPlain(word(share));
        int others = needed[mine];
        for (int other = 0; others > 0 && other < shares; other++) {
            if (done.getAcquire(word(other)) < others) {
                return Engine.Progress.BLOCKED;
            }
        }
        Engine.Run run = runs[mine];
        Engine.Progress progress =
                share < run.shares() ? run.progress(share) : Engine.Progress.DONE;
        if (progress != Engine.Progress.DONE) {
            return progress;
        }
        int next = mine + 1;
        if (next < count && repeating[next] && share < runs[next].shares()) {
            runs[next].repeat(share);
        }
        done.setRelease(word(share), next);
        return next == count ? Engine.Progress.DONE : Engine.Progress.ADVANCED;
    }
}
