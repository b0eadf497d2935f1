package org.nccl4j.cpu;

/**
 * Moves the data of operations that every rank they need has joined. Streams, joining, signatures,
 * failures and deadlines are the layer above; an engine only ever sees a {@link JoinedOperation}
 * whose ranks agree.
 */
interface Engine {
    /** A short name, such as {@code "reference"}. */
    String name();

    /** The name, with what the engine has chosen for this machine: for people. */
    default String description() {
        return name();
    }

    /**
     * The name of what carries out an operation: the engine's own, unless it chooses among several.
     *
     * @param totalBytes of the full buffer: all blocks where each participant has one of its own
     */
    default String algorithm(OperationKind kind, int participants, long totalBytes) {
        return name();
    }

    /**
     * Roughly how many steps all participants together take if the data is short: what decides
     * whether the thread that joined the operation may run it before it returns to its caller.
     * Called with a lock held, so that it may only calculate.
     */
    long steps(JoinedOperation operation);

    /**
     * Prepares an operation. Called once per operation by one thread, outside every lock, before
     * any {@link Run#progress}.
     */
    Run start(JoinedOperation operation);

    /** One operation being run: a non-blocking state machine per participant. */
    interface Run {
        /**
         * Advances one participant by at most one piece of data (256 KiB or less) and never waits.
         * The caller makes sure that one thread at a time advances a participant and that what one
         * such thread wrote is visible to the next; participants advance in parallel.
         */
        Progress progress(int participant);

        /**
         * Called once when all participants are {@link Progress#DONE} or the operation was given up
         * and no thread is in {@link #progress}.
         */
        void finish();
    }

    /** How far a participant came. */
    enum Progress {
        /** It moved a piece or took a step; call again. */
        ADVANCED,
        /** It needs another participant to move first; advance that one. */
        BLOCKED,
        /** Its part is complete; do not call again. */
        DONE
    }
}
