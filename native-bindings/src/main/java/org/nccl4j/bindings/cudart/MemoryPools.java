package org.nccl4j.bindings.cudart;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.invoke.MethodHandle;
import org.nccl4j.bindings.NativeLibrary;

/**
 * The CUDA runtime's memory pools, which jextract's output does not have. Each function returns the
 * runtime's code, 0 for success, and is looked up when it is first called; all are there since CUDA
 * 11.2, and sizes and layouts are the same in CUDA 12 and 13.
 *
 * <p>Thread safety: as the runtime's, every function may be called from any thread.
 */
public final class MemoryPools {
    /**
     * {@code cudaMemPoolReuseAllowInternalDependencies}: whether an allocation may be ordered
     * behind another stream's free, int.
     */
    public static final int REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3;

    /**
     * {@code cudaMemPoolAttrReleaseThreshold}: bytes that a synchronization leaves to it, uint64.
     */
    public static final int RELEASE_THRESHOLD = 4;

    /** {@code cudaMemPoolAttrReservedMemCurrent}: bytes that it holds now, uint64. */
    public static final int RESERVED_MEM_CURRENT = 5;

    /** {@code cudaMemPoolAttrReservedMemHigh}: the most bytes that it held, uint64. */
    public static final int RESERVED_MEM_HIGH = 6;

    /** {@code cudaMemPoolAttrUsedMemCurrent}: bytes that are allocated now, uint64. */
    public static final int USED_MEM_CURRENT = 7;

    /** {@code cudaMemPoolAttrUsedMemHigh}: the most bytes that were allocated, uint64. */
    public static final int USED_MEM_HIGH = 8;

    /** {@code cudaMemAccessFlagsProtNone}. */
    public static final int ACCESS_NONE = 0;

    /** {@code cudaMemAccessFlagsProtRead}. */
    public static final int ACCESS_READ = 1;

    /** {@code cudaMemAccessFlagsProtReadWrite}. */
    public static final int ACCESS_READ_WRITE = 3;

    /** {@code cudaMemLocationTypeDevice}: the id is a device's ordinal. */
    public static final int LOCATION_DEVICE = 1;

    /** {@code cudaMemAllocationTypePinned}: the only type that a pool can be made for. */
    public static final int ALLOCATION_PINNED = 1;

    /** {@code struct cudaMemLocation}. */
    public static final StructLayout LOCATION =
            MemoryLayout.structLayout(JAVA_INT.withName("type"), JAVA_INT.withName("id"))
                    .withName("cudaMemLocation");

    /** {@code struct cudaMemAccessDesc}. */
    public static final StructLayout ACCESS_DESCRIPTION =
            MemoryLayout.structLayout(LOCATION.withName("location"), JAVA_INT.withName("flags"))
                    .withName("cudaMemAccessDesc");

    /** {@code struct cudaMemPoolProps}; what is not set must be zero. */
    public static final StructLayout PROPERTIES =
            MemoryLayout.structLayout(
                            JAVA_INT.withName("allocType"),
                            JAVA_INT.withName("handleTypes"),
                            LOCATION.withName("location"),
                            ADDRESS.withName("win32SecurityAttributes"),
                            JAVA_LONG.withName("maxSize"),
                            JAVA_SHORT.withName("usage"),
                            MemoryLayout.sequenceLayout(54, JAVA_BYTE).withName("reserved"))
                    .withName("cudaMemPoolProps");

    private MemoryPools() {}

    private static final class CudaDeviceGetDefaultMemPool {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaDeviceGetDefaultMemPool",
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
    }

    /**
     * The pool that every device has from the start.
     *
     * @param pool a pointer to write
     * @param device the device
     * @return 0, or the code of the error
     */
    public static int cudaDeviceGetDefaultMemPool(MemorySegment pool, int device) {
        try {
            return (int) CudaDeviceGetDefaultMemPool.HANDLE.invokeExact(pool, device);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaDeviceGetMemPool {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaDeviceGetMemPool", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
    }

    /**
     * The pool that {@code cudaMallocAsync} takes from on a device.
     *
     * @param pool a pointer to write
     * @param device the device
     * @return 0, or the code of the error
     */
    public static int cudaDeviceGetMemPool(MemorySegment pool, int device) {
        try {
            return (int) CudaDeviceGetMemPool.HANDLE.invokeExact(pool, device);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaMallocFromPoolAsync {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaMallocFromPoolAsync",
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS, ADDRESS));
    }

    /**
     * Allocates from a pool, in a stream's order.
     *
     * @param address a pointer to write
     * @param sizeBytes how many bytes
     * @param pool the pool
     * @param stream the stream
     * @return 0, or the code of the error
     */
    public static int cudaMallocFromPoolAsync(
            MemorySegment address, long sizeBytes, MemorySegment pool, MemorySegment stream) {
        try {
            return (int)
                    CudaMallocFromPoolAsync.HANDLE.invokeExact(address, sizeBytes, pool, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaMemPoolCreate {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaMemPoolCreate", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
    }

    /**
     * Makes a pool.
     *
     * @param pool a pointer to write
     * @param properties a {@link #PROPERTIES}
     * @return 0, or the code of the error
     */
    public static int cudaMemPoolCreate(MemorySegment pool, MemorySegment properties) {
        try {
            return (int) CudaMemPoolCreate.HANDLE.invokeExact(pool, properties);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaMemPoolDestroy {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaMemPoolDestroy", FunctionDescriptor.of(JAVA_INT, ADDRESS));
    }

    /**
     * Destroys a pool that was made; its memory goes when its last allocation is freed.
     *
     * @param pool the pool
     * @return 0, or the code of the error
     */
    public static int cudaMemPoolDestroy(MemorySegment pool) {
        try {
            return (int) CudaMemPoolDestroy.HANDLE.invokeExact(pool);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaMemPoolTrimTo {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaMemPoolTrimTo", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG));
    }

    /**
     * Gives unused memory back to the system.
     *
     * @param pool the pool
     * @param keepBytes how much it may keep
     * @return 0, or the code of the error
     */
    public static int cudaMemPoolTrimTo(MemorySegment pool, long keepBytes) {
        try {
            return (int) CudaMemPoolTrimTo.HANDLE.invokeExact(pool, keepBytes);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaMemPoolSetAttribute {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaMemPoolSetAttribute",
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, ADDRESS));
    }

    /**
     * Sets an attribute.
     *
     * @param pool the pool
     * @param attribute for example {@link #RELEASE_THRESHOLD}
     * @param value where to read it; of which type depends on the attribute
     * @return 0, or the code of the error
     */
    public static int cudaMemPoolSetAttribute(
            MemorySegment pool, int attribute, MemorySegment value) {
        try {
            return (int) CudaMemPoolSetAttribute.HANDLE.invokeExact(pool, attribute, value);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaMemPoolGetAttribute {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaMemPoolGetAttribute",
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, ADDRESS));
    }

    /**
     * Reads an attribute.
     *
     * @param pool the pool
     * @param attribute for example {@link #USED_MEM_CURRENT}
     * @param value where to write it; of which type depends on the attribute
     * @return 0, or the code of the error
     */
    public static int cudaMemPoolGetAttribute(
            MemorySegment pool, int attribute, MemorySegment value) {
        try {
            return (int) CudaMemPoolGetAttribute.HANDLE.invokeExact(pool, attribute, value);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaMemPoolSetAccess {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaMemPoolSetAccess",
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG));
    }

    /**
     * Says which devices may use the pool's memory.
     *
     * @param pool the pool
     * @param descriptions an array of {@link #ACCESS_DESCRIPTION}
     * @param count how many there are
     * @return 0, or the code of the error
     */
    public static int cudaMemPoolSetAccess(
            MemorySegment pool, MemorySegment descriptions, long count) {
        try {
            return (int) CudaMemPoolSetAccess.HANDLE.invokeExact(pool, descriptions, count);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaMemPoolGetAccess {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaMemPoolGetAccess",
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS));
    }

    /**
     * Whether a device may use the pool's memory.
     *
     * @param flags an int to write: {@link #ACCESS_NONE}, {@link #ACCESS_READ} or {@link
     *     #ACCESS_READ_WRITE}
     * @param pool the pool
     * @param location a {@link #LOCATION}
     * @return 0, or the code of the error
     */
    public static int cudaMemPoolGetAccess(
            MemorySegment flags, MemorySegment pool, MemorySegment location) {
        try {
            return (int) CudaMemPoolGetAccess.HANDLE.invokeExact(flags, pool, location);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }
}
