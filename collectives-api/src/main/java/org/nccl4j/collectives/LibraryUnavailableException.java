package org.nccl4j.collectives;

/**
 * A native library could not be loaded; the message lists each candidate with the loader's reason.
 */
public final class LibraryUnavailableException extends CollectiveException {
    private static final long serialVersionUID = 1L;

    /**
     * With a message.
     *
     * @param message the whole story in a sentence or two
     */
    public LibraryUnavailableException(String message) {
        super(message, null);
    }

    /**
     * With a message and what led to it.
     *
     * @param message the whole story in a sentence or two
     * @param cause what led to it, or null
     */
    public LibraryUnavailableException(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    public Recovery recovery() {
        return Recovery.CHANGE_SETUP;
    }

    @Override
    public LibraryUnavailableException forThisThread() {
        return new LibraryUnavailableException(getMessage(), this);
    }
}
