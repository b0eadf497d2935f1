package org.nccl4j.cpu;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicLong;
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
    /** The alignment that cudaMalloc gives, too. */
    private static final long ALIGNMENT_BYTES = 256;

    /**
     * How much further in its page each buffer begins than the one before. An operation goes
     * through all ranks' buffers side by side. If they begin at the same place in their pages, then
     * all that it touches at a time belongs to one set of the level-one cache; and AMD's processors
     * find a line in its set by a hash of its address in which whole buffers may agree (those of
     * threads do, as malloc's arenas are 64 MiB apart): then each line pushes out the others, and
     * an all-reduce of 64 KiB takes four times as long. An odd number of steps, so that it takes as
     * many buffers as there are places until one repeats.
     */
    private static final long STAGGER_BYTES = 5 * ALIGNMENT_BYTES;

    private static final AtomicLong ALLOCATIONS = new AtomicLong();

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
        long startBytes = ALLOCATIONS.getAndIncrement() * STAGGER_BYTES % PosixCalls.PAGE_BYTES;
        MemorySegment memory = PosixCalls.allocate(arena, startBytes, sizeBytes);
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
