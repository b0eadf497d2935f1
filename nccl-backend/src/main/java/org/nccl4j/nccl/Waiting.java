package org.nccl4j.nccl;

import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/**
 * Waiting for what native code does, of which nobody can be told: first spinning, then giving way,
 * then parking for longer and longer.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class Waiting {
    private static final long SPIN_NANOS = 20_000;
    private static final long YIELD_NANOS = 100_000;
    private static final long LONGEST_PARK_NANOS = 1_000_000;

    private Waiting() {}

    /** How a wait ended. */
    enum Outcome {
        OVER,
        OUT_OF_TIME,
        /** The thread's interrupt flag is still set. */
        INTERRUPTED
    }

    /** Waits until something is over. */
    static Outcome until(BooleanSupplier over, long startNanos, long budgetNanos) {
        return until(over, startNanos, budgetNanos, true);
    }

    /** As {@link #until}, for what cannot be left half done. */
    static Outcome untilUninterruptibly(BooleanSupplier over, long startNanos, long budgetNanos) {
        return until(over, startNanos, budgetNanos, false);
    }

    private static Outcome until(
            BooleanSupplier over, long startNanos, long budgetNanos, boolean interruptible) {
        long begin = System.nanoTime();
        // A park returns at once while the flag is set.
        boolean interrupted = !interruptible && Thread.interrupted();
        try {
            while (!over.getAsBoolean()) {
                if (Thread.currentThread().isInterrupted()) {
                    if (interruptible) {
                        return Outcome.INTERRUPTED;
                    }
                    interrupted = true;
                    Thread.interrupted();
                }
                long now = System.nanoTime();
                long left = budgetNanos - (now - startNanos);
                if (left <= 0) {
                    return Outcome.OUT_OF_TIME;
                }
                pause(now - begin, left);
            }
            return Outcome.OVER;
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** A pause of a loop that has waited for some time. */
    static void pause(long waitedNanos, long leftNanos) {
        if (waitedNanos < SPIN_NANOS) {
            Thread.onSpinWait();
        } else if (waitedNanos < YIELD_NANOS) {
            Thread.yield();
        } else {
            LockSupport.parkNanos(
                    Math.min(leftNanos, Math.min(LONGEST_PARK_NANOS, waitedNanos / 4)));
        }
    }
}
