package org.nccl4j.collectives;

/**
 * Time ran out. Either only this wait ended ({@link Recovery#RETRY}: nothing changed), or an
 * operation's deadline passed and its communicator has failed ({@link
 * Recovery#RECREATE_COMMUNICATOR}).
 */
public final class CollectiveTimeoutException extends CollectiveException {
    private static final long serialVersionUID = 1L;

    private final boolean communicatorFailed;

    /**
     * With a message.
     *
     * @param message the whole story in a sentence or two
     * @param communicatorFailed false if only a wait ended, true if an operation's deadline passed
     */
    public CollectiveTimeoutException(String message, boolean communicatorFailed) {
        this(message, communicatorFailed, null);
    }

    private CollectiveTimeoutException(
            String message, boolean communicatorFailed, Throwable cause) {
        super(message, cause);
        this.communicatorFailed = communicatorFailed;
    }

    @Override
    public Recovery recovery() {
        return communicatorFailed ? Recovery.RECREATE_COMMUNICATOR : Recovery.RETRY;
    }

    @Override
    public CollectiveTimeoutException forThisThread() {
        return new CollectiveTimeoutException(getMessage(), communicatorFailed, this);
    }
}
