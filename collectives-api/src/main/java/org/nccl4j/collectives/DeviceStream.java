package org.nccl4j.collectives;

import java.time.Duration;
import java.util.concurrent.CompletionStage;

/**
 * A queue of work on a device. Work on one stream runs in the order in which it was enqueued; work
 * on two streams may overlap. Methods that enqueue return at once: they wait neither for earlier
 * work nor for other ranks.
 *
 * <p>When a communicator fails or is aborted, its work on this stream is given up, later work of
 * others goes on, and the failure is thrown by the next {@link #poll} or {@link #synchronize} (by
 * all that are waiting at that moment). Having thrown it after the abort, the stream has forgotten
 * it and is as good as new.
 *
 * <p>Thread safety: enqueuing on one stream from two threads at once needs the caller's own order;
 * {@link #poll}, {@link #synchronize} and {@link #completion} may be called from any thread at any
 * time.
 */
public interface DeviceStream extends AutoCloseable {
    /**
     * The stream's device.
     *
     * @return the device that made it
     */
    Device device();

    /**
     * Whether all work enqueued so far is complete.
     *
     * @return true if nothing is left
     * @throws CollectiveException the failure of a communicator with work here
     */
    boolean poll();

    /**
     * Waits until all work enqueued before the call is complete. The waiting thread may run shares
     * of it.
     *
     * @param timeout how long at most; zero asks without waiting
     * @throws CollectiveTimeoutException if time runs out: nothing has changed, synchronize again
     * @throws WaitInterruptedException if the thread is or gets interrupted: nothing has changed
     * @throws CollectiveException the failure of a communicator with work here
     */
    void synchronize(Duration timeout);

    /**
     * Marks this point of the stream in an event, replacing the event's earlier mark.
     *
     * @param event an event of the same backend, on any device
     * @throws InvalidArgumentException if event or stream is closed, or an open group has touched
     *     the stream; nothing is enqueued
     */
    void record(DeviceEvent event);

    /**
     * Makes work enqueued after this call wait for the mark that the event has now. Without a mark
     * nothing waits, and marks recorded later do not matter, as in CUDA.
     *
     * @param event an event of the same backend, on any device
     * @throws InvalidArgumentException if event or stream is closed, or an open group has touched
     *     the stream; nothing is enqueued
     */
    void waitFor(DeviceEvent event);

    /**
     * Allocates memory in the order of this stream, without synchronising the device: work that is
     * enqueued here afterwards may use it, work of other streams once they have waited for a mark
     * made here. Its {@link DeviceBuffer#close} gives it back in the order of the streams that have
     * used it. Where a device has no such allocator it is {@link Device#allocate}.
     *
     * @param sizeBytes 0 or more; 0 gives {@link DeviceBuffer#EMPTY}
     * @return a buffer to be closed by its owner
     * @throws InvalidArgumentException if the size is negative or more than can be had, the stream
     *     is closed, or an open group has touched it
     */
    default DeviceBuffer allocate(long sizeBytes) {
        return device().allocate(sizeBytes);
    }

    /**
     * Copies the first bytes of a buffer once earlier work is done. Ranges must not overlap.
     *
     * @param source device or host memory
     * @param destination device or host memory
     * @param sizeBytes 0 or more, at most either size
     * @throws InvalidArgumentException if a range is too short, overlaps or is closed, the
     *     destination is read-only, or an open group has touched the stream; nothing is enqueued
     */
    void copy(DeviceBuffer source, DeviceBuffer destination, long sizeBytes);

    /**
     * Sets every byte of a buffer once earlier work is done.
     *
     * @param destination device or host memory, written whole
     * @param value the byte
     * @throws InvalidArgumentException if the buffer is closed or read-only, or an open group has
     *     touched the stream; nothing is enqueued
     */
    void fill(DeviceBuffer destination, byte value);

    /**
     * A stage that completes when all work enqueued so far is complete, or exceptionally with the
     * failure of a communicator with work here. Dependents run on {@link
     * java.util.concurrent.ForkJoinPool#commonPool()}, never on a thread that moves data. The stage
     * itself sets no deadline; that of the operations ends it.
     *
     * @return a new stage
     */
    CompletionStage<Void> completion();

    /**
     * Gives the stream back. Never waits: work that was enqueued still runs. Closing twice does
     * nothing; later use is refused by name.
     */
    @Override
    void close();
}
