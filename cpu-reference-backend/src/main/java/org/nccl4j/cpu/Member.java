package org.nccl4j.cpu;

import java.io.IOException;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.UnsupportedException;

/**
 * One rank of a {@link Clique}: what its {@link CpuCommunicator} has called and what of it is not
 * complete. Guarded by the scheduler's lock. It outlives a communicator that is dropped without
 * being closed.
 */
final class Member {
    final Clique clique;
    final int rank;
    final Seat seat;

    /** Number of this rank's next collective. */
    long nextNumber;

    /** Numbers of the next send to and receive from each rank. */
    final long[] nextSend;

    final long[] nextRecv;

    /** The last host call that it has posted, if that is not complete. */
    HostCall lastHostCall;

    private boolean closing;
    boolean closed;

    /** Whether its work had been given up when it closed. */
    boolean abortedBeforeClose;

    /** Where its communicator was made; null if nobody holds it yet. */
    Watchdog.Creation creation;

    /** Dropped without being closed, and logged. */
    boolean leaked;

    /** Ends of the list of batches that are not complete. */
    Batch newest;

    Batch oldest;

    /** What it called and completed last, for messages; null kinds if nothing. */
    OperationKind lastEnqueued;

    long lastEnqueuedNumber;
    int lastEnqueuedPeer;
    OperationKind lastCompleted;
    long lastCompletedNumber;
    int lastCompletedPeer;

    // Linked, because giving back must not need memory.
    private Batch spareBatch;
    private Part sparePart;

    Member(Clique clique, int rank, Seat seat) {
        this.clique = clique;
        this.rank = rank;
        this.seat = seat;
        this.nextSend = new long[clique.size];
        this.nextRecv = new long[clique.size];
        device().open();
    }

    CpuDevice device() {
        return seat.device();
    }

    /**
     * Ends its trace, once, when it takes no more steps. Lock not held.
     *
     * @throws UnsupportedException if lines are missing in the file
     */
    void closeTrace() {
        if (seat.trace() == null) {
            return;
        }
        try {
            seat.trace().close();
        } catch (IOException e) {
            throw new UnsupportedException(
                    describe()
                            + " is closed, but its "
                            + e.getMessage()
                            + "; free space, or name another file",
                    e);
        }
    }

    boolean isClosing() {
        return closing;
    }

    /** Says whether it waits for its work to end so that it can close. */
    void setClosing(boolean yes) {
        assert Thread.holdsLock(clique.scheduler);
        if (closing != yes) {
            closing = yes;
            clique.closingMembers += yes ? 1 : -1;
        }
    }

    /** Refuses an operation that can no longer be enqueued. */
    void requireUsable(String operation) {
        assert Thread.holdsLock(clique.scheduler);
        if (closed || closing) {
            throw new InvalidArgumentException(
                    operation
                            + " on "
                            + describe()
                            + ": it "
                            + (closed ? "has been" : "is being")
                            + " closed; nothing was enqueued; create a new communicator");
        }
        if (clique.cause != null) {
            throw clique.cause.forThisThread();
        }
    }

    boolean isIdle() {
        return oldest == null;
    }

    /** The oldest host call that it has posted and that is not complete, or null. */
    HostCall openHostCall() {
        HostCall oldest = clique.hostCalls.peek();
        return oldest != null && nextNumber > oldest.number() ? oldest : null;
    }

    /** The numbering that a call of this rank is in. */
    SlotRing ring(Part part) {
        if (part.kind != OperationKind.SEND_RECV) {
            return clique.collectives();
        }
        return part.sender ? clique.pair(rank, part.root) : clique.pair(part.root, rank);
    }

    /** Which participant this rank is by a call. */
    int participant(Part part) {
        if (part.kind != OperationKind.SEND_RECV) {
            return rank;
        }
        return part.sender ? 0 : 1;
    }

    /** Takes the next number for a call. */
    long takeNumber(Part part) {
        if (part.kind != OperationKind.SEND_RECV) {
            return nextNumber++;
        }
        return part.sender ? nextSend[part.root]++ : nextRecv[part.root]++;
    }

    /** Notes for messages what it has called. */
    void noteEnqueued(Part part, long number) {
        lastEnqueued = part.kind;
        lastEnqueuedNumber = number;
        lastEnqueuedPeer = part.sender ? part.root : ~part.root;
    }

    /** Notes for messages what has ended. */
    void noteCompleted(Part part, long number) {
        lastCompleted = part.kind;
        lastCompletedNumber = number;
        lastCompletedPeer = part.sender ? part.root : ~part.root;
    }

    Batch takeBatch() {
        assert Thread.holdsLock(clique.scheduler);
        Batch batch = spareBatch;
        if (batch == null) {
            return new Batch(this);
        }
        spareBatch = batch.newer;
        batch.newer = null;
        return batch;
    }

    Part addPart(Batch batch) {
        assert Thread.holdsLock(clique.scheduler);
        Part part = sparePart;
        if (part == null) {
            part = new Part();
        } else {
            sparePart = part.nextSpare;
            part.nextSpare = null;
        }
        part.batch = batch;
        batch.parts.add(part);
        return part;
    }

    void giveBack(Batch batch) {
        assert Thread.holdsLock(clique.scheduler);
        for (int i = 0; i < batch.parts.size(); i++) {
            Part part = batch.parts.get(i);
            part.clear();
            part.nextSpare = sparePart;
            sparePart = part;
        }
        batch.parts.clear();
        batch.streams.clear();
        batch.started = false;
        batch.after = null;
        batch.newer = spareBatch;
        spareBatch = batch;
    }

    void link(Batch batch) {
        assert Thread.holdsLock(clique.scheduler);
        batch.older = newest;
        batch.newer = null;
        if (newest == null) {
            oldest = batch;
        } else {
            newest.newer = batch;
        }
        newest = batch;
    }

    void unlink(Batch batch) {
        assert Thread.holdsLock(clique.scheduler);
        if (batch.older == null) {
            oldest = batch.newer;
        } else {
            batch.older.newer = batch.newer;
        }
        if (batch.newer == null) {
            newest = batch.older;
        } else {
            batch.newer.older = batch.older;
        }
        batch.older = null;
        batch.newer = null;
        if (oldest == null) {
            clique.waiters.wake(clique.scheduler);
        }
    }

    /** For messages. */
    String describe() {
        return "rank " + rank + "/" + clique.size + " of communicator '" + clique.name + "'";
    }
}
