package org.nccl4j.nccl.interop;

import java.time.Duration;
import java.util.concurrent.CompletionStage;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;

/** A device that remembers which stream it was given. */
final class HandleDevice implements Device {
    /** A stream that is nothing but its handle. */
    record HandleStream(Device device, long handle) implements DeviceStream {
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

    @Override
    public int ordinal() {
        return 2;
    }

    @Override
    public String name() {
        return "handles only";
    }

    @Override
    public String busId() {
        return "0000:00:00";
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
    public DeviceStream createStream() {
        throw new UnsupportedOperationException();
    }

    @Override
    public DeviceStream wrapStream(long handle) {
        return new HandleStream(this, handle);
    }

    @Override
    public DeviceEvent createEvent() {
        throw new UnsupportedOperationException();
    }
}
