package org.nccl4j.nccl;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import org.nccl4j.bindings.CudaDriver;
import org.nccl4j.bindings.LibraryNotLoadedException;
import org.nccl4j.bindings.NativeLibrary;
import org.nccl4j.collectives.InvalidArgumentException;

/**
 * Contexts of the CUDA driver. The runtime, and so NCCL, works in a device's primary context; users
 * of the driver API may have made others, whose memory and streams NCCL's kernels cannot use.
 * Without the driver's library nothing is known and nothing is refused.
 *
 * <p>Thread safety: all methods may be called from any thread; what is current is so for an OS
 * thread.
 */
final class DriverContext {
    private static final List<String> NEEDED =
            List.of(
                    "cuInit",
                    "cuDeviceGet",
                    "cuDeviceGetName",
                    "cuCtxGetCurrent",
                    "cuCtxSetCurrent",
                    "cuCtxGetDevice",
                    "cuDevicePrimaryCtxGetState",
                    "cuDevicePrimaryCtxRetain",
                    "cuDevicePrimaryCtxRelease_v2",
                    "cuStreamGetCtx");

    /** The context that was found to be a primary one last, to be spared another look. */
    private static volatile long lastPrimary;

    private DriverContext() {}

    private static final class Driver {
        static final boolean KNOWN = load();

        private static boolean load() {
            try {
                return NEEDED.stream().allMatch(NativeLibrary.CUDA_DRIVER::has)
                        && CudaDriver.cuInit(0) == 0;
            } catch (LibraryNotLoadedException e) {
                // It comes with the driver; CUDA itself says what is missing there.
                return false;
            }
        }
    }

    /** Whether the driver's library has been found. */
    static boolean isKnown() {
        return Driver.KNOWN;
    }

    /** The product's name of a device, or null where the driver's library is missing. */
    static String deviceName(int ordinal) {
        if (!isKnown()) {
            return null;
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment device = arena.allocate(JAVA_INT);
            MemorySegment name = arena.allocate(256);
            int code = CudaDriver.cuDeviceGet(device, ordinal);
            if (code == 0) {
                code =
                        CudaDriver.cuDeviceGetName(
                                name, (int) name.byteSize(), device.get(JAVA_INT, 0));
            }
            return code == 0 ? name.getString(0) : null;
        }
    }

    // ---- where the library has been found

    /** The context that is current on this OS thread; 0 if there is none. Allocates nothing. */
    static long current() {
        MemorySegment cell = CudaRuntime.ownCell();
        int code = CudaDriver.cuCtxGetCurrent(cell);
        if (code != 0) {
            throw CudaRuntime.failed("cuCtxGetCurrent", code, "asking for the current context");
        }
        return cell.get(JAVA_LONG, 0);
    }

    /** Makes a context current on this OS thread, or none if it is 0. */
    static void makeCurrent(long context) {
        int code = CudaDriver.cuCtxSetCurrent(context);
        if (code != 0) {
            throw CudaRuntime.failed(
                    "cuCtxSetCurrent",
                    code,
                    "making context 0x" + Long.toHexString(context) + " current");
        }
    }

    /** The primary context of a device, made if there is none, and kept for the process' life. */
    static long retainPrimary(int ordinal) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(ADDRESS);
            int code = CudaDriver.cuDevicePrimaryCtxRetain(cell, ordinal);
            if (code != 0) {
                throw CudaRuntime.failed(
                        "cuDevicePrimaryCtxRetain", code, "making a context of device " + ordinal);
            }
            return cell.get(JAVA_LONG, 0);
        }
    }

    /**
     * Refuses the current context if it is not the primary one of its device.
     *
     * @param context the current one
     * @throws InvalidArgumentException naming the context
     */
    static void refuseIfForeign(long context) {
        if (context == lastPrimary) {
            return;
        }
        MemorySegment cell = CudaRuntime.ownCell();
        if (CudaDriver.cuCtxGetDevice(cell) != 0) {
            return;
        }
        int ordinal = cell.get(JAVA_INT, 0);
        if (context != primary(ordinal)) {
            throw new InvalidArgumentException(
                    "the current CUDA context of this thread, 0x"
                            + Long.toHexString(context)
                            + ", is not the primary context of device "
                            + ordinal
                            + ", so NCCL could not share memory and streams with it; make the"
                            + " primary one current (cuDevicePrimaryCtxRetain and"
                            + " cuCtxSetCurrent), or call from another thread; nothing has"
                            + " changed");
        }
        lastPrimary = context;
    }

    /** The primary context of a device, 0 if it has none yet; makes none. */
    private static long primary(int device) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment flags = arena.allocate(JAVA_INT);
            MemorySegment active = arena.allocate(JAVA_INT);
            MemorySegment cell = arena.allocate(ADDRESS);
            if (CudaDriver.cuDevicePrimaryCtxGetState(device, flags, active) != 0
                    || active.get(JAVA_INT, 0) == 0) {
                return 0;
            }
            int code = CudaDriver.cuDevicePrimaryCtxRetain(cell, device);
            if (code != 0) {
                throw CudaRuntime.failed(
                        "cuDevicePrimaryCtxRetain",
                        code,
                        "asking for the primary context of device " + device);
            }
            CudaDriver.cuDevicePrimaryCtxRelease(device);
            return cell.get(ADDRESS, 0).address();
        }
    }

    /**
     * Refuses a stream that others made unless it is of a device's primary context.
     *
     * @param stream a valid {@code cudaStream_t} other than the special ones
     * @param ordinal the device it must be of
     * @param devices how many devices there are
     * @throws InvalidArgumentException naming what it is of
     */
    static void requireStreamOf(long stream, int ordinal, int devices) {
        if (!isKnown()) {
            return;
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(ADDRESS);
            int code = CudaDriver.cuStreamGetCtx(MemorySegment.ofAddress(stream), cell);
            if (code != 0) {
                throw refusal(
                        stream,
                        ordinal,
                        "the driver does not know it (cuStreamGetCtx answered " + code + ")");
            }
            long context = cell.get(ADDRESS, 0).address();
            if (context == primary(ordinal)) {
                return;
            }
            for (int other = 0; other < devices; other++) {
                if (other != ordinal && context == primary(other)) {
                    throw refusal(
                            stream,
                            ordinal,
                            "it is a stream of device " + other + "; wrap it with that device");
                }
            }
            throw refusal(
                    stream,
                    ordinal,
                    "it is a stream of the context 0x"
                            + Long.toHexString(context)
                            + ", which is not the primary context of a device; make it in the"
                            + " primary one");
        }
    }

    private static InvalidArgumentException refusal(long stream, int ordinal, String why) {
        return new InvalidArgumentException(
                "0x"
                        + Long.toHexString(stream)
                        + " cannot be wrapped as a stream of device "
                        + ordinal
                        + ": "
                        + why
                        + "; nothing has changed");
    }
}
