package org.nccl4j.cpu;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.spi.BufferOwner;

/**
 * One allocation of a device and the work in flight that uses it. It is freed when its buffer has
 * been closed and no work uses it any more.
 *
 * <p>Thread safety: guarded by the scheduler's lock.
 */
final class CpuMemory extends BufferOwner {
    private final Scheduler scheduler;
    private final CpuDevice device;
    private final Arena arena;
    private final long sizeBytes;
    private final Free free = new Free();
    private int uses;
    private boolean released;

    private CpuMemory(Scheduler scheduler, CpuDevice device, Arena arena, long sizeBytes) {
        this.scheduler = scheduler;
        this.device = device;
        this.arena = arena;
        this.sizeBytes = sizeBytes;
    }

    static DeviceBuffer allocate(Scheduler scheduler, CpuDevice device, long sizeBytes) {
        retry(scheduler);
        // Shared, so that a use after the end is an exception in whatever thread it happens.
        Arena arena = Arena.ofShared();
        MemorySegment memory = PosixCalls.allocate(arena, sizeBytes);
        return DeviceBuffer.allocated(
                device, memory, sizeBytes, new CpuMemory(scheduler, device, arena, sizeBytes));
    }

    /**
     * Counts a use of two buffers, either of which may be null or memory of others. Lock held.
     *
     * @throws InvalidArgumentException if one has been closed meanwhile; then none is counted
     */
    static void use(DeviceBuffer first, DeviceBuffer second) {
        CpuMemory one = of(first);
        CpuMemory other = of(second);
        if (one != null && one.released) {
            throw closed(first);
        }
        if (other != null && other.released) {
            throw closed(second);
        }
        if (one != null) {
            one.uses++;
        }
        if (other != null) {
            other.uses++;
        }
    }

    /** Undoes a use. Lock held. */
    static void unuse(DeviceBuffer buffer, Scheduler scheduler) {
        CpuMemory memory = of(buffer);
        if (memory != null && --memory.uses == 0 && memory.released) {
            scheduler.defer(memory.free);
        }
    }

    private static CpuMemory of(DeviceBuffer buffer) {
        return buffer != null && buffer.owner() instanceof CpuMemory memory ? memory : null;
    }

    private static InvalidArgumentException closed(DeviceBuffer buffer) {
        return new InvalidArgumentException(
                buffer + " has been closed; nothing was enqueued; close it after its last use");
    }

    /** Frees what could not be freed when it should. */
    private static void retry(Scheduler scheduler) {
        Chore chores;
        synchronized (scheduler) {
            scheduler.repeat();
            chores = scheduler.takeChores(0);
        }
        scheduler.workers().perform(chores);
    }

    @Override
    public void release() {
        retry(scheduler);
        synchronized (scheduler) {
            released = true;
            if (uses > 0) {
                return;
            }
        }
        free();
    }

    private void free() {
        try {
            arena.close();
        } catch (IllegalStateException e) {
            // Somebody's channel reads or writes it right now.
            synchronized (scheduler) {
                scheduler.repeatLater(free);
            }
            return;
        }
        device.freed(sizeBytes);
    }

    private final class Free extends Chore {
        @Override
        Chore perform(long budgetBytes) {
            free();
            return null;
        }
    }
}
