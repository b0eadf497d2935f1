package org.nccl4j.nccl;

import org.nccl4j.collectives.CollectiveException;

/**
 * Why a communicator's work has been given up, as its streams remember it.
 *
 * <p>Thread safety: the cause never changes; {@link #aborted} may be asked and told from any
 * thread.
 */
final class CommunicatorFailure {
    private final CollectiveException cause;
    private volatile boolean aborted;

    CommunicatorFailure(CollectiveException cause) {
        this.cause = cause;
    }

    CollectiveException cause() {
        return cause;
    }

    /**
     * Whether the abort has returned: buffers are free, and a stream that has told it may forget
     * it.
     */
    boolean isAborted() {
        return aborted;
    }

    void aborted() {
        aborted = true;
    }
}
