package org.nccl4j.collectives;

/** This backend, device or loaded library cannot do what was asked. */
public final class UnsupportedException extends CollectiveException {
    private static final long serialVersionUID = 1L;

    /**
     * With a message.
     *
     * @param message the whole story in a sentence or two
     */
    public UnsupportedException(String message) {
        super(message, null);
    }

    /**
     * With a message and what led to it.
     *
     * @param message the whole story in a sentence or two
     * @param cause what led to it, or null
     */
    public UnsupportedException(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    public Recovery recovery() {
        return Recovery.CHANGE_SETUP;
    }

    @Override
    public UnsupportedException forThisThread() {
        return new UnsupportedException(getMessage(), this);
    }
}
