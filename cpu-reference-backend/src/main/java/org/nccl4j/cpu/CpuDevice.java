package org.nccl4j.cpu;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;

/**
 * A virtual device: a number, and an equal share of the machine's memory. Thread safety: all
 * methods may be called from any thread.
 */
final class CpuDevice implements Device {
    static final int LIMIT = 1024;

    /** Devices of this process by ordinal, made when asked for. */
    private static final CpuDevice[] DEVICES = new CpuDevice[LIMIT];

    private static final int DEFAULT_COUNT =
            Math.max(2, Runtime.getRuntime().availableProcessors());

    /** Devices that the memory is shared among. */
    private static final AtomicInteger SHARES = new AtomicInteger(DEFAULT_COUNT);

    private static final AtomicInteger STREAM_NUMBERS = new AtomicInteger();

    /** Read once: they do not change. */
    private static final class Machine {
        static final String MODEL = MachineMemory.processorModel();
        static final long TOTAL_BYTES = MachineMemory.availableBytes();
    }

    private final int ordinal;
    private final AtomicLong allocatedBytes = new AtomicLong();

    private CpuDevice(int ordinal) {
        this.ordinal = ordinal;
    }

    static int defaultCount() {
        return DEFAULT_COUNT;
    }

    static CpuDevice of(int ordinal) {
        if (ordinal < 0 || ordinal >= LIMIT) {
            throw new InvalidArgumentException(
                    "there is no CPU device "
                            + ordinal
                            + "; devices are virtual and have numbers 0 to "
                            + (LIMIT - 1));
        }
        synchronized (DEVICES) {
            if (DEVICES[ordinal] == null) {
                DEVICES[ordinal] = new CpuDevice(ordinal);
            }
            SHARES.accumulateAndGet(ordinal + 1, Math::max);
            return DEVICES[ordinal];
        }
    }

    @Override
    public int ordinal() {
        return ordinal;
    }

    @Override
    public String name() {
        return Machine.MODEL;
    }

    @Override
    public String busId() {
        return "0000:00:00";
    }

    @Override
    public Memory memory() {
        int shares = SHARES.get();
        long total = Machine.TOTAL_BYTES / shares;
        long free = Math.min(total - allocatedBytes.get(), MachineMemory.availableBytes() / shares);
        return new Memory(Math.max(0, free), total);
    }

    @Override
    public DeviceBuffer allocate(long sizeBytes) {
        if (sizeBytes < 0) {
            throw new InvalidArgumentException(
                    "cannot allocate " + sizeBytes + " bytes; the size must be at least 0");
        }
        if (sizeBytes == 0) {
            return DeviceBuffer.EMPTY;
        }
        long freeBytes = memory().freeBytes();
        if (sizeBytes > freeBytes) {
            throw new InvalidArgumentException(
                    "cannot allocate "
                            + sizeBytes
                            + " bytes on device "
                            + ordinal
                            + ": "
                            + freeBytes
                            + " bytes are free, its share of the machine's memory among "
                            + SHARES.get()
                            + " devices");
        }
        allocatedBytes.addAndGet(sizeBytes);
        try {
            return CpuMemory.allocate(Scheduler.SHARED, this, sizeBytes);
        } catch (OutOfMemoryError e) {
            allocatedBytes.addAndGet(-sizeBytes);
            throw new InvalidArgumentException(
                    "cannot allocate "
                            + sizeBytes
                            + " bytes on device "
                            + ordinal
                            + ": "
                            + e.getMessage(),
                    e);
        }
    }

    /** An allocation has been given back. */
    void freed(long sizeBytes) {
        allocatedBytes.addAndGet(-sizeBytes);
    }

    @Override
    public DeviceStream createStream() {
        return new CpuStream(Scheduler.SHARED, this, STREAM_NUMBERS.getAndIncrement());
    }

    @Override
    public DeviceEvent createEvent() {
        return new CpuEvent(Scheduler.SHARED);
    }

    @Override
    public String toString() {
        return "CPU device " + ordinal;
    }
}
