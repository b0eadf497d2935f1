package org.nccl4j.collectives;

/** We refused a call before anything was enqueued; nothing has changed. */
public final class InvalidArgumentException extends CollectiveException {
    private static final long serialVersionUID = 1L;

    /**
     * With a message.
     *
     * @param message the whole story in a sentence or two
     */
    public InvalidArgumentException(String message) {
        super(message, null);
    }

    /**
     * With a message and what led to it.
     *
     * @param message the whole story in a sentence or two
     * @param cause what led to it, or null
     */
    public InvalidArgumentException(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    public Recovery recovery() {
        return Recovery.CORRECT_THE_CALL;
    }

    @Override
    public InvalidArgumentException forThisThread() {
        return new InvalidArgumentException(getMessage(), this);
    }
}
