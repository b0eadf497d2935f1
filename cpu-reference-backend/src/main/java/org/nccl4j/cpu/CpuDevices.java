package org.nccl4j.cpu;

import java.lang.ref.WeakReference;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.nccl4j.collectives.Device.Memory;
import org.nccl4j.collectives.InvalidArgumentException;

/**
 * The virtual devices of one scheduler, made when they are asked for. The default number of them
 * share the machine's memory evenly with the others that are in use: those of which somebody holds
 * memory, an open stream or communicator, or the device itself before it had any of those. One that
 * was only looked at is forgotten, and its share with it.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class CpuDevices {
    static final int LIMIT = 1024;

    /** Those of programs. */
    static final CpuDevices SHARED = new CpuDevices(Scheduler.SHARED);

    private final Scheduler scheduler;
    private final AtomicReferenceArray<WeakReference<CpuDevice>> devices =
            new AtomicReferenceArray<>(LIMIT);
    private final AtomicInteger streams = new AtomicInteger();

    /** By ordinal: buffers that are dropped without being closed outlive their device. */
    private final AtomicLongArray allocatedBytes = new AtomicLongArray(LIMIT);

    private final AtomicLong allAllocatedBytes = new AtomicLong();

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

    /** Among how many devices the memory is shared now. */
    int shares() {
        int shares = defaultCount();
        for (int ordinal = shares; ordinal < LIMIT; ordinal++) {
            CpuDevice device = existing(ordinal);
            if (allocatedBytes.get(ordinal) > 0 || (device != null && !device.isLeft())) {
                shares++;
            }
        }
        return shares;
    }

    private CpuDevice existing(int ordinal) {
        WeakReference<CpuDevice> reference = devices.get(ordinal);
        return reference == null ? null : reference.get();
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
        while (true) {
            WeakReference<CpuDevice> known = devices.get(ordinal);
            CpuDevice device = known == null ? null : known.get();
            if (device != null) {
                return device;
            }
            CpuDevice made = new CpuDevice(this, ordinal);
            if (devices.compareAndSet(ordinal, known, new WeakReference<>(made))) {
                return made;
            }
        }
    }

    /** Counts bytes that a device has allocated, or, negative, given back. */
    void allocated(int ordinal, long bytes) {
        allocatedBytes.addAndGet(ordinal, bytes);
        allAllocatedBytes.addAndGet(bytes);
    }

    /** One device's share of the memory, less what it has allocated. */
    Memory share(int ordinal) {
        int shares = shares();
        long freeBytes =
                freeBytes(
                        Machine.TOTAL_BYTES,
                        MachineMemory.availableBytes(),
                        shares,
                        allAllocatedBytes.get(),
                        allocatedBytes.get(ordinal));
        return new Memory(freeBytes, Machine.TOTAL_BYTES / shares);
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
