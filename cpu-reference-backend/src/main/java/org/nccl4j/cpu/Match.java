package org.nccl4j.cpu;

import java.util.Arrays;
import org.nccl4j.collectives.CollectiveException;

/**
 * Where the parts of one operation meet: all ranks' calls with one number on a communicator, or a
 * send and a receive with one number on an ordered pair of ranks. Calls are posted and compared
 * when they are enqueued; they arrive when their streams have come to them; when all have arrived
 * the operation is joined and its data can be moved. Used again and again.
 *
 * <p>Thread safety: guarded by the scheduler's lock until it is joined or {@linkplain Train taken
 * along} by another; then runners read it, and nothing of what they read changes until they have
 * left.
 */
final class Match extends Work implements OperationOfParts {
    final Clique clique;

    /** Ranks of a pair; -1 in a collective. */
    final int senderRank;

    final int receiverRank;

    /** The call that was posted first; the others must agree with it. */
    final Part first = new Part();

    int firstRank;
    long number;
    int posted;
    int arrived;
    boolean joined;
    long joinedNanos;

    /** What is joined on the host instead of on streams, or null. */
    HostCall host;

    private final Part[] parts;
    private final EndOfRun endOfRun = new EndOfRun();
    private boolean isGivenUp;
    private Engine.Run run;

    /** The operations that it takes along, itself first; made when first needed. */
    private Train train;

    /** Whether another operation takes it along. */
    private boolean takenAlong;

    private long sizeBytes;
    private long steps;

    Match(Clique clique, int senderRank, int receiverRank) {
        super(clique.engine.mostShares(senderRank < 0 ? clique.size : 2));
        this.clique = clique;
        this.senderRank = senderRank;
        this.receiverRank = receiverRank;
        this.parts = new Part[senderRank < 0 ? clique.size : 2];
    }

    /** Starts a new life with another number. */
    void open(long newNumber) {
        renew();
        number = newNumber;
        posted = 0;
        arrived = 0;
        joined = false;
        isGivenUp = false;
        host = null;
        run = null;
        takenAlong = false;
        Arrays.fill(parts, null);
    }

    @Override
    public Clique clique() {
        return clique;
    }

    @Override
    public int senderRank() {
        return senderRank;
    }

    @Override
    public int receiverRank() {
        return receiverRank;
    }

    @Override
    public Part first() {
        return first;
    }

    /** Whether a participant has posted its call, empty ones included. */
    boolean isPostedBy(int participant) {
        if (!isPair()) {
            return clique.members[participant].nextNumber > number;
        }
        return participant == 0
                ? clique.members[senderRank].nextSend[receiverRank] > number
                : clique.members[receiverRank].nextRecv[senderRank] > number;
    }

    @Override
    public Part part(int participant) {
        return parts[participant];
    }

    /** Whether the slot may be used for another number. */
    boolean isRetired() {
        return posted == parts.length && complete;
    }

    /**
     * Takes a rank's call.
     *
     * @return null, or how it contradicts or spoils what other ranks have called
     */
    CollectiveException post(int participant, int rank, Part part) {
        part.match = this;
        part.participant = participant;
        part.number = number;
        if (posted++ == 0) {
            first.describe(part);
            first.send = null;
            first.recv = null;
            firstRank = rank;
        } else if (!part.agreesWith(first)) {
            return Wording.mismatch(this, rank, part);
        }
        if (!part.isEmpty()) {
            parts[participant] = part;
        }
        if (posted == parts.length) {
            PairCount contradiction = contradictingPair();
            if (contradiction != null) {
                return Wording.pairMismatch(this, contradiction);
            }
            complete = part.isEmpty();
            if (!complete) {
                return clique.overlaps.check(this);
            }
        }
        return null;
    }

    /** Notes that a rank's streams have come to it. */
    void arrive(Part part) {
        part.arrived = true;
        if (++arrived == parts.length) {
            joined = true;
            // One of a train has been weighed, and is not measured.
            if (!takenAlong) {
                weigh();
                if (isMeasured()) {
                    joinedNanos = System.nanoTime();
                }
            }
            clique.running++;
            scheduler().joined(this);
        }
    }

    /** Finds out what it takes to run it. */
    void weigh() {
        sizeBytes = bytesOfParts();
        steps = clique.engine.steps(this);
    }

    /** Whether somebody wants to know when it began and ended. */
    boolean isMeasured() {
        for (Part each : parts) {
            if (each.record != null) {
                return true;
            }
        }
        return false;
    }

    /** Whether all participants have called it. */
    boolean isPostedByAll() {
        return posted == parts.length;
    }

    /** Whether it is joined and in nobody's hands. */
    boolean isWaitingForRunner() {
        return joined && !alone && !open && !complete && !shares.areAbandoned();
    }

    /** Whether it is run together with another operation, as one of its train. */
    boolean isTakenAlong() {
        return takenAlong;
    }

    void takeAlong(boolean yes) {
        takenAlong = yes;
    }

    @Override
    void gather() {
        if (leadsTrain()) {
            // It has been in somebody's hands who has not begun it.
            return;
        }
        try {
            if (train == null) {
                train = new Train(shares.most());
            }
            train.gather(this);
        } catch (OutOfMemoryError e) {
            // Nothing is lost: it runs by itself, which needs no memory here.
            if (train != null) {
                train.clear();
            }
        }
    }

    private boolean leadsTrain() {
        return train != null && !train.isEmpty();
    }

    @Override
    Scheduler scheduler() {
        return clique.scheduler;
    }

    @Override
    long sizeBytes() {
        return sizeBytes;
    }

    @Override
    long steps() {
        return steps;
    }

    @Override
    Engine.Pieces begin() {
        return leadsTrain() ? train.begin() : start();
    }

    /** Has the engine start it. */
    Engine.Run start() {
        run = clique.engine.start(this);
        return run;
    }

    @Override
    void end() {
        if (leadsTrain()) {
            train.end();
        } else {
            finish();
        }
    }

    /** Tells the engine that all of it is done. */
    void finish() {
        Engine.Run done = run;
        run = null;
        done.finish(true);
    }

    @Override
    void broke(int share, Throwable failure) {
        CollectiveException cause;
        try {
            Match guilty = leadsTrain() ? train.guilty(share) : this;
            cause = Wording.broke(guilty, share, failure);
        } catch (OutOfMemoryError | StackOverflowError e) {
            cause = clique.failureWithoutWords(e);
        }
        scheduler().fail(clique, cause);
    }

    @Override
    void brokeWithoutWords(Throwable failure) {
        if (clique.cause == null) {
            // The watchdog does the rest.
            clique.cause = clique.failureWithoutWords(failure);
        }
        shares.abandon();
    }

    @Override
    boolean usesClosedArena() {
        return leadsTrain() ? train.usesClosedArena() : usesClosedMemory();
    }

    @Override
    void completed() {
        scheduler().completed(this);
        if (leadsTrain()) {
            for (int i = 0; i < train.followers(); i++) {
                train.follower(i).completedBehind();
            }
            train.clear();
        }
    }

    private void completedBehind() {
        assert joined : "taken along, but not behind the first";
        alone = false;
        complete = true;
        scheduler().completed(this);
        unused();
    }

    @Override
    void givenUp() {
        if (isGivenUp) {
            return;
        }
        giveUp();
        if (leadsTrain()) {
            for (int i = 0; i < train.followers(); i++) {
                train.follower(i).giveUp();
            }
            train.clear();
        }
        scheduler().abortIfDue(clique);
    }

    private void giveUp() {
        isGivenUp = true;
        alone = false;
        if (joined) {
            clique.running--;
        }
        if (run != null) {
            scheduler().defer(endOfRun);
        }
    }

    @Override
    void unused() {
        clique.retire(this);
    }

    @Override
    public long sequence() {
        return number;
    }

    @Override
    public int participants() {
        return parts.length;
    }

    @Override
    public void countSent(int participant, int peer, long bytes) {
        clique.countSent(rank(participant), rank(peer), bytes);
    }

    /** Lets an engine clean up after an operation that was given up. */
    private final class EndOfRun extends Chore {
        @Override
        Chore perform(long budgetBytes) {
            try {
                run.finish(false);
            } catch (RuntimeException | Error e) {
                scheduler()
                        .report(
                                "the engine failed to clean up after an operation that was given up",
                                e);
            }
            return null;
        }
    }
}
