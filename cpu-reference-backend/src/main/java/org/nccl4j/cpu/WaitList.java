package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;

/** Those who wait for one object. Guarded by the scheduler's lock. */
final class WaitList {
    private final List<Waiter> waiters = new ArrayList<>(0);

    void add(Waiter waiter) {
        waiters.add(waiter);
    }

    void remove(Waiter waiter) {
        waiters.remove(waiter);
    }

    /** Lets those go whose wait has ended. */
    void wake(Scheduler scheduler) {
        for (int i = waiters.size() - 1; i >= 0; i--) {
            if (waiters.get(i).isOver()) {
                Waiter waiter = waiters.remove(i);
                waiter.putInHands();
                scheduler.defer(waiter);
            }
        }
    }
}
