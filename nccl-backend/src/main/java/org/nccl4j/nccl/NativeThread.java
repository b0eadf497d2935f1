package org.nccl4j.nccl;

import org.nccl4j.collectives.CollectiveException;

/**
 * Threads for calls of NCCL and CUDA that may not return. Each is used once: what native code keeps
 * per thread (the current device, the depth of groups, which some of NCCL's failures leave wrong)
 * ends with it.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class NativeThread {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    private NativeThread() {}

    /** Starts one that needs no device. */
    static Thread start(String name, Runnable body) {
        return Thread.ofPlatform()
                .daemon()
                .name("nccl4j-" + name)
                .inheritInheritableThreadLocals(false)
                .start(body);
    }

    /**
     * Starts one.
     *
     * @param name of the thread
     * @param device the one that is current there, at first
     * @param body what it does; in a mode in which it disturbs no other thread's capture
     */
    static Thread start(String name, NcclDevice device, Runnable body) {
        return start(
                name,
                () -> {
                    prepare(device);
                    body.run();
                });
    }

    /** What it is for must be done even so, an abort above all. */
    private static void prepare(NcclDevice device) {
        try {
            CurrentDevice.stay(device);
            CudaRuntime.useThreadLocalCaptureMode();
        } catch (CollectiveException e) {
            LOG.log(
                    CudaRuntime.isLoss(e) ? System.Logger.Level.DEBUG : System.Logger.Level.WARNING,
                    "thread '"
                            + Thread.currentThread().getName()
                            + "' goes on although "
                            + device
                            + " could not be made current there, or its mode of capture not be"
                            + " chosen: it may take memory of device 0, and disturb captures of"
                            + " other threads in global mode",
                    e);
        }
    }
}
