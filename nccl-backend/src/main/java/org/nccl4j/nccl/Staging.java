package org.nccl4j.nccl;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/**
 * Pinned memory of a device through which copies from and to ordinary host memory go. A slot
 * belongs to a stream until that has passed the copies.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class Staging {
    static final long SLOT_BYTES = 1 << 18;
    private static final int SLOTS_PER_BLOCK = 16;
    private static final long BLOCK_BYTES = SLOTS_PER_BLOCK * SLOT_BYTES;

    /** A piece of pinned memory. */
    static final class Slot {
        final long address;
        final MemorySegment memory;

        /** Whose it is, and which of its tickets must be passed before another may have it. */
        private NcclStream stream;

        private long ticket;

        private Slot(MemorySegment memory) {
            this.address = memory.address();
            this.memory = memory;
        }

        private boolean isFree() {
            return stream == null || stream.hasPassedOrIsLost(Math.min(ticket, stream.issued()));
        }
    }

    private final NcclDevice device;

    // ---- guarded by this

    private final List<Slot> slots = new ArrayList<>();
    private final List<Block> blocks = new ArrayList<>();

    Staging(NcclDevice device) {
        this.device = device;
    }

    /**
     * Has slots for as many streams as will copy at a time, usually. Without memory for that there
     * are none until a copy needs one.
     */
    synchronized void prepare() {
        if (slots.isEmpty()) {
            grow();
        }
    }

    /** A slot for a copy that gets the stream's next ticket. */
    synchronized Slot take(NcclStream stream) {
        Slot found = null;
        for (Slot slot : slots) {
            if (slot.stream == stream) {
                // The stream's order keeps two copies apart.
                found = slot;
                break;
            }
            if (found == null && slot.isFree()) {
                found = slot;
            }
        }
        if (found == null) {
            found = grow();
        }
        if (found == null) {
            throw device.outOfMemory("pinned memory for copies", BLOCK_BYTES);
        }
        found.stream = stream;
        found.ticket = stream.issued() + 1;
        return found;
    }

    /** Returns one of more slots, or null if there is no memory for them. */
    private Slot grow() {
        PinnedMemory block = PinnedMemory.allocate(device, BLOCK_BYTES);
        if (block == null) {
            return null;
        }
        blocks.add(new Block(block));
        Slot first = new Slot(block.memory().asSlice(0, SLOT_BYTES));
        slots.add(first);
        for (int i = 1; i < SLOTS_PER_BLOCK; i++) {
            slots.add(new Slot(block.memory().asSlice(i * SLOT_BYTES, SLOT_BYTES)));
        }
        return first;
    }

    /** Gives all of it back; when there are no streams any more. */
    void drain() {
        List<Block> unused;
        synchronized (this) {
            unused = List.copyOf(blocks);
            blocks.clear();
            slots.clear();
        }
        unused.forEach(device.reaper()::add);
    }

    /** What slots were cut from. */
    private record Block(PinnedMemory memory) implements Reaper.Remains {
        @Override
        public long sizeBytes() {
            return memory.memory().byteSize();
        }

        @Override
        public boolean needsQuiet() {
            return true;
        }

        /** Those who used it are gone. */
        @Override
        public boolean isPassed() {
            return true;
        }

        @Override
        public boolean free() {
            return memory.free();
        }
    }
}
