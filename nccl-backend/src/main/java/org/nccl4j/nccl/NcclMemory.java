package org.nccl4j.nccl;

import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.spi.BufferOwner;

/** One allocation. Thread safety: all methods may be called from any thread. */
final class NcclMemory extends BufferOwner {
    /**
     * Notes that a stream uses a buffer, after the work has been enqueued.
     *
     * @param buffer any buffer, or null
     * @param stream where the work is
     */
    static void use(DeviceBuffer buffer, NcclStream stream) {
        throw new UnsupportedOperationException(buffer + " " + stream);
    }

    @Override
    public void release() {
        throw new UnsupportedOperationException();
    }
}
