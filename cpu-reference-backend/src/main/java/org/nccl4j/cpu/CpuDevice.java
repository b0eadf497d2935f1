package org.nccl4j.cpu;

import java.util.concurrent.atomic.AtomicInteger;
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
    private final CpuDevices all;
    private final int ordinal;

    /** Open streams and communicators. */
    private final AtomicInteger users = new AtomicInteger();

    private volatile boolean used;

    CpuDevice(CpuDevices all, int ordinal) {
        this.all = all;
        this.ordinal = ordinal;
    }

    @Override
    public int ordinal() {
        return ordinal;
    }

    @Override
    public String name() {
        return CpuDevices.processorModel();
    }

    @Override
    public String busId() {
        return "0000:00:00";
    }

    @Override
    public Memory memory() {
        return all.share(ordinal);
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
        if (sizeBytes > freeBytes && all.shares() > CpuDevices.defaultCount()) {
            // Devices that nobody holds any more give their shares back when the collector sees it.
            System.gc();
            freeBytes = memory().freeBytes();
        }
        if (sizeBytes > freeBytes) {
            throw new InvalidArgumentException(
                    "cannot allocate "
                            + sizeBytes
                            + " bytes on device "
                            + ordinal
                            + ": "
                            + freeBytes
                            + " bytes are free, its share of the machine's memory among "
                            + all.shares()
                            + " devices");
        }
        count(sizeBytes);
        try {
            return CpuMemory.allocate(all.scheduler(), this, sizeBytes);
        } catch (OutOfMemoryError e) {
            count(-sizeBytes);
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

    /** A stream or communicator on it is opened. */
    void open() {
        users.incrementAndGet();
        used = true;
    }

    /** One of those is closed. */
    void close() {
        users.decrementAndGet();
    }

    /** Whether all that was open on it is closed, so that who still holds it needs no share. */
    boolean isLeft() {
        return used && users.get() == 0;
    }

    /** An allocation has been given back. */
    void freed(long sizeBytes) {
        count(-sizeBytes);
    }

    private void count(long bytes) {
        all.allocated(ordinal, bytes);
    }

    @Override
    public DeviceStream createStream() {
        return new CpuStream(all.scheduler(), this, all.nextStreamNumber());
    }

    @Override
    public DeviceEvent createEvent() {
        return new CpuEvent(all.scheduler());
    }

    @Override
    public String toString() {
        return "CPU device " + ordinal;
    }
}
