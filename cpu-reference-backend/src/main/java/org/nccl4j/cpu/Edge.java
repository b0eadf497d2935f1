package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Arrays;

/**
 * One direction between two participants of one address space. The sender posts a range, which
 * costs no copy; the receiver reads straight from it and acknowledges; until then the sender must
 * not change the range. So many ranges as the edge is deep may be unacknowledged.
 *
 * <p>Thread safety: one sender and one receiver at a time, on any threads. What the sender wrote
 * before posting is visible to the receiver, and the receiver's reads are over when the sender sees
 * the acknowledgement.
 */
final class Edge implements Transport.Outgoing, Transport.Incoming {
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

    private final MemorySegment[] segments;
    private final long[] offsets;
    private final long[] lengths;

    /** Ranges posted; written by the sender. */
    private long posted;

    /** Ranges acknowledged; written by the receiver. */
    private long taken;

    /** An edge of the depth that does for what is sent and received in turn. */
    Edge() {
        this(DEPTH);
    }

    /**
     * An edge.
     *
     * @param depth how many ranges may be unacknowledged; a power of two
     */
    Edge(int depth) {
        segments = new MemorySegment[depth];
        offsets = new long[depth];
        lengths = new long[depth];
    }

    /** How many ranges may be unacknowledged. */
    int depth() {
        return segments.length;
    }

    private int slot(long number) {
        return (int) number & segments.length - 1;
    }

    /** Forgets everything; for one thread while nobody else uses the edge. */
    void reset() {
        posted = 0;
        taken = 0;
        Arrays.fill(segments, null);
    }

    /**
     * Sender: whether at most one range is unacknowledged, so that another may be posted and every
     * range before the last may be overwritten.
     */
    boolean hasRoom() {
        return posted - (long) TAKEN.getAcquire(this) < DEPTH;
    }

    @Override
    public boolean hasRoom(int ranges) {
        return posted + ranges - released() <= segments.length;
    }

    @Override
    public long released() {
        return (long) TAKEN.getAcquire(this);
    }

    /** Sender: whether every range has been acknowledged. */
    boolean isDrained() {
        return posted == (long) TAKEN.getAcquire(this);
    }

    /** Sender: posts a range; only if there {@link #hasRoom}. */
    @Override
    public void post(MemorySegment segment, long offsetBytes, long sizeBytes) {
        int slot = slot(posted);
        segments[slot] = segment;
        offsets[slot] = offsetBytes;
        lengths[slot] = sizeBytes;
        POSTED.setRelease(this, posted + 1);
    }

    /** Receiver: whether a range is there to be read. */
    @Override
    public boolean hasMessage() {
        return (long) POSTED.getAcquire(this) > taken;
    }

    /** Receiver: the memory of the oldest unacknowledged range. */
    @Override
    public MemorySegment segment() {
        return segments[slot(taken)];
    }

    /** Receiver: where that range starts. */
    @Override
    public long offsetBytes() {
        return offsets[slot(taken)];
    }

    /** Receiver: how long that range is. */
    @Override
    public long sizeBytes() {
        return lengths[slot(taken)];
    }

    /** Receiver: gives the oldest range back to the sender. */
    @Override
    public void acknowledge() {
        TAKEN.setRelease(this, taken + 1);
    }
}
