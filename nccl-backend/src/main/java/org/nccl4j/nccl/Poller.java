package org.nccl4j.nccl;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

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
        /** The device that is to be current when it is looked at. */
        NcclDevice device();

        /**
         * Looks, and does it if it can be done now. Must not wait.
         *
         * @return whether it is done
         */
        boolean isSettled();
    }

    /** So often something may fail before it is given up. */
    private static final int MOST_FAILURES = 100;

    /** A matter, and how often looking at it has failed; only its thread counts. */
    private static final class Entry {
        final Matter matter;
        int failures;

        Entry(Matter matter) {
            this.matter = matter;
        }
    }

    // ---- guarded by this

    private final List<Entry> entries = new ArrayList<>();
    private Thread thread;
    private long added;

    private Poller() {}

    synchronized void add(Matter matter) {
        entries.add(new Entry(matter));
        added++;
        if (thread == null) {
            thread = NativeThread.start("poller", matter.device(), this::run);
        } else {
            LockSupport.unpark(thread);
        }
    }

    private void run() {
        long pauseNanos = SHORTEST_PAUSE_NANOS;
        long seen = 0;
        while (true) {
            List<Entry> now;
            boolean isNew;
            synchronized (this) {
                now = List.copyOf(entries);
                isNew = added != seen;
                seen = added;
            }
            boolean progressed = false;
            for (Entry entry : now) {
                if (isSettled(entry)) {
                    progressed = true;
                    synchronized (this) {
                        entries.remove(entry);
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
            empty = entries.isEmpty();
        }
        LockSupport.parkNanos(this, empty ? LINGER_NANOS : pauseNanos);
        synchronized (this) {
            if (empty && added == seen && entries.isEmpty()) {
                thread = null;
                return false;
            }
        }
        return true;
    }

    /** What fails once may go well the next time. */
    private static boolean isSettled(Entry entry) {
        try {
            CurrentDevice.stay(entry.matter.device());
            return entry.matter.isSettled();
        } catch (RuntimeException | Error e) {
            entry.failures++;
            boolean over = entry.failures >= MOST_FAILURES;
            if (over || entry.failures == 1) {
                LOG.log(
                        System.Logger.Level.ERROR,
                        (over ? "gave up on " : "will look again at ") + entry.matter,
                        e);
            }
            return over;
        }
    }
}
