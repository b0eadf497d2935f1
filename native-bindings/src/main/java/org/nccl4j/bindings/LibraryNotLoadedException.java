package org.nccl4j.bindings;

/** A native library cannot be loaded; the message lists what was tried and what to do. */
public final class LibraryNotLoadedException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /**
     * With the whole story.
     *
     * @param message each candidate with the reason, and the remedy
     */
    public LibraryNotLoadedException(String message) {
        super(message);
    }
}
