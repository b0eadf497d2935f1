package org.nccl4j.collectives;

/** The communicator was aborted by one of its ranks. */
public final class CommunicatorAbortedException extends CollectiveException {
    private static final long serialVersionUID = 1L;

    /**
     * With a message.
     *
     * @param message the whole story in a sentence or two
     */
    public CommunicatorAbortedException(String message) {
        super(message, null);
    }

    /**
     * With a message and what led to it.
     *
     * @param message the whole story in a sentence or two
     * @param cause what led to it, or null
     */
    public CommunicatorAbortedException(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    public Recovery recovery() {
        return Recovery.RECREATE_COMMUNICATOR;
    }

    @Override
    public CommunicatorAbortedException forThisThread() {
        return new CommunicatorAbortedException(getMessage(), this);
    }
}
