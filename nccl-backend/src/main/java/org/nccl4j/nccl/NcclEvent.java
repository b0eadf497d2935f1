package org.nccl4j.nccl;

import java.time.Duration;
import org.nccl4j.collectives.DeviceEvent;

/** A mark in a stream. Thread safety: all methods may be called from any thread. */
final class NcclEvent implements DeviceEvent {
    @Override
    public boolean poll() {
        throw new UnsupportedOperationException();
    }

    @Override
    public void synchronize(Duration timeout) {
        throw new UnsupportedOperationException();
    }

    @Override
    public Duration elapsedSince(DeviceEvent earlier) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void close() {
        throw new UnsupportedOperationException();
    }
}
