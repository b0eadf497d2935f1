package org.nccl4j.contract;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;

/**
 * Reads and writes a device's buffers from Java: directly where the memory is host memory, else by
 * copies on a stream of its own, which no test blocks.
 */
final class HostAccess implements AutoCloseable {
    private static final Duration COPY_TIMEOUT = Duration.ofSeconds(20);

    private final Device device;
    private DeviceStream stream;

    HostAccess(Device device) {
        this.device = device;
    }

    void write(byte[] source, DeviceBuffer destination) {
        if (destination.isHostAccessible()) {
            MemorySegment.copy(
                    source, 0, destination.hostSegment(), ValueLayout.JAVA_BYTE, 0, source.length);
            return;
        }
        MemorySegment staging = Arena.ofAuto().allocate(source.length);
        MemorySegment.copy(source, 0, staging, ValueLayout.JAVA_BYTE, 0, source.length);
        copy(DeviceBuffer.wrap(staging), destination, source.length);
    }

    byte[] read(DeviceBuffer source, int sizeBytes) {
        byte[] destination = new byte[sizeBytes];
        MemorySegment memory;
        if (source.isHostAccessible()) {
            memory = source.hostSegment();
        } else {
            memory = Arena.ofAuto().allocate(sizeBytes);
            copy(source, DeviceBuffer.wrap(memory), sizeBytes);
        }
        MemorySegment.copy(memory, ValueLayout.JAVA_BYTE, 0, destination, 0, sizeBytes);
        return destination;
    }

    private void copy(DeviceBuffer source, DeviceBuffer destination, long sizeBytes) {
        if (stream == null) {
            stream = device.createStream();
        }
        stream.copy(source, destination, sizeBytes);
        stream.synchronize(COPY_TIMEOUT);
    }

    @Override
    public void close() {
        if (stream != null) {
            stream.close();
        }
    }
}
