package org.nccl4j.nccl.interop;

import jcuda.NativePointerObject;
import jcuda.Pointer;
import jcuda.driver.CUstream;
import jcuda.runtime.cudaStream_t;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;

/**
 * Device memory and streams of JCuda, for collectives. Whoever made them with JCuda frees them with
 * JCuda, after the work that uses them is complete.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
// Not "requires transitive": it would demand the library of everybody who compiles.
@SuppressWarnings("exports")
public final class JCudaMemory {
    private JCudaMemory() {}

    /**
     * Device memory from where a pointer points, its byte offset included.
     *
     * @param device the device that holds it
     * @param pointer what {@code cudaMalloc} or {@code cuMemAlloc} has filled, or a pinned host
     *     pointer; a {@code CUdeviceptr} is one
     * @param sizeBytes how much may be used from there; JCuda does not know
     * @return a buffer whose {@link DeviceBuffer#close} frees nothing
     * @throws InvalidArgumentException if the pointer is null, freed or one to Java memory, or the
     *     size negative
     */
    public static DeviceBuffer buffer(Device device, Pointer pointer, long sizeBytes) {
        if (pointer == null) {
            throw new InvalidArgumentException(
                    "cannot wrap a null jcuda.Pointer; DeviceBuffer.EMPTY stands for no memory");
        }
        OpenPointer open = new OpenPointer(pointer);
        if (open.start() == 0 && sizeBytes != 0) {
            throw new InvalidArgumentException(
                    "this jcuda.Pointer has no native address, so there are no "
                            + sizeBytes
                            + " bytes at it: it has not been allocated, has been freed, or is"
                            + " Pointer.to(...) of Java memory, which a GPU cannot use; wrap what"
                            + " cudaMalloc, cuMemAlloc or cudaHostAlloc has filled: "
                            + pointer);
        }
        return DeviceBuffer.wrap(device, open.start() + open.offset(), sizeBytes, pointer);
    }

    /**
     * A stream of the runtime API.
     *
     * @param device the stream's device
     * @param stream what {@code cudaStreamCreate} has filled
     * @return the stream; closing it leaves JCuda's alone
     * @throws InvalidArgumentException if it is null or stands for the default stream
     */
    public static DeviceStream stream(Device device, cudaStream_t stream) {
        return wrap(device, stream);
    }

    /**
     * A stream of the driver API.
     *
     * @param device the stream's device
     * @param stream what {@code cuStreamCreate} has filled
     * @return the stream; closing it leaves JCuda's alone
     * @throws InvalidArgumentException if it is null or stands for the default stream
     */
    public static DeviceStream stream(Device device, CUstream stream) {
        return wrap(device, stream);
    }

    private static DeviceStream wrap(Device device, NativePointerObject stream) {
        return WrappedStream.of(device, stream == null ? 0 : new OpenHandle(stream).value());
    }

    /** JCuda tells an address only to subclasses, and lets them copy. */
    private static final class OpenPointer extends Pointer {
        OpenPointer(Pointer pointer) {
            super(pointer);
        }

        long start() {
            return getNativePointer();
        }

        long offset() {
            return getByteOffset();
        }
    }

    /** As {@link OpenPointer}, for everything else. */
    private static final class OpenHandle extends NativePointerObject {
        OpenHandle(NativePointerObject handle) {
            super(handle);
        }

        long value() {
            return getNativePointer();
        }
    }
}
