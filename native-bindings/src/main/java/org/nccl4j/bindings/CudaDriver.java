package org.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;

/**
 * The functions of CUDA's driver library that the runtime has no equal of: contexts and names. Each
 * returns the driver's code, 0 for success, and is looked up when it is first called. Handles are
 * addresses; what a function writes goes to a segment of the caller's.
 *
 * <p>The library comes with the driver, so it is missing where there is no GPU: ask {@link
 * NativeLibrary#has NativeLibrary.CUDA_DRIVER.has} first, and see there what becomes of a class
 * whose first call found no function.
 *
 * <p>Thread safety: as the driver's, every function may be called from any thread. The current
 * context belongs to the OS thread; a virtual thread may change its OS thread between two calls.
 */
public final class CudaDriver {
    /**
     * {@code CU_POINTER_ATTRIBUTE_CONTEXT}: the context that allocated or registered it, a pointer.
     */
    public static final int CU_POINTER_ATTRIBUTE_CONTEXT = 1;

    /** {@code CU_POINTER_ATTRIBUTE_MEMORY_TYPE}: 1 host, 2 device, an unsigned int. */
    public static final int CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2;

    /** {@code CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL}: the device, an int. */
    public static final int CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9;

    private CudaDriver() {}

    private static final class CuInit {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuInit", FunctionDescriptor.of(JAVA_INT, JAVA_INT));
    }

    /**
     * Makes the driver ready; every other function but {@link #cuDriverGetVersion} needs it once.
     *
     * @param flags 0
     * @return 0, or the code of the error
     */
    public static int cuInit(int flags) {
        try {
            return (int) CuInit.HANDLE.invokeExact(flags);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuDriverGetVersion {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuDriverGetVersion", FunctionDescriptor.of(JAVA_INT, ADDRESS));
    }

    /**
     * The newest CUDA that the driver supports; works without {@link #cuInit}.
     *
     * @param version an int to write: 1000 major + 10 minor
     * @return 0, or the code of the error
     */
    public static int cuDriverGetVersion(MemorySegment version) {
        try {
            return (int) CuDriverGetVersion.HANDLE.invokeExact(version);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuDeviceGetCount {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuDeviceGetCount", FunctionDescriptor.of(JAVA_INT, ADDRESS));
    }

    /**
     * How many devices there are.
     *
     * @param count an int to write
     * @return 0, or the code of the error
     */
    public static int cuDeviceGetCount(MemorySegment count) {
        try {
            return (int) CuDeviceGetCount.HANDLE.invokeExact(count);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuDeviceGet {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuDeviceGet", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
    }

    /**
     * The device with an ordinal.
     *
     * @param device an int to write
     * @param ordinal from 0, as the runtime counts
     * @return 0, or the code of the error
     */
    public static int cuDeviceGet(MemorySegment device, int ordinal) {
        try {
            return (int) CuDeviceGet.HANDLE.invokeExact(device, ordinal);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuDeviceGetName {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuDeviceGetName",
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, JAVA_INT));
    }

    /**
     * The device's name.
     *
     * @param name bytes to write, with a zero at the end
     * @param sizeBytes how many bytes there are
     * @param device from {@link #cuDeviceGet}
     * @return 0, or the code of the error
     */
    public static int cuDeviceGetName(MemorySegment name, int sizeBytes, int device) {
        try {
            return (int) CuDeviceGetName.HANDLE.invokeExact(name, sizeBytes, device);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuCtxGetCurrent {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuCtxGetCurrent", FunctionDescriptor.of(JAVA_INT, ADDRESS));
    }

    /**
     * The context that is current on this OS thread.
     *
     * @param context a pointer to write; NULL if there is none
     * @return 0, or the code of the error
     */
    public static int cuCtxGetCurrent(MemorySegment context) {
        try {
            return (int) CuCtxGetCurrent.HANDLE.invokeExact(context);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuCtxSetCurrent {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuCtxSetCurrent", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));
    }

    /**
     * Makes a context current on this OS thread.
     *
     * @param context the context's address, 0 for none: as a number, for a segment would be made
     *     anew at each call
     * @return 0, or the code of the error
     */
    public static int cuCtxSetCurrent(long context) {
        try {
            return (int) CuCtxSetCurrent.HANDLE.invokeExact(context);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuCtxGetDevice {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuCtxGetDevice", FunctionDescriptor.of(JAVA_INT, ADDRESS));
    }

    /**
     * The device of the context that is current on this OS thread.
     *
     * @param device an int to write
     * @return 0, or the code of the error
     */
    public static int cuCtxGetDevice(MemorySegment device) {
        try {
            return (int) CuCtxGetDevice.HANDLE.invokeExact(device);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuDevicePrimaryCtxRetain {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuDevicePrimaryCtxRetain",
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
    }

    /**
     * The context that the runtime uses on a device, made if need be, with a use counted.
     *
     * @param context a pointer to write
     * @param device from {@link #cuDeviceGet}
     * @return 0, or the code of the error
     */
    public static int cuDevicePrimaryCtxRetain(MemorySegment context, int device) {
        try {
            return (int) CuDevicePrimaryCtxRetain.HANDLE.invokeExact(context, device);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuDevicePrimaryCtxRelease {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuDevicePrimaryCtxRelease_v2", FunctionDescriptor.of(JAVA_INT, JAVA_INT));
    }

    /**
     * Gives back one use of a device's primary context. This is {@code
     * cuDevicePrimaryCtxRelease_v2}, as in every header since CUDA 11; the symbol without a suffix
     * is the one before.
     *
     * @param device from {@link #cuDeviceGet}
     * @return 0, or the code of the error
     */
    public static int cuDevicePrimaryCtxRelease(int device) {
        try {
            return (int) CuDevicePrimaryCtxRelease.HANDLE.invokeExact(device);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuDevicePrimaryCtxGetState {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuDevicePrimaryCtxGetState",
                        FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, ADDRESS));
    }

    /**
     * Whether a device's primary context exists; makes none.
     *
     * @param device from {@link #cuDeviceGet}
     * @param flags an unsigned int to write
     * @param active an int to write: 1 if it exists
     * @return 0, or the code of the error
     */
    public static int cuDevicePrimaryCtxGetState(
            int device, MemorySegment flags, MemorySegment active) {
        try {
            return (int) CuDevicePrimaryCtxGetState.HANDLE.invokeExact(device, flags, active);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuStreamGetCtx {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuStreamGetCtx", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
    }

    /**
     * The context of a stream. For a stream of a green context, CUDA 12.4 and newer, it is the
     * context that the green one was made from.
     *
     * @param stream the stream
     * @param context a pointer to write
     * @return 0, or the code of the error
     */
    public static int cuStreamGetCtx(MemorySegment stream, MemorySegment context) {
        try {
            return (int) CuStreamGetCtx.HANDLE.invokeExact(stream, context);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuPointerGetAttribute {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuPointerGetAttribute",
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, JAVA_LONG));
    }

    /**
     * What the driver knows about an address.
     *
     * @param data where to write; of which type depends on the attribute
     * @param attribute for example {@link #CU_POINTER_ATTRIBUTE_CONTEXT}
     * @param pointer the address
     * @return 0, or the code of the error
     */
    public static int cuPointerGetAttribute(MemorySegment data, int attribute, long pointer) {
        try {
            return (int) CuPointerGetAttribute.HANDLE.invokeExact(data, attribute, pointer);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuGetErrorName {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuGetErrorName", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS));
    }

    /**
     * A code's name; works without {@link #cuInit}.
     *
     * @param error the code
     * @param name a pointer to write: to characters that are never freed
     * @return 0, or the code of the error
     */
    public static int cuGetErrorName(int error, MemorySegment name) {
        try {
            return (int) CuGetErrorName.HANDLE.invokeExact(error, name);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CuGetErrorString {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_DRIVER.function(
                        "cuGetErrorString", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS));
    }

    /**
     * A code's description; works without {@link #cuInit}.
     *
     * @param error the code
     * @param text a pointer to write: to characters that are never freed
     * @return 0, or the code of the error
     */
    public static int cuGetErrorString(int error, MemorySegment text) {
        try {
            return (int) CuGetErrorString.HANDLE.invokeExact(error, text);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }
}
