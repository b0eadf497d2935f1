package org.nccl4j.collectives;

/**
 * The waiting thread was interrupted. Its interrupt flag is set again; the work waited for is
 * unchanged and the wait may be repeated.
 */
public final class WaitInterruptedException extends CollectiveException {
    private static final long serialVersionUID = 1L;

    /**
     * With a message.
     *
     * @param message the whole story in a sentence or two
     */
    public WaitInterruptedException(String message) {
        super(message, null);
    }

    /**
     * With a message and what led to it.
     *
     * @param message the whole story in a sentence or two
     * @param cause what led to it, or null
     */
    public WaitInterruptedException(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    public Recovery recovery() {
        return Recovery.RETRY;
    }

    @Override
    public WaitInterruptedException forThisThread() {
        return new WaitInterruptedException(getMessage(), this);
    }
}
