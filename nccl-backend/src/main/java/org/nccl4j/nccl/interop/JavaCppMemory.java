package org.nccl4j.nccl.interop;

import org.bytedeco.javacpp.Pointer;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;

/**
 * Device memory and streams of JavaCPP (its CUDA presets, Deeplearning4j, PyTorch), for
 * collectives. Whoever made them frees them, after the work that uses them is complete; a buffer
 * keeps its pointer reachable, so that a garbage collection does not do it earlier.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
// Not "requires transitive": it would demand the library of everybody who compiles.
@SuppressWarnings("exports")
public final class JavaCppMemory {
    private JavaCppMemory() {}

    /**
     * Device memory from a pointer's position to its limit.
     *
     * @param device the device that holds it
     * @param pointer a pointer to device or pinned host memory, with a limit
     * @return a buffer whose {@link DeviceBuffer#close} frees nothing
     * @throws InvalidArgumentException if the pointer is null or has no limit
     */
    public static DeviceBuffer buffer(Device device, Pointer pointer) {
        long elementBytes = elementBytes(pointer);
        if (pointer.limit() <= 0) {
            throw new InvalidArgumentException(
                    pointer
                            + " has no limit, as one that cudaMalloc has filled: pass the size in"
                            + " bytes");
        }
        return DeviceBuffer.wrap(
                device,
                pointer.address() + pointer.position() * elementBytes,
                (pointer.limit() - pointer.position()) * elementBytes,
                pointer);
    }

    /**
     * Device memory from a pointer's position.
     *
     * @param device the device that holds it
     * @param pointer a pointer to device or pinned host memory
     * @param sizeBytes how much may be used from its position, within its limit if it has one
     * @return a buffer whose {@link DeviceBuffer#close} frees nothing
     * @throws InvalidArgumentException if the pointer is null, or the size negative or beyond the
     *     limit
     */
    public static DeviceBuffer buffer(Device device, Pointer pointer, long sizeBytes) {
        long elementBytes = elementBytes(pointer);
        if (pointer.limit() > 0
                && sizeBytes > (pointer.limit() - pointer.position()) * elementBytes) {
            throw new InvalidArgumentException(
                    pointer
                            + " with "
                            + elementBytes
                            + " bytes an element has no "
                            + sizeBytes
                            + " bytes between its position and its limit; sizes are bytes");
        }
        return DeviceBuffer.wrap(
                device, pointer.address() + pointer.position() * elementBytes, sizeBytes, pointer);
    }

    /**
     * A stream.
     *
     * @param device the stream's device
     * @param stream a {@code CUstream_st} that {@code cudaStreamCreate} or {@code cuStreamCreate}
     *     has filled
     * @return the stream; closing it leaves the native one alone
     * @throws InvalidArgumentException if it is null or stands for the default stream
     */
    public static DeviceStream stream(Device device, Pointer stream) {
        return WrappedStream.of(device, stream == null ? 0 : stream.address());
    }

    private static long elementBytes(Pointer pointer) {
        if (pointer == null || pointer.isNull()) {
            throw new InvalidArgumentException(
                    "cannot wrap a null JavaCPP pointer, or one that has been deallocated;"
                            + " DeviceBuffer.EMPTY stands for no memory");
        }
        int elementBytes = pointer.sizeof();
        if (elementBytes <= 0) {
            throw new InvalidArgumentException(
                    "JavaCPP does not know the element size of "
                            + pointer
                            + ": the natives of its class are not loaded; load them with"
                            + " Loader.load");
        }
        return elementBytes;
    }
}
