package org.nccl4j.collectives;

/**
 * Ranks of a communicator disagree about an operation: its kind, number, count, type, reduction,
 * root or block sizes.
 */
public final class MismatchException extends CollectiveException {
    private static final long serialVersionUID = 1L;

    /**
     * With a message.
     *
     * @param message the whole story in a sentence or two
     */
    public MismatchException(String message) {
        super(message, null);
    }

    /**
     * With a message and what led to it.
     *
     * @param message the whole story in a sentence or two
     * @param cause what led to it, or null
     */
    public MismatchException(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    public Recovery recovery() {
        return Recovery.RECREATE_COMMUNICATOR;
    }

    @Override
    public MismatchException forThisThread() {
        return new MismatchException(getMessage(), this);
    }
}
