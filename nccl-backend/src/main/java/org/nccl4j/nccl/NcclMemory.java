package org.nccl4j.nccl;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.spi.BufferOwner;

/**
 * One allocation, and how far each stream must be before it can be given back.
 *
 * <p>Thread safety: all methods may be called from any thread. Uses are noted without a lock: each
 * stream has its own note, and one thread at a time enqueues on a stream.
 */
final class NcclMemory extends BufferOwner implements Reaper.Remains {
    private enum Kind {
        /** Of the device's pool: freed in a stream's order, which waits for nobody. */
        POOLED,
        DIRECT,
        PINNED
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
            return stream.hasPassedOrIsLost(Math.min(ticket, stream.issued()));
        }
    }

    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");
    private static final Use[] NONE = {};

    private final Kind kind;
    private final NcclDevice device;
    private final long address;
    private final long sizeBytes;

    /** What it is of, or null. */
    private final PinnedMemory pinned;

    /** In whose order it was allocated, or null. */
    private final NcclStream home;

    /** Of this memory, with the communicators of ranks; null while there has been none. */
    private List<NcclRegistration> registrations;

    /** Replaced when a stream is added. */
    private volatile Use[] uses = NONE;

    private NcclMemory(
            Kind kind,
            NcclDevice device,
            long address,
            long sizeBytes,
            PinnedMemory pinned,
            NcclStream home) {
        this.kind = kind;
        this.device = device;
        this.address = address;
        this.sizeBytes = sizeBytes;
        this.pinned = pinned;
        this.home = home;
    }

    /**
     * Memory of the device's pool, which has been retained for it.
     *
     * @param home in whose order it was allocated, which will give out a ticket for that, or null
     */
    static DeviceBuffer pooled(NcclDevice device, long address, long sizeBytes, NcclStream home) {
        NcclMemory memory = new NcclMemory(Kind.POOLED, device, address, sizeBytes, null, home);
        if (home != null) {
            memory.usedBy(home);
        }
        return DeviceBuffer.allocated(device, MemorySegment.ofAddress(address), sizeBytes, memory);
    }

    static DeviceBuffer direct(NcclDevice device, long address, long sizeBytes) {
        return DeviceBuffer.allocated(
                device,
                MemorySegment.ofAddress(address),
                sizeBytes,
                new NcclMemory(Kind.DIRECT, device, address, sizeBytes, null, null));
    }

    static DeviceBuffer pinned(NcclDevice device, PinnedMemory pinned, long sizeBytes) {
        MemorySegment memory = pinned.memory();
        return DeviceBuffer.allocated(
                device,
                memory,
                sizeBytes,
                new NcclMemory(Kind.PINNED, device, memory.address(), sizeBytes, pinned, null));
    }

    /**
     * Notes that a stream uses a buffer, and keeps one of others reachable until it has passed the
     * work; after that has got its ticket, by the enqueuing thread.
     *
     * @param buffer any buffer, or null
     * @param stream where the work is
     */
    static void use(DeviceBuffer buffer, NcclStream stream) {
        if (buffer == null) {
            return;
        }
        if (buffer.owner() instanceof NcclMemory memory) {
            memory.usedBy(stream);
        } else {
            stream.keep(buffer);
        }
    }

    /** Notes a registration, until the end of which the memory is kept. */
    static void registered(DeviceBuffer buffer, NcclRegistration registration) {
        if (buffer.owner() instanceof NcclMemory memory) {
            memory.add(registration);
        }
    }

    private synchronized void add(NcclRegistration registration) {
        if (registrations == null) {
            registrations = new ArrayList<>(1);
        }
        registrations.add(registration);
    }

    private synchronized boolean isRegistered() {
        if (registrations == null) {
            return false;
        }
        registrations.removeIf(NcclRegistration::isOver);
        return !registrations.isEmpty();
    }

    /** Whether a stream may have work with it; true for memory that others own. */
    static boolean isInUse(DeviceBuffer buffer) {
        return !(buffer.owner() instanceof NcclMemory memory) || !memory.isUnused();
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

    @Override
    public long sizeBytes() {
        return sizeBytes;
    }

    @Override
    public boolean isPassed() {
        return !isRegistered() && isUnused();
    }

    private boolean isUnused() {
        for (Use use : uses) {
            if (!use.isPassed()) {
                return false;
            }
        }
        return true;
    }

    @Override
    public boolean needsQuiet() {
        return kind != Kind.POOLED;
    }

    @Override
    public void release() {
        if (kind != Kind.POOLED || !freeAtOnce()) {
            device.reaper().add(this);
        }
    }

    /** If it can be freed in the order of a stream, without waiting. */
    private boolean freeAtOnce() {
        try {
            if (!isRegistered() && isHomesAlone() && home.freeAsync(address, "freeing " + this)) {
                device.release();
                return true;
            }
            return isPassed() && Reaper.free(this);
        } catch (CollectiveException e) {
            // Who closes a buffer cannot help it; the reaper looks again.
            LOG.log(System.Logger.Level.DEBUG, "cannot free " + this + " at once", e);
            return false;
        }
    }

    /** Whether the order of the stream where it was allocated is the order of all its uses. */
    private boolean isHomesAlone() {
        if (home == null) {
            return false;
        }
        for (Use use : uses) {
            if (use.stream != home && !use.isPassed()) {
                return false;
            }
        }
        return true;
    }

    private void freePooled() {
        try {
            device.freeToPool(address, "freeing " + this);
        } finally {
            device.release();
        }
    }

    /** Not while Java is reading or writing it. */
    @Override
    public boolean free() {
        switch (kind) {
            case POOLED -> freePooled();
            case DIRECT -> device.run(() -> CudaRuntime.free(address, "freeing " + this));
            case PINNED -> {
                return pinned.free();
            }
        }
        return true;
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
