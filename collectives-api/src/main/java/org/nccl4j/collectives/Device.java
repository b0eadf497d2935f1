package org.nccl4j.collectives;

/**
 * A GPU, or a virtual device of the CPU backend.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
public interface Device {
    /**
     * Memory of a device.
     *
     * @param freeBytes what can still be allocated on this device
     * @param totalBytes all of it; for a virtual CPU device its equal share of what the machine can
     *     really give
     */
    record Memory(long freeBytes, long totalBytes) {}

    /**
     * The device's number in its backend.
     *
     * @return 0 or more
     */
    int ordinal();

    /**
     * The product's name; for a CPU device the processor's model.
     *
     * @return the name
     */
    String name();

    /**
     * The PCI address as {@code dddd:bb:vv} in lower-case hex, {@code 0000:00:00} for a CPU device.
     *
     * @return the address
     */
    String busId();

    /**
     * What is free now.
     *
     * @return a snapshot
     */
    Memory memory();

    /**
     * Allocates memory of this device. Its contents are zero on the CPU and undefined on a GPU. The
     * calling thread is the first to touch CPU memory, so allocate large buffers on the threads
     * that will use them.
     *
     * @param sizeBytes 0 or more; 0 gives {@link DeviceBuffer#EMPTY}
     * @return a buffer to be closed by its owner
     * @throws InvalidArgumentException if the size is negative or more than is free; the message
     *     says how much is
     */
    DeviceBuffer allocate(long sizeBytes);

    /**
     * Allocates host memory that this device can use directly: pinned memory on a GPU node, which
     * copies run fastest from and operations take as they take device memory. On the CPU it is
     * memory of the device. Pin little: it is taken from the whole machine.
     *
     * @param sizeBytes 0 or more; 0 gives {@link DeviceBuffer#EMPTY}
     * @return a buffer that Java can read and write, to be closed by its owner
     * @throws InvalidArgumentException if the size is negative or more than can be had
     */
    default DeviceBuffer allocateHost(long sizeBytes) {
        return allocate(sizeBytes);
    }

    /**
     * A new stream on this device.
     *
     * @return an open stream to be closed by its owner
     */
    DeviceStream createStream();

    /**
     * A stream that others own, such as a {@code cudaStream_t} of JCuda, JavaCPP or PyTorch. Work
     * that they enqueue after an operation has returned runs behind it.
     *
     * @param handle the native handle
     * @return the stream; closing it leaves the native stream alone
     * @throws UnsupportedException if the device has no native streams
     */
    default DeviceStream wrapStream(long handle) {
        throw new UnsupportedException(
                "device "
                        + ordinal()
                        + " ("
                        + name()
                        + ") has no native streams, so 0x"
                        + Long.toHexString(handle)
                        + " cannot be one; use createStream()");
    }

    /**
     * A new event without a mark.
     *
     * @return an open event to be closed by its owner
     */
    DeviceEvent createEvent();
}
