package org.nccl4j.collectives;

import java.time.Duration;

/**
 * A mark in a stream, set by {@link DeviceStream#record}. The stream passes it when the work that
 * was enqueued before it is over: complete, or given up because its communicator failed. A passed
 * mark is no proof of results; {@link DeviceStream#synchronize} throws the failure.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
public interface DeviceEvent extends AutoCloseable {
    /**
     * Whether the stream has passed the latest mark.
     *
     * @return true if it has, or if there is no mark
     */
    boolean poll();

    /**
     * Waits until the stream has passed the mark that the event has at the call.
     *
     * @param timeout how long at most; zero asks without waiting
     * @throws CollectiveTimeoutException if time runs out: nothing has changed
     * @throws WaitInterruptedException if the thread is or gets interrupted: nothing has changed
     */
    void synchronize(Duration timeout);

    /**
     * The time between two passed marks of streams of one device.
     *
     * @param earlier the event passed first
     * @return this event's time less the other's
     * @throws InvalidArgumentException if either has no mark or its stream has not passed it, or
     *     the marks are of devices whose clocks cannot be compared
     */
    Duration elapsedSince(DeviceEvent earlier);

    /** Gives the event back; waits made on it stay valid. Closing twice does nothing. */
    @Override
    void close();
}
