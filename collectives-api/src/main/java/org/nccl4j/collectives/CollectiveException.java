package org.nccl4j.collectives;

/**
 * Base of everything that nccl4j throws. Unchecked and sealed; a message names the operation, its
 * sequence number, rank and size, what was expected, what came and what to do next.
 *
 * <p>Thread safety: immutable but for the stack trace and suppressed exceptions.
 */
public abstract sealed class CollectiveException extends RuntimeException
        permits InvalidArgumentException,
                NativeCallException,
                MismatchException,
                CollectiveTimeoutException,
                RankFailedException,
                CommunicatorAbortedException,
                UnsupportedException,
                LibraryUnavailableException,
                WaitInterruptedException {
    private static final long serialVersionUID = 1L;

    /** What a caller can do about an exception. */
    public enum Recovery {
        /** Nothing was changed: correct the call, everything stays usable. */
        CORRECT_THE_CALL,
        /** Nothing was changed: the same call may be made again. */
        RETRY,
        /** The communicator is lost on every rank: abort or close it and create a new one. */
        RECREATE_COMMUNICATOR,
        /** The library or device is lost for this process: restart it. */
        RESTART_PROCESS,
        /** This machine or library cannot do it: change the installation or do it another way. */
        CHANGE_SETUP
    }

    CollectiveException(String message, Throwable cause) {
        super(message, cause);
    }

    /**
     * What to do about it.
     *
     * @return the mildest measure that helps
     */
    public abstract Recovery recovery();

    /**
     * A new exception of the same type with the same message and this one as its cause, so that
     * each thread that meets a stored failure throws an exception with its own stack trace.
     *
     * @return the copy
     */
    public abstract CollectiveException forThisThread();
}
