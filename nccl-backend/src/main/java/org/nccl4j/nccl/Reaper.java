package org.nccl4j.nccl;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.nccl4j.collectives.CollectiveException;

/**
 * Frees memory of a device that has been closed while in use, when the streams have passed that.
 * For memory that is not of a pool CUDA waits for the whole device then, and while a kernel of NCCL
 * there waits for a rank that needs something of CUDA, that would be for ever. So such memory is
 * freed when nothing of ours has been under way on the device for a moment. That moment is no
 * guarantee: a launch may come between the look and the call, which then lasts as long as that
 * work. Hence a thread of its own, for which nobody waits. It lives while there is something to be
 * freed.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class Reaper {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    private static final long SHORTEST_PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(1);
    private static final long LONGEST_PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(20);
    private static final long LINGER_NANOS = TimeUnit.SECONDS.toNanos(1);

    /** Something to be freed. */
    interface Remains {
        long sizeBytes();

        /** Whether CUDA waits for the device when it is freed. */
        boolean needsQuiet();

        /** Whether the streams have passed all work that uses it. */
        boolean isPassed();

        /**
         * Frees it.
         *
         * @return false if it cannot be freed now
         */
        boolean free();
    }

    private final NcclDevice device;

    // ---- guarded by this

    private final List<Remains> waiting = new ArrayList<>();

    /** Whether a thread is freeing, for which nobody shall wait. */
    private boolean freeing;

    private Thread thread;

    Reaper(NcclDevice device) {
        this.device = device;
    }

    synchronized void add(Remains remains) {
        waiting.add(remains);
        if (thread == null) {
            thread = NativeThread.start("reaper-" + device.ordinal(), device, this::run);
        } else {
            LockSupport.unpark(thread);
        }
    }

    /** What waits to be freed. */
    synchronized long waitingBytes() {
        long bytes = 0;
        for (Remains remains : waiting) {
            bytes += remains.sizeBytes();
        }
        return bytes;
    }

    private void run() {
        long pauseNanos = SHORTEST_PAUSE_NANOS;
        long quietSince = -1;
        int failures = 0;
        while (true) {
            try {
                long quiet = device.quiet();
                boolean freed = freePassed(quiet >= 0 && quiet == quietSince);
                pauseNanos =
                        freed || quiet != quietSince
                                ? SHORTEST_PAUSE_NANOS
                                : Math.min(LONGEST_PAUSE_NANOS, pauseNanos * 3 / 2);
                quietSince = quiet;
                failures = 0;
            } catch (RuntimeException | Error e) {
                // There is another look, or memory would never be freed.
                LOG.log(
                        failures == 0 ? System.Logger.Level.ERROR : System.Logger.Level.DEBUG,
                        this + ": cannot look; looks again",
                        e);
                failures++;
                pauseNanos = LONGEST_PAUSE_NANOS;
            }
            boolean empty = isEmpty();
            LockSupport.parkNanos(this, empty ? LINGER_NANOS : pauseNanos);
            if (empty && isOver()) {
                return;
            }
        }
    }

    private synchronized boolean isEmpty() {
        return waiting.isEmpty();
    }

    private synchronized boolean isOver() {
        if (!waiting.isEmpty()) {
            return false;
        }
        thread = null;
        return true;
    }

    /** Frees at once what can be freed, for one who needs memory. */
    void hurry() {
        freePassed(device.quiet() >= 0);
    }

    /** Returns whether anything has been freed. */
    private boolean freePassed(boolean isQuiet) {
        List<Remains> passed;
        synchronized (this) {
            passed =
                    freeing
                            ? List.of()
                            : waiting.stream()
                                    .filter(each -> isQuiet || !each.needsQuiet())
                                    .filter(Remains::isPassed)
                                    .toList();
            if (passed.isEmpty()) {
                return false;
            }
            freeing = true;
        }
        boolean any = false;
        try {
            for (Remains remains : passed) {
                if ((!remains.needsQuiet() || device.quiet() >= 0) && free(remains)) {
                    any = true;
                    synchronized (this) {
                        waiting.remove(remains);
                    }
                }
            }
        } finally {
            synchronized (this) {
                freeing = false;
            }
        }
        return any;
    }

    /** What fails will not get better: it is reported and left, and with the device all is lost. */
    static boolean free(Remains remains) {
        try {
            return remains.free();
        } catch (CollectiveException e) {
            LOG.log(
                    CudaRuntime.isLoss(e) ? System.Logger.Level.DEBUG : System.Logger.Level.ERROR,
                    "lost " + remains,
                    e);
            return true;
        }
    }

    @Override
    public String toString() {
        return "reaper of " + device;
    }
}
