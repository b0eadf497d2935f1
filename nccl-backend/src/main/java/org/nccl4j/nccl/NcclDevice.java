package org.nccl4j.nccl;

import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;

/** A GPU. Thread safety: all methods may be called from any thread. */
final class NcclDevice implements Device {
    private final int ordinal;

    NcclDevice(int ordinal) {
        this.ordinal = ordinal;
    }

    @Override
    public int ordinal() {
        return ordinal;
    }

    @Override
    public String name() {
        throw new UnsupportedOperationException();
    }

    @Override
    public String busId() {
        throw new UnsupportedOperationException();
    }

    @Override
    public Memory memory() {
        throw new UnsupportedOperationException();
    }

    @Override
    public DeviceBuffer allocate(long sizeBytes) {
        throw new UnsupportedOperationException();
    }

    @Override
    public NcclStream createStream() {
        throw new UnsupportedOperationException();
    }

    @Override
    public NcclEvent createEvent() {
        throw new UnsupportedOperationException();
    }
}
