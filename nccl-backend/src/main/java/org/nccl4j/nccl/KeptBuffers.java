package org.nccl4j.nccl;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.concurrent.atomic.AtomicBoolean;
import org.nccl4j.collectives.DeviceBuffer;

/**
 * Buffers of memory that others own, kept reachable while work of a stream uses them: what frees
 * the memory may be a cleaner of its owner's. A ring, which grows when more work is under way than
 * ever before.
 *
 * <p>Thread safety: {@link #keep} belongs to the thread that enqueues, without a lock; {@link
 * #dropPassed} may be called from any thread.
 */
final class KeptBuffers {
    private static final int FIRST_SLOTS = 64;

    private static final VarHandle BEGIN;
    private static final VarHandle END;

    static {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            BEGIN = lookup.findVarHandle(KeptBuffers.class, "begin", long.class);
            END = lookup.findVarHandle(KeptBuffers.class, "end", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    /** Held by who drops or replaces slots; that takes a moment. */
    private final AtomicBoolean dropping = new AtomicBoolean();

    // ---- a power of two of slots, replaced by the thread that keeps, while it holds `dropping`

    private DeviceBuffer[] buffers = {};
    private long[] tickets = {};

    /** Counts those that have been dropped. */
    private long begin;

    /** Counts those that have been kept. */
    private long end;

    /**
     * Keeps a buffer.
     *
     * @param buffer the buffer
     * @param ticket of the work that uses it; none is less than one before
     * @param passed the last ticket that is known to be over
     */
    void keep(DeviceBuffer buffer, long ticket, long passed) {
        long at = end;
        if (at - (long) BEGIN.getAcquire(this) == buffers.length) {
            makeRoom(passed);
        }
        int slot = (int) at & (buffers.length - 1);
        buffers[slot] = buffer;
        tickets[slot] = ticket;
        END.setRelease(this, at + 1);
    }

    private void makeRoom(long passed) {
        while (!dropping.compareAndSet(false, true)) {
            Thread.onSpinWait();
        }
        try {
            drop(passed);
            int slots = buffers.length;
            if (end - begin < slots) {
                return;
            }
            int more = Math.max(FIRST_SLOTS, 2 * slots);
            DeviceBuffer[] moreBuffers = new DeviceBuffer[more];
            long[] moreTickets = new long[more];
            for (long i = begin; i < end; i++) {
                moreBuffers[(int) i & (more - 1)] = buffers[(int) i & (slots - 1)];
                moreTickets[(int) i & (more - 1)] = tickets[(int) i & (slots - 1)];
            }
            buffers = moreBuffers;
            tickets = moreTickets;
        } finally {
            dropping.set(false);
        }
    }

    /** Drops those whose work is over; if another thread is doing that, it is left to that. */
    void dropPassed(long passed) {
        if ((long) BEGIN.getAcquire(this) != (long) END.getAcquire(this)
                && dropping.compareAndSet(false, true)) {
            try {
                drop(passed);
            } finally {
                dropping.set(false);
            }
        }
    }

    private void drop(long passed) {
        long stop = (long) END.getAcquire(this);
        long at = begin;
        while (at < stop && tickets[(int) at & (tickets.length - 1)] <= passed) {
            buffers[(int) at & (buffers.length - 1)] = null;
            at++;
        }
        BEGIN.setRelease(this, at);
    }

    /** How many are kept. */
    int count() {
        return (int) ((long) END.getAcquire(this) - (long) BEGIN.getAcquire(this));
    }
}
