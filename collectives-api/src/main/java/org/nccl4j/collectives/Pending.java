package org.nccl4j.collectives;

import java.time.Duration;

/**
 * A value that needs every rank, such as the outcome of a split.
 *
 * <p>Thread safety: any thread may ask, any number of times.
 *
 * @param <T> the value's type
 */
public interface Pending<T> {
    /**
     * Whether {@link #await} would return or throw at once.
     *
     * @return true when the value or its failure is there
     */
    boolean isDone();

    /**
     * Waits for the value.
     *
     * @param timeout how long at most; zero asks without waiting
     * @return the value, the same at every call
     * @throws CollectiveTimeoutException if time runs out; nothing has changed, await again
     * @throws WaitInterruptedException if the thread is or gets interrupted: nothing has changed
     * @throws CollectiveException the failure if there is no value
     */
    T await(Duration timeout);
}
