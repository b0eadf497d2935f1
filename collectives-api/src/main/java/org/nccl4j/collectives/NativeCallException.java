package org.nccl4j.collectives;

/** A native library answered with an error code. */
public final class NativeCallException extends CollectiveException {
    private static final long serialVersionUID = 1L;

    private final String function;
    private final int code;
    private final String lastErrorText;
    private final Recovery recovery;

    /**
     * With what the library said.
     *
     * @param function the C function
     * @param code its result code
     * @param lastErrorText the library's last-error text, possibly empty
     * @param recovery what helps
     * @param message the whole story in a sentence or two
     */
    public NativeCallException(
            String function, int code, String lastErrorText, Recovery recovery, String message) {
        this(function, code, lastErrorText, recovery, message, null);
    }

    private NativeCallException(
            String function,
            int code,
            String lastErrorText,
            Recovery recovery,
            String message,
            Throwable cause) {
        super(message, cause);
        this.function = function;
        this.code = code;
        this.lastErrorText = lastErrorText;
        this.recovery = recovery;
    }

    /**
     * The C function that failed.
     *
     * @return its name
     */
    public String function() {
        return function;
    }

    /**
     * The result code.
     *
     * @return the number that the library gave
     */
    public int code() {
        return code;
    }

    /**
     * The library's last-error text.
     *
     * @return the text, possibly empty
     */
    public String lastErrorText() {
        return lastErrorText;
    }

    @Override
    public Recovery recovery() {
        return recovery;
    }

    @Override
    public NativeCallException forThisThread() {
        return new NativeCallException(function, code, lastErrorText, recovery, getMessage(), this);
    }
}
