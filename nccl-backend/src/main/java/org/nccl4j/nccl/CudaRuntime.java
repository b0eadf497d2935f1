package org.nccl4j.nccl;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.nccl4j.bindings.NativeLibrary;
import org.nccl4j.bindings.cudart.CudaRt;
import org.nccl4j.bindings.cudart.CudaRtAdditions;
import org.nccl4j.bindings.cudart.CudaRtByAddress;
import org.nccl4j.bindings.cudart.MemoryPools;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.NativeCallException;

/**
 * The CUDA runtime's functions: a code that is not 0 becomes a {@link NativeCallException} that
 * says what was being done. Handles are addresses. Nothing here may be called before {@link
 * NcclSetup} has found the library.
 *
 * <p>Thread safety: as CUDA's own, every function may be called from any thread; those that say so
 * act on the thread's current device ({@link CurrentDevice}).
 */
final class CudaRuntime {
    /** The stream that older programs share, of the thread's current device. */
    static final long LEGACY_STREAM = 1;

    /** A stream per OS thread, which virtual threads cannot use. */
    static final long PER_THREAD_STREAM = 2;

    static final int COMPUTE_CAPABILITY_MAJOR = 75;
    static final int COMPUTE_CAPABILITY_MINOR = 76;
    static final int TAKES_POINTERS_OF_REGISTERED_MEMORY = 91;
    static final int MEMORY_POOLS_SUPPORTED = 115;

    private static final int OUT_OF_MEMORY = 2;
    private static final int NOT_READY = 600;
    private static final int NOT_SUPPORTED = 801;
    private static final int NON_BLOCKING_STREAM = 1;
    private static final int EVENT_WITHOUT_TIMING = 2;
    private static final int COPY_BY_ADDRESS = 4;
    private static final int PORTABLE_HOST_MEMORY = 1;
    private static final int THREAD_LOCAL_CAPTURE = 1;

    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    private static final ThreadLocal<MemorySegment> OWN_CELL =
            ThreadLocal.withInitial(() -> Arena.ofAuto().allocate(JAVA_LONG));

    private CudaRuntime() {}

    // ---- errors

    static String errorName(int code) {
        return CudaRt.cudaGetErrorName(code).getString(0);
    }

    static String errorText(int code) {
        return CudaRt.cudaGetErrorString(code).getString(0);
    }

    /** What a failed call becomes. */
    static NativeCallException failed(String function, int code, String doing) {
        return CudaErrors.exception(function, code, errorName(code), errorText(code), doing);
    }

    /** Whether a failure says that nothing runs any more. */
    static boolean isLoss(CollectiveException failure) {
        return failure instanceof NativeCallException call && CudaErrors.isLoss(call.code());
    }

    /**
     * Makes a call that gives something back. Who closes something cannot help it if that fails,
     * and where a context is lost all of it is.
     */
    static void giveBack(Runnable call) {
        try {
            call.run();
        } catch (CollectiveException e) {
            LOG.log(isLoss(e) ? System.Logger.Level.DEBUG : System.Logger.Level.ERROR, "leaked", e);
        }
    }

    private static void check(String function, int code, String doing) {
        if (code != 0) {
            throw failed(function, code, doing);
        }
    }

    /**
     * Takes back what the last call of this OS thread left behind for whoever asks next, which may
     * be a check inside NCCL. Only what was expected is taken: another error stays.
     */
    private static void forget(int code) {
        if (CudaRt.cudaPeekAtLastError() == code) {
            CudaRt.cudaGetLastError();
        }
    }

    private static boolean isReady(String function, int code, String doing) {
        if (code == NOT_READY) {
            forget(NOT_READY);
            return false;
        }
        check(function, code, doing);
        return true;
    }

    private static MemorySegment at(long address) {
        return MemorySegment.ofAddress(address);
    }

    // ---- the library and its devices

    /** The number of devices, or the negated code of the error. */
    static int deviceCountOrError() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(JAVA_INT);
            int code = CudaRt.cudaGetDeviceCount(cell);
            if (code != 0) {
                forget(code);
                return -code;
            }
            return cell.get(JAVA_INT, 0);
        }
    }

    static int runtimeVersion() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(JAVA_INT);
            check(
                    "cudaRuntimeGetVersion",
                    CudaRt.cudaRuntimeGetVersion(cell),
                    "asking for CUDA's version");
            return cell.get(JAVA_INT, 0);
        }
    }

    /** The newest CUDA that the driver supports; 0 if there is no driver. */
    static int driverVersion() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(JAVA_INT);
            check(
                    "cudaDriverGetVersion",
                    CudaRt.cudaDriverGetVersion(cell),
                    "asking for the driver's version");
            return cell.get(JAVA_INT, 0);
        }
    }

    /** As people write it: 13000 is 13.0. */
    static String versionText(int code) {
        return code / 1000 + "." + code % 1000 / 10;
    }

    /**
     * A cell of eight bytes of the calling thread, for what is asked often: to be read before
     * anything else is called.
     */
    static MemorySegment ownCell() {
        return OWN_CELL.get();
    }

    /** The current device of this OS thread. */
    static int currentDevice() {
        MemorySegment cell = ownCell();
        check("cudaGetDevice", CudaRt.cudaGetDevice(cell), "asking for the current device");
        return cell.get(JAVA_INT, 0);
    }

    static void setDevice(int device) {
        int code = CudaRt.cudaSetDevice(device);
        if (code != 0) {
            throw failed("cudaSetDevice", code, "making device " + device + " current");
        }
    }

    static int deviceAttribute(int attribute, int device) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(JAVA_INT);
            check(
                    "cudaDeviceGetAttribute",
                    CudaRt.cudaDeviceGetAttribute(cell, attribute, device),
                    "asking for attribute " + attribute + " of device " + device);
            return cell.get(JAVA_INT, 0);
        }
    }

    static String pciBusId(int device) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(32);
            check(
                    "cudaDeviceGetPCIBusId",
                    CudaRt.cudaDeviceGetPCIBusId(cell, 32, device),
                    "asking for the PCI address of device " + device);
            return cell.getString(0);
        }
    }

    static boolean canAccessPeer(int device, int peer) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(JAVA_INT);
            check(
                    "cudaDeviceCanAccessPeer",
                    CudaRt.cudaDeviceCanAccessPeer(cell, device, peer),
                    "asking whether device " + device + " reaches device " + peer);
            return cell.get(JAVA_INT, 0) != 0;
        }
    }

    /** Memory of the current device. */
    static Device.Memory memory(String doing) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment free = arena.allocate(JAVA_LONG);
            MemorySegment total = arena.allocate(JAVA_LONG);
            check("cudaMemGetInfo", CudaRt.cudaMemGetInfo(free, total), doing);
            return new Device.Memory(free.get(JAVA_LONG, 0), total.get(JAVA_LONG, 0));
        }
    }

    /**
     * From now on this OS thread's calls are refused only because of captures of its own, and
     * disturb no other thread's.
     */
    static void useThreadLocalCaptureMode() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment mode = arena.allocateFrom(JAVA_INT, THREAD_LOCAL_CAPTURE);
            check(
                    "cudaThreadExchangeStreamCaptureMode",
                    CudaRtAdditions.cudaThreadExchangeStreamCaptureMode(mode),
                    "choosing this thread's capture mode");
        }
    }

    // ---- memory

    /** Memory of the current device; 0 if there is not so much. */
    static long malloc(long sizeBytes, String doing) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(ADDRESS);
            return allocated("cudaMalloc", CudaRt.cudaMalloc(cell, sizeBytes), cell, doing);
        }
    }

    static void free(long address, String doing) {
        check("cudaFree", CudaRt.cudaFree(at(address)), doing);
    }

    /** Pinned memory that every device can use; 0 if it cannot be had. */
    static long hostAlloc(long sizeBytes, String doing) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(ADDRESS);
            return allocated(
                    "cudaHostAlloc",
                    CudaRt.cudaHostAlloc(cell, sizeBytes, PORTABLE_HOST_MEMORY),
                    cell,
                    doing);
        }
    }

    static void freeHost(long address, String doing) {
        check("cudaFreeHost", CudaRt.cudaFreeHost(at(address)), doing);
    }

    /**
     * Pins memory that is there.
     *
     * @return false if it cannot be pinned
     */
    static boolean registerHost(long address, long sizeBytes, String doing) {
        int code = CudaRt.cudaHostRegister(at(address), sizeBytes, PORTABLE_HOST_MEMORY);
        if (code == OUT_OF_MEMORY || code == NOT_SUPPORTED) {
            forget(code);
            return false;
        }
        check("cudaHostRegister", code, doing);
        return true;
    }

    static void unregisterHost(long address, String doing) {
        check("cudaHostUnregister", CudaRt.cudaHostUnregister(at(address)), doing);
    }

    /** Memory of a pool, in a stream's order; 0 if there is not so much. */
    static long mallocFromPool(long sizeBytes, long pool, long stream, String doing) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(ADDRESS);
            return allocated(
                    "cudaMallocFromPoolAsync",
                    MemoryPools.cudaMallocFromPoolAsync(cell, sizeBytes, at(pool), at(stream)),
                    cell,
                    doing);
        }
    }

    static void freeAsync(long address, long stream, String doing) {
        check("cudaFreeAsync", CudaRt.cudaFreeAsync(at(address), at(stream)), doing);
    }

    private static long allocated(String function, int code, MemorySegment cell, String doing) {
        if (code == OUT_OF_MEMORY) {
            forget(OUT_OF_MEMORY);
            return 0;
        }
        check(function, code, doing);
        return cell.get(ADDRESS, 0).address();
    }

    /**
     * A pool of a device whose memory these devices may use as well, and which keeps what is given
     * back to it.
     */
    static long createPool(int device, int[] peers) {
        String doing = "making a memory pool of device " + device;
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment properties = arena.allocate(MemoryPools.PROPERTIES);
            properties.set(JAVA_INT, 0, MemoryPools.ALLOCATION_PINNED);
            properties.set(JAVA_INT, 8, MemoryPools.LOCATION_DEVICE);
            properties.set(JAVA_INT, 12, device);
            MemorySegment cell = arena.allocate(ADDRESS);
            check("cudaMemPoolCreate", MemoryPools.cudaMemPoolCreate(cell, properties), doing);
            MemorySegment pool = cell.get(ADDRESS, 0);
            boolean furnished = false;
            try {
                furnishPool(arena, pool, peers, doing);
                furnished = true;
            } finally {
                if (!furnished) {
                    giveBack(() -> destroyPool(pool.address(), doing));
                }
            }
            return pool.address();
        }
    }

    private static void furnishPool(Arena arena, MemorySegment pool, int[] peers, String doing) {
        MemorySegment threshold = arena.allocateFrom(JAVA_LONG, Long.MAX_VALUE);
        check(
                "cudaMemPoolSetAttribute",
                MemoryPools.cudaMemPoolSetAttribute(pool, MemoryPools.RELEASE_THRESHOLD, threshold),
                doing);
        // Else an allocation may be ordered behind a free of another stream, and so behind work
        // that waits for other ranks.
        MemorySegment no = arena.allocateFrom(JAVA_INT, 0);
        check(
                "cudaMemPoolSetAttribute",
                MemoryPools.cudaMemPoolSetAttribute(
                        pool, MemoryPools.REUSE_ALLOW_INTERNAL_DEPENDENCIES, no),
                doing);
        if (peers.length == 0) {
            return;
        }
        MemorySegment access = arena.allocate(MemoryPools.ACCESS_DESCRIPTION, peers.length);
        for (int i = 0; i < peers.length; i++) {
            access.setAtIndex(JAVA_INT, 3L * i, MemoryPools.LOCATION_DEVICE);
            access.setAtIndex(JAVA_INT, 3L * i + 1, peers[i]);
            access.setAtIndex(JAVA_INT, 3L * i + 2, MemoryPools.ACCESS_READ_WRITE);
        }
        check(
                "cudaMemPoolSetAccess",
                MemoryPools.cudaMemPoolSetAccess(pool, access, peers.length),
                doing);
    }

    /** What a pool holds and nobody uses. */
    static long poolReserve(long pool, String doing) {
        return poolAttribute(pool, MemoryPools.RESERVED_MEM_CURRENT, doing)
                - poolAttribute(pool, MemoryPools.USED_MEM_CURRENT, doing);
    }

    private static long poolAttribute(long pool, int attribute, String doing) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(JAVA_LONG);
            check(
                    "cudaMemPoolGetAttribute",
                    MemoryPools.cudaMemPoolGetAttribute(at(pool), attribute, cell),
                    doing);
            return cell.get(JAVA_LONG, 0);
        }
    }

    /** Gives what a pool holds and nobody uses back to the device. */
    static void trimPool(long pool, String doing) {
        check("cudaMemPoolTrimTo", MemoryPools.cudaMemPoolTrimTo(at(pool), 0), doing);
    }

    static void destroyPool(long pool, String doing) {
        check("cudaMemPoolDestroy", MemoryPools.cudaMemPoolDestroy(at(pool)), doing);
    }

    // ---- streams

    /** A stream of the current device that keeps no order with the default stream. */
    static long createStream(String doing) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(ADDRESS);
            check(
                    "cudaStreamCreateWithFlags",
                    CudaRt.cudaStreamCreateWithFlags(cell, NON_BLOCKING_STREAM),
                    doing);
            return cell.get(ADDRESS, 0).address();
        }
    }

    static void destroyStream(long stream, String doing) {
        check("cudaStreamDestroy", CudaRt.cudaStreamDestroy(at(stream)), doing);
    }

    /** Whether nothing is left. */
    static boolean streamQuery(long stream, String doing) {
        return isReady("cudaStreamQuery", CudaRtByAddress.cudaStreamQuery(stream), doing);
    }

    /** Whether a stream is being captured; allocates nothing. */
    static boolean isCapturing(long stream, MemorySegment intCell, String doing) {
        check(
                "cudaStreamIsCapturing",
                CudaRtByAddress.cudaStreamIsCapturing(stream, intCell),
                doing);
        return intCell.get(JAVA_INT, 0) != 0;
    }

    static void streamWaitEvent(long stream, long event, String doing) {
        check("cudaStreamWaitEvent", CudaRtByAddress.cudaStreamWaitEvent(stream, event, 0), doing);
    }

    /** The device of a stream, or -1 where this runtime cannot tell, before 12.8. */
    static int deviceOfStream(long stream, String doing) {
        if (!NativeLibrary.CUDA_RUNTIME.has("cudaStreamGetDevice")) {
            return -1;
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(JAVA_INT);
            check(
                    "cudaStreamGetDevice",
                    CudaRtAdditions.cudaStreamGetDevice(at(stream), cell),
                    doing);
            return cell.get(JAVA_INT, 0);
        }
    }

    /** Between memory of devices and pinned memory; CUDA sees by the addresses which is which. */
    static void copyAsync(
            long destination, long source, long sizeBytes, long stream, String doing) {
        check(
                "cudaMemcpyAsync",
                CudaRt.cudaMemcpyAsync(
                        at(destination), at(source), sizeBytes, COPY_BY_ADDRESS, at(stream)),
                doing);
    }

    static void copyPeerAsync(
            long destination,
            int destinationDevice,
            long source,
            int sourceDevice,
            long sizeBytes,
            long stream,
            String doing) {
        check(
                "cudaMemcpyPeerAsync",
                CudaRt.cudaMemcpyPeerAsync(
                        at(destination),
                        destinationDevice,
                        at(source),
                        sourceDevice,
                        sizeBytes,
                        at(stream)),
                doing);
    }

    static void fillAsync(long destination, byte value, long sizeBytes, long stream, String doing) {
        check(
                "cudaMemsetAsync",
                CudaRt.cudaMemsetAsync(at(destination), value & 0xff, sizeBytes, at(stream)),
                doing);
    }

    /** Has a thread of the driver call a function when the stream comes to this point. */
    static void launchHostFunction(
            long stream, MemorySegment function, long argument, String doing) {
        check(
                "cudaLaunchHostFunc",
                CudaRt.cudaLaunchHostFunc(at(stream), function, at(argument)),
                doing);
    }

    // ---- events

    /** An event of the current device. */
    static long createEvent(boolean timed, String doing) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(ADDRESS);
            check(
                    "cudaEventCreateWithFlags",
                    CudaRt.cudaEventCreateWithFlags(cell, timed ? 0 : EVENT_WITHOUT_TIMING),
                    doing);
            return cell.get(ADDRESS, 0).address();
        }
    }

    static void destroyEvent(long event, String doing) {
        check("cudaEventDestroy", CudaRt.cudaEventDestroy(at(event)), doing);
    }

    static void recordEvent(long event, long stream, String doing) {
        check("cudaEventRecord", CudaRtByAddress.cudaEventRecord(event, stream), doing);
    }

    /** Whether the stream has passed the event's mark. */
    static boolean eventQuery(long event, String doing) {
        return isReady("cudaEventQuery", CudaRtByAddress.cudaEventQuery(event), doing);
    }

    /** The time between two passed events of one device. */
    static float elapsedMillis(long earlier, long later, String doing) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(JAVA_FLOAT);
            check(
                    "cudaEventElapsedTime",
                    CudaRt.cudaEventElapsedTime(cell, at(earlier), at(later)),
                    doing);
            return cell.get(JAVA_FLOAT, 0);
        }
    }
}
