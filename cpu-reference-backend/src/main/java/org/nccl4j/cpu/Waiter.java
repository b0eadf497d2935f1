package org.nccl4j.cpu;

import java.util.concurrent.locks.LockSupport;

/** A thread that waits for a change of state, or whatever else shall happen then. */
abstract class Waiter extends Chore {
    private final Thread thread = Thread.currentThread();

    /** Whether the wait has ended. Asked with the scheduler's lock held. */
    abstract boolean isOver();

    /** As {@link #isOver} without the lock: only a hint, which may come late. */
    boolean seemsOver() {
        return false;
    }

    @Override
    Chore perform(long budgetBytes) {
        LockSupport.unpark(thread);
        return null;
    }
}
