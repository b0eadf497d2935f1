package org.nccl4j.nccl;

import java.util.ArrayList;
import java.util.List;
import org.nccl4j.collectives.CollectiveException;

/**
 * Frees memory of a device whose buffers have been closed. Freeing waits for the device, and while
 * a kernel of NCCL there waits for a rank that the same thread or lock drives, that would be for
 * ever. So memory is freed when the streams have passed the work that uses it, and nothing else of
 * ours is under way on the device.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class Reaper implements Poller.Matter {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    private final NcclDevice device;

    /** Held while freeing, for which nobody who closes a buffer shall wait. */
    private final Object freeing = new Object();

    // ---- guarded by this

    private final List<NcclMemory> waiting = new ArrayList<>();
    private boolean polled;

    Reaper(NcclDevice device) {
        this.device = device;
    }

    synchronized void add(NcclMemory memory) {
        waiting.add(memory);
        if (!polled) {
            polled = true;
            Poller.SHARED.add(this);
        }
    }

    /** What has been closed and not freed. */
    synchronized long waitingBytes() {
        long bytes = 0;
        for (NcclMemory memory : waiting) {
            bytes += memory.sizeBytes();
        }
        return bytes;
    }

    @Override
    public boolean isSettled() {
        freePassed();
        synchronized (this) {
            polled = !waiting.isEmpty();
            return !polled;
        }
    }

    /** Frees what can be freed now. */
    void freePassed() {
        synchronized (freeing) {
            List<NcclMemory> closed;
            synchronized (this) {
                closed = List.copyOf(waiting);
            }
            List<NcclMemory> passed = closed.stream().filter(NcclMemory::isPassed).toList();
            if (passed.isEmpty() || !device.beginFreeing()) {
                return;
            }
            try {
                for (NcclMemory memory : passed) {
                    if (free(memory)) {
                        remove(memory);
                    }
                }
            } finally {
                device.endFreeing();
            }
        }
    }

    private synchronized void remove(NcclMemory memory) {
        waiting.remove(memory);
    }

    private static boolean free(NcclMemory memory) {
        try {
            return memory.free();
        } catch (CollectiveException e) {
            LOG.log(System.Logger.Level.ERROR, "memory is lost", e);
            return true;
        }
    }

    @Override
    public String toString() {
        return "memory of " + device + " that is to be freed";
    }
}
