package org.nccl4j.collectives;

/**
 * A buffer's registration with one rank's communicator, from {@link Communicator#register}. Close
 * it when no operation uses the buffer any more, and before the buffer and the communicator.
 *
 * <p>Thread safety: belongs to the communicator's thread.
 */
public interface Registration extends AutoCloseable {
    /** Ends the registration. Closing twice does nothing. */
    @Override
    void close();
}
