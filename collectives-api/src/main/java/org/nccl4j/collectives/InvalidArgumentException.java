package org.nccl4j.collectives;

/**
 * A call was wrong. Either it was refused before anything was enqueued ({@link
 * Recovery#CORRECT_THE_CALL}: nothing has changed), or only the calls of all ranks together showed
 * it, and their communicator has failed ({@link Recovery#RECREATE_COMMUNICATOR}).
 */
public final class InvalidArgumentException extends CollectiveException {
    private static final long serialVersionUID = 1L;

    private final boolean communicatorFailed;

    /**
     * With a message.
     *
     * @param message the whole story in a sentence or two
     */
    public InvalidArgumentException(String message) {
        this(message, false, null);
    }

    /**
     * With a message, and whether the communicator has failed.
     *
     * @param message the whole story in a sentence or two
     * @param communicatorFailed false if the call was refused, true if the ranks' calls did not go
     *     together and it was too late to refuse one
     */
    public InvalidArgumentException(String message, boolean communicatorFailed) {
        this(message, communicatorFailed, null);
    }

    /**
     * With a message and what led to it.
     *
     * @param message the whole story in a sentence or two
     * @param cause what led to it, or null
     */
    public InvalidArgumentException(String message, Throwable cause) {
        this(message, false, cause);
    }

    private InvalidArgumentException(String message, boolean communicatorFailed, Throwable cause) {
        super(message, cause);
        this.communicatorFailed = communicatorFailed;
    }

    @Override
    public Recovery recovery() {
        return communicatorFailed ? Recovery.RECREATE_COMMUNICATOR : Recovery.CORRECT_THE_CALL;
    }

    @Override
    public InvalidArgumentException forThisThread() {
        return new InvalidArgumentException(getMessage(), communicatorFailed, this);
    }
}
