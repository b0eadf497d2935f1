package org.nccl4j.nccl;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.nccl4j.collectives.CollectiveException;

/**
 * Looks again and again at what is to be done once streams have passed some work, because CUDA does
 * not tell: completion stages, streams and memory that were closed while in use. Its thread lives
 * while there is something to look at.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class Poller {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    private static final long SHORTEST_PAUSE_NANOS = 50_000;
    private static final long LONGEST_PAUSE_NANOS = 2_000_000;
    private static final long LINGER_NANOS = 1_000_000_000;

    static final Poller SHARED = new Poller();

    /** Something to be done in time. */
    interface Matter {
        /**
         * Looks, and does it if it can be done now. Must not wait.
         *
         * @return whether it is done
         */
        boolean isSettled();
    }

    // ---- guarded by this

    private final List<Matter> matters = new ArrayList<>();
    private Thread thread;
    private long added;

    private Poller() {}

    synchronized void add(Matter matter) {
        matters.add(matter);
        added++;
        if (thread == null) {
            thread = NativeThread.start("poller", this::run);
        } else {
            LockSupport.unpark(thread);
        }
    }

    private void run() {
        try {
            CudaRuntime.useThreadLocalCaptureMode();
        } catch (CollectiveException e) {
            LOG.log(
                    System.Logger.Level.WARNING,
                    "captures of other threads in global mode may be disturbed",
                    e);
        }
        long pauseNanos = SHORTEST_PAUSE_NANOS;
        long seen = 0;
        while (true) {
            List<Matter> now;
            boolean isNew;
            synchronized (this) {
                now = List.copyOf(matters);
                isNew = added != seen;
                seen = added;
            }
            boolean progressed = false;
            for (Matter matter : now) {
                if (isSettled(matter)) {
                    progressed = true;
                    synchronized (this) {
                        matters.remove(matter);
                    }
                }
            }
            pauseNanos =
                    progressed || isNew
                            ? SHORTEST_PAUSE_NANOS
                            : Math.min(LONGEST_PAUSE_NANOS, pauseNanos * 3 / 2);
            if (!linger(pauseNanos, seen)) {
                return;
            }
        }
    }

    /** Returns false when its thread has nothing to do any more. */
    private boolean linger(long pauseNanos, long seen) {
        boolean empty;
        synchronized (this) {
            empty = matters.isEmpty();
        }
        LockSupport.parkNanos(this, empty ? LINGER_NANOS : pauseNanos);
        synchronized (this) {
            if (empty && added == seen && matters.isEmpty()) {
                thread = null;
                return false;
            }
        }
        return true;
    }

    /** What fails will not get better: it is reported and left. */
    private static boolean isSettled(Matter matter) {
        try {
            return matter.isSettled();
        } catch (RuntimeException | Error e) {
            LOG.log(System.Logger.Level.ERROR, "gave up on " + matter, e);
            return true;
        }
    }
}
