package org.nccl4j.bindings.cudart;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import org.nccl4j.bindings.NativeLibrary;

/**
 * Functions of the CUDA runtime that jextract's include list left out. Each returns the runtime's
 * code, 0 for success, and is looked up when it is first called; their signatures are the same in
 * CUDA 12 and 13.
 *
 * <p>Thread safety: as the runtime's, every function may be called from any thread. The capture
 * mode and the current device belong to the OS thread.
 */
public final class CudaRtAdditions {
    private CudaRtAdditions() {}

    private static final class CudaThreadExchangeStreamCaptureMode {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaThreadExchangeStreamCaptureMode",
                        FunctionDescriptor.of(JAVA_INT, ADDRESS));
    }

    /**
     * Swaps this OS thread's capture mode with the given one.
     *
     * @param mode an int that is read and written: a {@code cudaStreamCaptureMode}
     * @return 0, or the code of the error
     */
    public static int cudaThreadExchangeStreamCaptureMode(MemorySegment mode) {
        try {
            return (int) CudaThreadExchangeStreamCaptureMode.HANDLE.invokeExact(mode);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaStreamGetDevice {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaStreamGetDevice", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
    }

    /**
     * The device of a stream. Only since CUDA 12.8: ask {@link NativeLibrary#has} first.
     *
     * @param stream the stream
     * @param device an int to write
     * @return 0, or the code of the error
     */
    public static int cudaStreamGetDevice(MemorySegment stream, MemorySegment device) {
        try {
            return (int) CudaStreamGetDevice.HANDLE.invokeExact(stream, device);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaStreamGetFlags {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaStreamGetFlags", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
    }

    /**
     * The flags that a stream was made with.
     *
     * @param stream the stream
     * @param flags an unsigned int to write
     * @return 0, or the code of the error
     */
    public static int cudaStreamGetFlags(MemorySegment stream, MemorySegment flags) {
        try {
            return (int) CudaStreamGetFlags.HANDLE.invokeExact(stream, flags);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaStreamGetPriority {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaStreamGetPriority", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
    }

    /**
     * A stream's priority.
     *
     * @param stream the stream
     * @param priority an int to write
     * @return 0, or the code of the error
     */
    public static int cudaStreamGetPriority(MemorySegment stream, MemorySegment priority) {
        try {
            return (int) CudaStreamGetPriority.HANDLE.invokeExact(stream, priority);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaHostGetDevicePointer {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaHostGetDevicePointer",
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_INT));
    }

    /**
     * The address by which the current device reaches pinned host memory.
     *
     * @param address a pointer to write
     * @param host the memory's address on the host
     * @param flags 0
     * @return 0, or the code of the error
     */
    public static int cudaHostGetDevicePointer(
            MemorySegment address, MemorySegment host, int flags) {
        try {
            return (int) CudaHostGetDevicePointer.HANDLE.invokeExact(address, host, flags);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaHostGetFlags {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaHostGetFlags", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
    }

    /**
     * The flags that pinned host memory was allocated with.
     *
     * @param flags an unsigned int to write
     * @param host the memory's address on the host
     * @return 0, or the code of the error
     */
    public static int cudaHostGetFlags(MemorySegment flags, MemorySegment host) {
        try {
            return (int) CudaHostGetFlags.HANDLE.invokeExact(flags, host);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaDeviceGetByPCIBusId {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaDeviceGetByPCIBusId",
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
    }

    /**
     * The device with a PCI bus id.
     *
     * @param device an int to write
     * @param busId the id, with a zero at the end
     * @return 0, or the code of the error
     */
    public static int cudaDeviceGetByPCIBusId(MemorySegment device, MemorySegment busId) {
        try {
            return (int) CudaDeviceGetByPCIBusId.HANDLE.invokeExact(device, busId);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaGraphUpload {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaGraphUpload", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
    }

    /**
     * Brings an executable graph to its device before the first launch.
     *
     * @param graphExec the executable graph
     * @param stream the stream that does it
     * @return 0, or the code of the error
     */
    public static int cudaGraphUpload(MemorySegment graphExec, MemorySegment stream) {
        try {
            return (int) CudaGraphUpload.HANDLE.invokeExact(graphExec, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }
}
