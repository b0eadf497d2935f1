package org.nccl4j.collectives;

/**
 * Captured work of one or several devices. Keeps its buffers and communicators reachable.
 *
 * <p>Thread safety: one thread at a time.
 */
public interface Graph extends AutoCloseable {
    /**
     * Enqueues the captured work on the streams that were captured; returns when every device has
     * taken it.
     *
     * @throws CollectiveException a communicator's failure; nothing has been enqueued
     */
    void launch();

    /** Destroys the graph; work already launched goes on. Closing twice does nothing. */
    @Override
    void close();
}
