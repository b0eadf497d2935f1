package org.nccl4j.collectives;

import java.time.Duration;
import java.util.concurrent.CompletionStage;

/** A stream that is on a device and takes no work. */
public class FakeStream implements DeviceStream {
    private final Device device;

    /** A stream of that device. */
    public FakeStream(Device device) {
        this.device = device;
    }

    @Override
    public Device device() {
        return device;
    }

    @Override
    public boolean poll() {
        throw new UnsupportedOperationException();
    }

    @Override
    public void synchronize(Duration timeout) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void record(DeviceEvent event) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void waitFor(DeviceEvent event) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void copy(DeviceBuffer source, DeviceBuffer destination, long sizeBytes) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void fill(DeviceBuffer destination, byte value) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletionStage<Void> completion() {
        throw new UnsupportedOperationException();
    }

    @Override
    public void close() {}
}
