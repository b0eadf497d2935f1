package org.nccl4j.bindings;

/**
 * The loaded library does not have a function; it is older than the one that was asked for.
 *
 * <p>Thread safety: immutable but for what {@link Throwable} allows.
 */
public final class MissingFunctionException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final String function;
    private final String libraryPath;

    /**
     * With the function and the library.
     *
     * @param function its name
     * @param libraryPath the file that lacks it
     */
    public MissingFunctionException(String function, String libraryPath) {
        super(
                function
                        + " is not in "
                        + libraryPath
                        + ": that library is older than this function; ask"
                        + " NativeLibrary.has(\""
                        + function
                        + "\") first, or name a newer library");
        this.function = function;
        this.libraryPath = libraryPath;
    }

    /**
     * The function that is missing.
     *
     * @return its name
     */
    public String function() {
        return function;
    }

    /**
     * The file that lacks it.
     *
     * @return the path that was really loaded
     */
    public String libraryPath() {
        return libraryPath;
    }
}
