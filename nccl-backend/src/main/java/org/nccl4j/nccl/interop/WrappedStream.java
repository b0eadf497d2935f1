package org.nccl4j.nccl.interop;

import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;

/** What the libraries' streams have in common. */
final class WrappedStream {
    private WrappedStream() {}

    /** A null handle is CUDA's default stream, and more often a stream that nobody has created. */
    static DeviceStream of(Device device, long handle) {
        if (device == null) {
            throw new InvalidArgumentException(
                    "a stream needs the device that it belongs to, got null");
        }
        if (handle == 0) {
            throw new InvalidArgumentException(
                    "the stream is null, which is CUDA's default stream or one that has not been"
                            + " created; create one, or, if the default stream is meant, say"
                            + " device.wrapStream(0)");
        }
        return device.wrapStream(handle);
    }
}
