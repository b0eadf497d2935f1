package org.nccl4j.cpu;

import java.util.concurrent.atomic.AtomicInteger;
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

    /** One device's share of the memory, of which it has allocated some. */
    Memory share(long allocatedBytes) {
        long totalBytes = Machine.TOTAL_BYTES / shares();
        long freeBytes =
                Math.min(totalBytes - allocatedBytes, MachineMemory.availableBytes() / shares());
        return new Memory(Math.max(0, freeBytes), totalBytes);
    }
}
