package org.nccl4j.nccl;

import org.nccl4j.collectives.CollectiveException;

/**
 * The CUDA device that calls of this thread act on. Native code keeps it per thread, so between
 * entering and leaving the thread must be a platform thread.
 *
 * <p>Thread safety: all methods may be called from any platform thread.
 */
final class CurrentDevice {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

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

    /**
     * Makes the device current again that was so before {@link #enter}. Throws nothing: what was
     * done in between has been done.
     */
    static void leave(int previous) {
        try {
            restore(previous);
        } catch (CollectiveException first) {
            try {
                restore(previous);
            } catch (CollectiveException e) {
                LOG.log(
                        System.Logger.Level.ERROR,
                        "the current device of thread '"
                                + Thread.currentThread().getName()
                                + "' was "
                                + previous
                                + " and cannot be made current again",
                        e);
            }
        }
    }

    private static void restore(int previous) {
        if (CudaRuntime.currentDevice() != previous) {
            CudaRuntime.setDevice(previous);
        }
    }
}
