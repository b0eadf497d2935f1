package org.nccl4j.cpu;

import java.util.concurrent.locks.LockSupport;

/** A thread that waits for a change of state, or whatever else shall happen then. */
abstract class Waiter extends Chore {
    private Thread thread = Thread.currentThread();

    /** Whether somebody has it who is to wake the thread, and has not done so. */
    private volatile boolean inHands;

    /** What its thread does while it waits, kept to be used again; null until it has waited. */
    Workers.Runner runner;

    /** Says that somebody has it now who is to {@link #perform} it. Lock held. */
    final void putInHands() {
        inHands = true;
    }

    /**
     * Its wait is over. Lock held, and it is in no list.
     *
     * @return true if nobody is about to perform it: then it may be used again
     */
    final boolean release() {
        if (inHands) {
            return false;
        }
        thread = null;
        return true;
    }

    /** Stands for the calling thread from now on. */
    final void useAgain() {
        thread = Thread.currentThread();
    }

    /** Whether the wait has ended. Asked with the scheduler's lock held. */
    boolean isOver() {
        return seemsOver();
    }

    /** As {@link #isOver}, but without the lock it is only a hint, which may come late. */
    abstract boolean seemsOver();

    @Override
    Chore perform(long budgetBytes) {
        Thread sleeper = thread;
        // From here on it may be in use again.
        inHands = false;
        LockSupport.unpark(sleeper);
        return null;
    }
}
