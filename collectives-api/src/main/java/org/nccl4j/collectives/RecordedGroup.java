package org.nccl4j.collectives;

/**
 * A group that was recorded once and can be issued many times: the form for loops. It keeps its
 * buffers, streams and communicators reachable and holds nothing that must be closed.
 *
 * <p>Thread safety: as the communicators in it: one thread at a time.
 */
public interface RecordedGroup {
    /**
     * Enqueues all its operations, as if recorded anew. Allocates nothing in steady state. A
     * backend may have completed small ones when it returns; that is for the streams to tell all
     * the same.
     *
     * @throws InvalidArgumentException if a buffer or stream has been closed since; nothing is
     *     enqueued
     * @throws CollectiveException a communicator's failure; nothing is enqueued
     */
    void issue();
}
