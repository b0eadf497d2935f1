package org.nccl4j.bindings.cudart;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import org.nccl4j.bindings.NativeLibrary;

/**
 * What is called while operations are enqueued and watched once more, with addresses and handles as
 * numbers. {@link CudaRt} takes a segment for each, which must be made for an address that is
 * computed or belongs to a GPU; only a compiler that inlines everything between there and the call
 * makes that object disappear. Here there is none from the start. Signatures are held to those of C
 * by the same test; a function is looked up when it is first called.
 *
 * <p>Thread safety: as the runtime's, every function may be called from any thread.
 */
public final class CudaRtByAddress {
    private CudaRtByAddress() {}

    private static final class CudaEventRecord {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaEventRecord", FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG));
    }

    /**
     * Records an event behind a stream's work.
     *
     * @param event the event
     * @param stream the stream
     * @return 0, or the code of the error
     */
    public static int cudaEventRecord(long event, long stream) {
        try {
            return (int) CudaEventRecord.HANDLE.invokeExact(event, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaEventQuery {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaEventQuery", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));
    }

    /**
     * Whether an event has been passed.
     *
     * @param event the event
     * @return 0 if so, 600 if not, or the code of the error
     */
    public static int cudaEventQuery(long event) {
        try {
            return (int) CudaEventQuery.HANDLE.invokeExact(event);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaStreamQuery {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaStreamQuery", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));
    }

    /**
     * Whether all work of a stream is over.
     *
     * @param stream the stream
     * @return 0 if so, 600 if not, or the code of the error
     */
    public static int cudaStreamQuery(long stream) {
        try {
            return (int) CudaStreamQuery.HANDLE.invokeExact(stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaStreamWaitEvent {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaStreamWaitEvent",
                        FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT));
    }

    /**
     * Has a stream's later work wait for an event.
     *
     * @param stream the stream
     * @param event the event
     * @param flags 0
     * @return 0, or the code of the error
     */
    public static int cudaStreamWaitEvent(long stream, long event, int flags) {
        try {
            return (int) CudaStreamWaitEvent.HANDLE.invokeExact(stream, event, flags);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class CudaStreamIsCapturing {
        static final MethodHandle HANDLE =
                NativeLibrary.CUDA_RUNTIME.function(
                        "cudaStreamIsCapturing",
                        FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS));
    }

    /**
     * Whether a stream is being captured.
     *
     * @param stream the stream
     * @param status a {@code cudaStreamCaptureStatus} to write
     * @return 0, or the code of the error
     */
    public static int cudaStreamIsCapturing(long stream, MemorySegment status) {
        try {
            return (int) CudaStreamIsCapturing.HANDLE.invokeExact(stream, status);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }
}
