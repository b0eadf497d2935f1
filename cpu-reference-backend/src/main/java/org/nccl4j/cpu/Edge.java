package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * One direction between two participants of one address space. The sender posts a range, which
 * costs no copy; the receiver reads straight from it and acknowledges; until then the sender must
 * not change the range. At most {@value #DEPTH} ranges are unacknowledged.
 *
 * <p>Thread safety: one sender and one receiver at a time, on any threads. What the sender wrote
 * before posting is visible to the receiver, and the receiver's reads are over when the sender sees
 * the acknowledgement.
 */
final class Edge {
    /** Two: while the receiver reads one range the sender prepares the next. */
    static final int DEPTH = 2;

    private static final VarHandle POSTED;
    private static final VarHandle TAKEN;

    static {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            POSTED = lookup.findVarHandle(Edge.class, "posted", long.class);
            TAKEN = lookup.findVarHandle(Edge.class, "taken", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private final MemorySegment[] segments = new MemorySegment[DEPTH];
    private final long[] offsets = new long[DEPTH];
    private final long[] lengths = new long[DEPTH];

    /** Ranges posted; written by the sender. */
    private long posted;

    /** Ranges acknowledged; written by the receiver. */
    private long taken;

    /** Forgets everything; for one thread while nobody else uses the edge. */
    void reset() {
        posted = 0;
        taken = 0;
        segments[0] = null;
        segments[1] = null;
    }

    /**
     * Sender: whether at most one range is unacknowledged, so that another may be posted and every
     * range before the last may be overwritten.
     */
    boolean hasRoom() {
        return posted - (long) TAKEN.getAcquire(this) < DEPTH;
    }

    /** Sender: whether every range has been acknowledged. */
    boolean isDrained() {
        return posted == (long) TAKEN.getAcquire(this);
    }

    /** Sender: posts a range; only if there {@link #hasRoom}. */
    void post(MemorySegment segment, long offsetBytes, long sizeBytes) {
        int slot = (int) (posted % DEPTH);
        segments[slot] = segment;
        offsets[slot] = offsetBytes;
        lengths[slot] = sizeBytes;
        POSTED.setRelease(this, posted + 1);
    }

    /** Receiver: whether a range is there to be read. */
    boolean hasMessage() {
        return (long) POSTED.getAcquire(this) > taken;
    }

    /** Receiver: the memory of the oldest unacknowledged range. */
    MemorySegment segment() {
        return segments[(int) (taken % DEPTH)];
    }

    /** Receiver: where that range starts. */
    long offsetBytes() {
        return offsets[(int) (taken % DEPTH)];
    }

    /** Receiver: how long that range is. */
    long sizeBytes() {
        return lengths[(int) (taken % DEPTH)];
    }

    /** Receiver: gives the oldest range back to the sender. */
    void acknowledge() {
        TAKEN.setRelease(this, taken + 1);
    }
}
