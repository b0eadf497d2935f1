package org.nccl4j.nccl;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * Host memory that devices reach. CUDA allocates it, for which it may wait for the device; so while
 * operations are under way there, Java allocates it and CUDA only registers it.
 *
 * <p>Thread safety: immutable, but for {@link #free}, which one thread at a time may call.
 */
final class PinnedMemory {
    private static final long PAGE_BYTES = 4096;

    /** More is not worth asking Java for. */
    private static final long MOST_REGISTERED_BYTES = 1L << 40;

    private final NcclDevice device;

    /** Keeps Java from memory that has been freed. */
    private final Arena arena;

    private final MemorySegment memory;
    private final boolean registered;

    /** Whether CUDA does not know it any more. */
    private boolean letGo;

    private PinnedMemory(NcclDevice device, Arena arena, MemorySegment memory, boolean registered) {
        this.device = device;
        this.arena = arena;
        this.memory = memory;
        this.registered = registered;
    }

    /** Memory, or null if it cannot be had. */
    static PinnedMemory allocate(NcclDevice device, long sizeBytes) {
        String doing = "allocating " + sizeBytes + " bytes of pinned memory for " + device;
        if (device.takesRegisteredPointers() && device.quiet() < 0) {
            PinnedMemory made = register(device, sizeBytes, doing);
            if (made != null) {
                return made;
            }
        }
        long address = device.call(() -> CudaRuntime.hostAlloc(sizeBytes, doing));
        return address == 0 ? null : ofCuda(device, address, sizeBytes);
    }

    @SuppressWarnings("restricted")
    private static PinnedMemory ofCuda(NcclDevice device, long address, long sizeBytes) {
        Arena arena = Arena.ofShared();
        return new PinnedMemory(
                device,
                arena,
                MemorySegment.ofAddress(address).reinterpret(sizeBytes, arena, null),
                false);
    }

    /** Pages of its own, because CUDA registers whole ones. */
    private static PinnedMemory register(NcclDevice device, long sizeBytes, String doing) {
        if (sizeBytes > MOST_REGISTERED_BYTES) {
            return null;
        }
        long wholePages = (sizeBytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
        Arena arena = Arena.ofShared();
        boolean registered = false;
        try {
            MemorySegment pages = arena.allocate(wholePages, PAGE_BYTES);
            registered =
                    device.call(() -> CudaRuntime.registerHost(pages.address(), wholePages, doing));
            return registered
                    ? new PinnedMemory(device, arena, pages.asSlice(0, sizeBytes), true)
                    : null;
        } catch (OutOfMemoryError e) {
            // Java has a limit of its own (-XX:MaxDirectMemorySize); CUDA may have more.
            return null;
        } finally {
            if (!registered) {
                arena.close();
            }
        }
    }

    MemorySegment memory() {
        return memory;
    }

    /**
     * Frees it.
     *
     * @return false if Java is reading or writing it right now, so that it must be later
     */
    boolean free() {
        String doing = "freeing " + memory.byteSize() + " bytes of pinned memory of " + device;
        if (registered && !letGo) {
            // Before Java frees the pages.
            device.run(() -> CudaRuntime.unregisterHost(memory.address(), doing));
            letGo = true;
        }
        try {
            arena.close();
        } catch (IllegalStateException e) {
            return false;
        }
        if (!registered) {
            device.run(() -> CudaRuntime.freeHost(memory.address(), doing));
        }
        return true;
    }
}
