package org.nccl4j.nccl;

/**
 * The CUDA device that calls of this thread act on. Native code keeps it per thread, so between
 * entering and leaving the thread must be a platform thread.
 *
 * <p>Thread safety: all methods may be called from any platform thread.
 */
final class CurrentDevice {
    private CurrentDevice() {}

    /**
     * Makes a device the current one.
     *
     * @return the one before, for {@link #leave}
     * @throws org.nccl4j.collectives.InvalidArgumentException if the current context is a foreign
     *     one, which leaving could not make current again
     */
    static int enter(int device) {
        DriverContext.refuseIfForeign();
        int previous = CudaRuntime.currentDevice();
        if (previous != device) {
            CudaRuntime.setDevice(device);
        }
        return previous;
    }

    /** Makes the device current again that was so before {@link #enter}. */
    static void leave(int previous) {
        if (CudaRuntime.currentDevice() != previous) {
            CudaRuntime.setDevice(previous);
        }
    }
}
