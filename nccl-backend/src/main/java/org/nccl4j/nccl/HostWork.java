package org.nccl4j.nccl;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.nccl4j.bindings.cudart.cudaHostFn_t;
import org.nccl4j.collectives.InvalidArgumentException;

/**
 * Work of a stream that the processor does: copies between, and fills of, memory that a device does
 * not reach. A thread of CUDA's driver calls it when the stream comes to it, and the stream goes on
 * when it returns. Java does the work, so that memory whose arena has been closed is an exception
 * and not a crash; nothing of CUDA or NCCL may be called here.
 *
 * <p>Thread safety: done once, by one thread.
 */
final class HostWork {
    /** What has been enqueued and not been called yet, by number; this also keeps it reachable. */
    private static final ConcurrentHashMap<Long, HostWork> ENQUEUED = new ConcurrentHashMap<>();

    private static final AtomicLong NUMBERS = new AtomicLong();

    /** The C function, in a holder: it cannot be made without permission for native access. */
    private static final class Entry {
        static final MemorySegment POINT = cudaHostFn_t.allocate(HostWork::called, Arena.global());
    }

    private final NcclStream stream;
    private final String operation;
    private final AtomicBoolean broken;
    private final Runnable work;

    private HostWork(NcclStream stream, String operation, AtomicBoolean broken, Runnable work) {
        this.stream = stream;
        this.operation = operation;
        this.broken = broken;
        this.work = work;
    }

    /**
     * Enqueues work.
     *
     * @param handle the stream's handle
     * @param stream the stream, which remembers what goes wrong
     * @param operation for messages
     * @param broken whether a piece of the operation has failed: it fails once, and what comes
     *     after is left out
     * @param work touches memory through segments only
     */
    static void enqueue(
            long handle, NcclStream stream, String operation, AtomicBoolean broken, Runnable work) {
        long number = NUMBERS.incrementAndGet();
        ENQUEUED.put(number, new HostWork(stream, operation, broken, work));
        boolean enqueued = false;
        try {
            CudaRuntime.launchHostFunction(handle, Entry.POINT, number, operation);
            enqueued = true;
        } finally {
            if (!enqueued) {
                ENQUEUED.remove(number);
            }
        }
    }

    /** An exception that leaves this method ends the JVM. */
    private static void called(MemorySegment argument) {
        HostWork called = ENQUEUED.remove(argument.address());
        if (called == null || called.broken.get()) {
            return;
        }
        try {
            called.work.run();
        } catch (Throwable e) {
            if (called.broken.compareAndSet(false, true)) {
                called.broke(e);
            }
        }
    }

    private void broke(Throwable cause) {
        CommunicatorFailure failure =
                new CommunicatorFailure(
                        new InvalidArgumentException(
                                operation
                                        + " failed: "
                                        + cause
                                        + "; keep the memory of both buffers open until the stream"
                                        + " is synchronized",
                                cause));
        failure.aborted();
        stream.fail(failure);
    }
}
