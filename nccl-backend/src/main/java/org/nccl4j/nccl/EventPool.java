package org.nccl4j.nccl;

import java.util.Arrays;

/**
 * CUDA events of a device that are used again and again: making one costs more than recording it.
 * An event may be given back while a stream has yet to pass its mark; waits that were made on the
 * mark keep it in mind.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class EventPool {
    private final NcclDevice device;

    // ---- guarded by this

    private long[] timed = new long[4];
    private int timedCount;
    private long[] untimed = new long[4];
    private int untimedCount;

    EventPool(NcclDevice device) {
        this.device = device;
    }

    /**
     * An event, made if there is none.
     *
     * @param isTimed whether it can tell the time, for which recording costs a little more
     */
    long take(boolean isTimed) {
        synchronized (this) {
            if (isTimed && timedCount > 0) {
                return timed[--timedCount];
            }
            if (!isTimed && untimedCount > 0) {
                return untimed[--untimedCount];
            }
        }
        return device.call(() -> CudaRuntime.createEvent(isTimed, "making an event of " + device));
    }

    void giveBack(long event, boolean isTimed) {
        if (!device.isRetained()) {
            destroy(event);
            return;
        }
        synchronized (this) {
            if (isTimed) {
                if (timedCount == timed.length) {
                    timed = Arrays.copyOf(timed, 2 * timedCount);
                }
                timed[timedCount++] = event;
            } else {
                if (untimedCount == untimed.length) {
                    untimed = Arrays.copyOf(untimed, 2 * untimedCount);
                }
                untimed[untimedCount++] = event;
            }
        }
        if (!device.isRetained()) {
            // The last one has gone in between.
            drain();
        }
    }

    /** Destroys those that nobody has taken. */
    void drain() {
        long[] unused;
        synchronized (this) {
            unused = Arrays.copyOf(timed, timedCount + untimedCount);
            System.arraycopy(untimed, 0, unused, timedCount, untimedCount);
            timedCount = 0;
            untimedCount = 0;
        }
        for (long event : unused) {
            destroy(event);
        }
    }

    private void destroy(long event) {
        device.giveBack(() -> CudaRuntime.destroyEvent(event, "giving back an event of " + device));
    }
}
