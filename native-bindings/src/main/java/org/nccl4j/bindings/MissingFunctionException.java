package org.nccl4j.bindings;

/** The loaded library does not have a function; it is older than the one that was asked for. */
public final class MissingFunctionException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /**
     * With the function and the library.
     *
     * @param message the function, the library's path, and what to do
     */
    public MissingFunctionException(String message) {
        super(message);
    }
}
