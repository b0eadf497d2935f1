package org.nccl4j.cpu;

import java.util.concurrent.locks.LockSupport;

/** A thread that waits for a change of state, or whatever else shall happen then. */
abstract class Waiter extends Chore {
    private final Thread thread = Thread.currentThread();

    /** Whether the wait has ended. Asked with the scheduler's lock held. */
    boolean isOver() {
        return seemsOver();
    }

    /** As {@link #isOver}, but without the lock it is only a hint, which may come late. */
    abstract boolean seemsOver();

    @Override
    Chore perform(long budgetBytes) {
        LockSupport.unpark(thread);
        return null;
    }
}
