package org.nccl4j.cpu;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.nccl4j.collectives.Device.Memory;
import org.nccl4j.collectives.InvalidArgumentException;

/**
 * The virtual devices of one scheduler, made when they are asked for. They share the machine's
 * memory evenly among the default number of them, or more once more have been asked for.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class CpuDevices {
    static final int LIMIT = 1024;

    /** Those of programs. */
    static final CpuDevices SHARED = new CpuDevices(Scheduler.SHARED);

    private final Scheduler scheduler;
    private final AtomicReferenceArray<CpuDevice> devices = new AtomicReferenceArray<>(LIMIT);
    private final AtomicInteger shares = new AtomicInteger(defaultCount());
    private final AtomicInteger streams = new AtomicInteger();
    private final AtomicLong allocatedBytes = new AtomicLong();

    CpuDevices(Scheduler scheduler) {
        this.scheduler = scheduler;
    }

    /** Read once: they do not change. */
    private static final class Machine {
        static final String MODEL = MachineMemory.processorModel();
        static final long TOTAL_BYTES = MachineMemory.availableBytes();
    }

    static String processorModel() {
        return Machine.MODEL;
    }

    /** How many devices a program gets unless it asks for others. */
    static int defaultCount() {
        return Math.max(2, Runtime.getRuntime().availableProcessors());
    }

    Scheduler scheduler() {
        return scheduler;
    }

    int shares() {
        return shares.get();
    }

    int nextStreamNumber() {
        return streams.getAndIncrement();
    }

    CpuDevice device(int ordinal) {
        if (ordinal < 0 || ordinal >= LIMIT) {
            throw new InvalidArgumentException(
                    "there is no CPU device "
                            + ordinal
                            + "; devices are virtual and have numbers 0 to "
                            + (LIMIT - 1));
        }
        shares.accumulateAndGet(ordinal + 1, Math::max);
        CpuDevice device = devices.get(ordinal);
        if (device == null) {
            devices.compareAndSet(ordinal, null, new CpuDevice(this, ordinal));
            device = devices.get(ordinal);
        }
        return device;
    }

    /** Counts bytes that a device has allocated, or, negative, given back. */
    void allocated(long bytes) {
        allocatedBytes.addAndGet(bytes);
    }

    /** One device's share of the memory, of which it has allocated some. */
    Memory share(long ownBytes) {
        long totalBytes = Machine.TOTAL_BYTES / shares();
        long freeBytes =
                freeBytes(
                        Machine.TOTAL_BYTES,
                        MachineMemory.availableBytes(),
                        shares(),
                        allocatedBytes.get(),
                        ownBytes);
        return new Memory(freeBytes, totalBytes);
    }

    /**
     * What a device may still allocate of an equal share. What all devices have allocated counts as
     * available first, or each allocation would shrink the shares of the others.
     */
    static long freeBytes(
            long totalBytes, long availableBytes, int shares, long allBytes, long ownBytes) {
        long pool = Math.min(totalBytes, availableBytes + allBytes);
        return Math.clamp(pool / shares - ownBytes, 0, Math.max(0, availableBytes));
    }
}
