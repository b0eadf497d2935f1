package org.nccl4j.nccl;

import org.nccl4j.collectives.CollectiveException;

/**
 * The CUDA device that calls of this thread act on: native code keeps it per OS thread, as a
 * current context.
 *
 * <p>A new thread has none, and then nearly every call of the runtime, one about another device's
 * event or stream too, makes a context of device 0, which holds half a gigabyte there for the life
 * of the process. So every call is made while a device is entered, and leaving brings back the
 * context that was current before, or that none was; to set the device's number again would make
 * that context.
 *
 * <p>Thread safety: all methods may be called from any thread. A virtual thread must not wait
 * between entering and leaving, for it may go on as another OS thread; {@link NcclDevice#call} sees
 * to that.
 */
final class CurrentDevice {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    /** The device was current already, and there is nothing to be brought back. */
    private static final long UNCHANGED = -1;

    private CurrentDevice() {}

    /**
     * Makes a device the current one, for what is begun; allocates nothing.
     *
     * @return what was current before, for {@link #leave}
     * @throws org.nccl4j.collectives.InvalidArgumentException if the thread works in a context that
     *     is not a device's primary one, with whose memory NCCL cannot work
     */
    static long enter(NcclDevice device) {
        return DriverContext.isKnown()
                ? enterContext(device, true)
                : enterOrdinal(device.ordinal());
    }

    /** As {@link #enter} for what is only looked at or given back, from whatever context. */
    static long visit(NcclDevice device) {
        return DriverContext.isKnown()
                ? enterContext(device, false)
                : enterOrdinal(device.ordinal());
    }

    private static long enterContext(NcclDevice device, boolean refusing) {
        long own = device.context();
        long before = DriverContext.current();
        if (before == own) {
            return UNCHANGED;
        }
        if (refusing && before != 0) {
            DriverContext.refuseIfForeign(before);
        }
        DriverContext.makeCurrent(own);
        return before;
    }

    private static long enterOrdinal(int device) {
        int before = CudaRuntime.currentDevice();
        if (before == device) {
            return UNCHANGED;
        }
        CudaRuntime.setDevice(device);
        return before;
    }

    /**
     * Sees to it that a user's thread has a context, for operations that need no particular one:
     * NCCL brings back by number the device that it finds current, and a thread without a context
     * would get one of device 0 in that way. A thread that has none keeps that of the device, as if
     * it had called {@code cudaSetDevice}. To be called when a thread comes for the first time, so
     * that an operation costs no call of CUDA's.
     *
     * @throws org.nccl4j.collectives.InvalidArgumentException as {@link #enter}
     */
    static void attach(NcclDevice device) {
        if (!DriverContext.isKnown()) {
            return;
        }
        long before = DriverContext.current();
        if (before == 0) {
            DriverContext.makeCurrent(device.context());
        } else {
            DriverContext.refuseIfForeign(before);
        }
    }

    /** Makes a device current for the rest of the life of a thread of ours. */
    static void stay(NcclDevice device) {
        visit(device);
    }

    /**
     * Makes that current again which was so before {@link #enter}. Throws nothing: what was done in
     * between has been done.
     */
    static void leave(long before) {
        if (before == UNCHANGED) {
            return;
        }
        try {
            restore(before);
        } catch (CollectiveException first) {
            try {
                restore(before);
            } catch (CollectiveException e) {
                LOG.log(
                        System.Logger.Level.ERROR,
                        "what was current on thread '"
                                + Thread.currentThread().getName()
                                + "' ("
                                + (DriverContext.isKnown() ? "context 0x" : "device 0x")
                                + Long.toHexString(before)
                                + ") cannot be made current again; its later calls of CUDA act on"
                                + " another device",
                        e);
            }
        }
    }

    private static void restore(long before) {
        if (DriverContext.isKnown()) {
            DriverContext.makeCurrent(before);
        } else {
            CudaRuntime.setDevice((int) before);
        }
    }
}
