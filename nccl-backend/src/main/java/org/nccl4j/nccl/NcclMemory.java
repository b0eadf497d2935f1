package org.nccl4j.nccl;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.spi.BufferOwner;

/**
 * One allocation, and how far each stream must be before it can be given back.
 *
 * <p>Thread safety: all methods may be called from any thread. Uses are noted without a lock: each
 * stream has its own note, and one thread at a time enqueues on a stream.
 */
final class NcclMemory extends BufferOwner {
    private enum Kind {
        DEVICE,
        PINNED,
        /** Of the device's pool, in the order of streams. */
        STREAM_ORDERED
    }

    /** The last ticket of a stream that uses it. */
    private static final class Use {
        final NcclStream stream;
        long ticket;

        Use(NcclStream stream, long ticket) {
            this.stream = stream;
            this.ticket = ticket;
        }

        boolean isPassed() {
            // The ticket may be one more than was given out for this use.
            return stream.hasPassed(Math.min(ticket, stream.issued()));
        }
    }

    private static final Use[] NONE = {};

    private final Kind kind;
    private final NcclDevice device;
    private final long address;
    private final long sizeBytes;

    /** Keeps Java from memory that has been freed; null for what Java cannot reach. */
    private final Arena arena;

    /** Where it was allocated, for stream-ordered memory. */
    private final NcclStream home;

    /** Replaced when a stream is added. */
    private volatile Use[] uses = NONE;

    private NcclMemory(
            Kind kind,
            NcclDevice device,
            long address,
            long sizeBytes,
            Arena arena,
            NcclStream home) {
        this.kind = kind;
        this.device = device;
        this.address = address;
        this.sizeBytes = sizeBytes;
        this.arena = arena;
        this.home = home;
    }

    static DeviceBuffer device(NcclDevice device, long address, long sizeBytes) {
        return DeviceBuffer.allocated(
                device,
                MemorySegment.ofAddress(address),
                sizeBytes,
                new NcclMemory(Kind.DEVICE, device, address, sizeBytes, null, null));
    }

    @SuppressWarnings("restricted")
    static DeviceBuffer pinned(NcclDevice device, long address, long sizeBytes) {
        Arena arena = Arena.ofShared();
        return DeviceBuffer.allocated(
                device,
                MemorySegment.ofAddress(address).reinterpret(sizeBytes, arena, null),
                sizeBytes,
                new NcclMemory(Kind.PINNED, device, address, sizeBytes, arena, null));
    }

    /** Memory that has just been allocated on a stream, which will give out a ticket for it. */
    static DeviceBuffer streamOrdered(NcclStream home, long address, long sizeBytes) {
        NcclMemory memory =
                new NcclMemory(Kind.STREAM_ORDERED, home.device(), address, sizeBytes, null, home);
        memory.usedBy(home);
        return DeviceBuffer.allocated(
                home.device(), MemorySegment.ofAddress(address), sizeBytes, memory);
    }

    /**
     * Notes that a stream uses a buffer; after the work has been enqueued, by the enqueuing thread.
     *
     * @param buffer any buffer, or null
     * @param stream where the work is
     */
    static void use(DeviceBuffer buffer, NcclStream stream) {
        if (buffer != null && buffer.owner() instanceof NcclMemory memory) {
            memory.usedBy(stream);
        }
    }

    /** Whether a buffer is pinned memory of this backend. */
    static boolean isPinned(DeviceBuffer buffer) {
        return buffer.owner() instanceof NcclMemory memory && memory.kind == Kind.PINNED;
    }

    private void usedBy(NcclStream stream) {
        // Right whether the ticket of the work has been given out already or comes next.
        long ticket = stream.issued() + 1;
        Use[] known = uses;
        for (int i = 0; i < known.length; i++) {
            if (known[i].stream == stream) {
                known[i].ticket = ticket;
                return;
            }
        }
        add(stream, ticket);
    }

    private synchronized void add(NcclStream stream, long ticket) {
        List<Use> kept = new ArrayList<>();
        for (Use use : uses) {
            // A stream that is still used would be added again, with its next use.
            if (use.stream == stream || !use.stream.isGone()) {
                kept.add(use);
            }
        }
        kept.add(new Use(stream, ticket));
        uses = kept.toArray(NONE);
    }

    long sizeBytes() {
        return sizeBytes;
    }

    /** Whether the streams have passed all work that uses it. */
    boolean isPassed() {
        for (Use use : uses) {
            if (!use.isPassed()) {
                return false;
            }
        }
        return true;
    }

    @Override
    public void release() {
        if (kind != Kind.STREAM_ORDERED) {
            device.reaper().add(this);
        } else if (!freeInOrder()) {
            Poller.SHARED.add(
                    new Poller.Matter() {
                        @Override
                        public boolean isSettled() {
                            return freeInOrder();
                        }

                        @Override
                        public String toString() {
                            return NcclMemory.this.toString();
                        }
                    });
        }
    }

    /**
     * Frees it; only when it has been passed and nothing is launched on the device.
     *
     * @return false if Java is reading or writing it right now
     */
    boolean free() {
        if (kind == Kind.DEVICE) {
            CudaRuntime.free(address, "freeing " + this);
            return true;
        }
        try {
            arena.close();
        } catch (IllegalStateException e) {
            // Somebody's channel reads or writes it; later.
            return false;
        }
        CudaRuntime.freeHost(address, "freeing " + this);
        return true;
    }

    /**
     * Gives stream-ordered memory back behind the work that uses it, without waiting.
     *
     * @return false if NCCL is launching on one of the streams, which nothing may touch then
     */
    private boolean freeInOrder() {
        List<NcclStream> using = new ArrayList<>();
        for (Use use : uses) {
            if (!use.isPassed()) {
                using.add(use.stream);
            }
        }
        String doing = "freeing " + this;
        if ((using.isEmpty() || using.equals(List.of(home))) && home.freeAsync(address, doing)) {
            return true;
        }
        device.retain();
        try {
            long side = device.sideStream();
            for (NcclStream stream : using) {
                if (!stream.precede(side, doing)) {
                    return false;
                }
            }
            CudaRuntime.freeAsync(address, side, doing);
            return true;
        } finally {
            device.release();
        }
    }

    @Override
    public String toString() {
        return sizeBytes
                + " bytes at 0x"
                + Long.toHexString(address)
                + " of "
                + device
                + " used by "
                + Arrays.stream(uses).map(use -> use.stream.toString()).toList();
    }
}
