package org.nccl4j.collectives;

/**
 * Where a communicator stands in its life, as one rank sees it.
 *
 * <p>Thread safety: immutable.
 */
public sealed interface CommunicatorStatus {
    /** Ranks are still connecting; operations may be enqueued and wait. */
    record Initializing() implements CommunicatorStatus {}

    /** In use. */
    record Ready() implements CommunicatorStatus {}

    /** Its device memory has been released for a while; resume it before use. */
    record Suspended() implements CommunicatorStatus {}

    /** Stopped on purpose so that it can be shrunk; it takes no operations. */
    record Revoked() implements CommunicatorStatus {}

    /**
     * An operation failed; the communicator takes no more, its buffers may still be in use until it
     * is aborted.
     *
     * @param cause what failed it
     */
    record Failed(CollectiveException cause) implements CommunicatorStatus {}

    /** {@link Communicator#close()} is waiting for the work that was enqueued before. */
    record Closing() implements CommunicatorStatus {}

    /**
     * Abort has returned: no work of it runs, its buffers are free, its streams are usable.
     *
     * @param cause why it was aborted
     */
    record Aborted(CollectiveException cause) implements CommunicatorStatus {}

    /** Closed in order. */
    record Closed() implements CommunicatorStatus {}
}
