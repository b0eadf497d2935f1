package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;

/**
 * Data to be moved by whoever is there: a joined operation, or a stream's own copy or fill. It is
 * cut into {@link Shares}; several threads may run one work, each advancing another share.
 *
 * <p>Thread safety: fields are guarded by the scheduler's lock. A share is advanced by the thread
 * that has claimed it.
 */
abstract class Work extends Chore {
    /** Smaller works cost as much as this: what it takes to run anything at all. */
    static final long LEAST_COST_BYTES = 1 << 10;

    /**
     * A step costs as much as this many bytes even if it moves fewer. With many ranks it is steps
     * that take the time: a ring of n ranks has about 2 n^2.
     */
    private static final long STEP_COST_BYTES = 64;

    final Shares shares;

    /** The next of those that are open. */
    Work nextOpen;

    /**
     * Whether it is in somebody's hands without being open: one thread is to begin it, or runs all
     * of it, or it is run as part of another.
     */
    boolean alone;

    /** Whether it has been completed. */
    boolean complete;

    /** Whether its shares are open, and no thread has come to the lock to end it. */
    boolean open;

    /**
     * A work that is not open.
     *
     * @param mostShares how many shares it may ever have
     */
    Work(int mostShares) {
        shares = new Shares(this, mostShares);
    }

    /** Makes it ready for a new life. Lock held. */
    final void renew() {
        shares.close();
        alone = false;
        complete = false;
        open = false;
    }

    /** Gives it to one thread, which is to begin it. Lock held. */
    final void take() {
        gather();
        alone = true;
    }

    /** Takes along what is bound to follow it, if it can. Lock held. */
    abstract void gather();

    /** Whether any thread is, or is about to be, running or ending it. Lock held. */
    final boolean isBeingRun() {
        return alone || (open && shares.haveThreads());
    }

    /** What running it takes, as bytes to be moved. */
    final long costBytes() {
        return costBytes(sizeBytes(), steps());
    }

    /** What running a work of some bytes and steps takes, as bytes to be moved. */
    static long costBytes(long sizeBytes, long steps) {
        return Math.max(LEAST_COST_BYTES, Math.max(sizeBytes, STEP_COST_BYTES * steps));
    }

    /** Bytes that are moved in all, roughly. */
    abstract long sizeBytes();

    /** Steps that are taken in all, roughly. */
    abstract long steps();

    /**
     * Called once, without the lock, before anybody runs it.
     *
     * @return what its runners advance
     */
    abstract Engine.Pieces begin();

    /** Called once, without the lock, when nobody advances it any more. */
    abstract void end();

    /** Something threw while a share (or -1: the whole) was being advanced. Lock held. */
    abstract void broke(int share, Throwable failure);

    /** The same where there is no memory or no stack to tell what. Lock held. */
    abstract void brokeWithoutWords(Throwable failure);

    /** Whether memory that it uses has been closed by its owner. Asked by a runner. */
    abstract boolean usesClosedArena();

    /** All shares are done. Lock held. */
    abstract void completed();

    /** It was abandoned and nobody runs it any more. Lock held. May be called again. */
    abstract void givenUp();

    /** Complete: the object may be used again. Lock held. */
    abstract void unused();

    static boolean isClosed(MemorySegment segment) {
        return segment != null && !segment.scope().isAlive();
    }

    /** Runs it whole, alone. */
    @Override
    final Chore perform(long budgetBytes) {
        return scheduler().workers().runAlone(this, budgetBytes);
    }

    abstract Scheduler scheduler();
}
