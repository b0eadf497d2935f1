package org.nccl4j.cpu;

/**
 * Moves the data of operations that every rank they need has joined. Streams, joining, signatures,
 * failures and deadlines are the layer above; an engine only ever sees a {@link JoinedOperation}
 * whose ranks agree. What it {@linkplain #prepare prepares} has been recorded for all ranks, and
 * called by none.
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
     * whether the thread that joined the operation may run it before it returns to its caller. May
     * be called with a lock held, so that it may only calculate.
     */
    long steps(JoinedOperation operation);

    /** The most that {@link Pieces#shares} may be for a number of participants. */
    default int mostShares(int participants) {
        return participants;
    }

    /**
     * Prepares an operation that all ranks have called and agree about. Called by one thread,
     * outside every lock, before any {@link Pieces#progress}; once per operation, unless a run that
     * {@linkplain Run#canRepeatAs can repeat itself} carries it out. What the operation reads may
     * not be there yet: what comes before it may still be running.
     */
    Run start(JoinedOperation operation);

    /**
     * Prepares an operation to be carried out again and again, as a whole, by one thread at a time
     * with the scheduler's lock held. Called without a lock, and may take long. The operation has
     * no number yet, and its memory may be in use, or be closed, which {@link Persistent#run} would
     * find.
     *
     * @param operation what it is asked to {@linkplain JoinedOperation#countSent count} meanwhile
     *     is counted for each time that it is carried out
     * @return null if the engine starts each operation anew, or to carry it out would take longer
     *     than the lock may be held
     */
    default Persistent prepare(JoinedOperation operation) {
        return null;
    }

    /** An operation that is carried out again and again. */
    interface Persistent {
        /**
         * Moves all its data, and waits for nobody. It counts and traces nothing. What it throws
         * fails the communicator.
         */
        void run();
    }

    /** Data that is being moved: a non-blocking state machine per share. */
    interface Pieces {
        /** Into how many shares the data is cut, which threads may advance side by side. */
        int shares();

        /**
         * Advances one share by at most one piece of data (256 KiB or less) and never waits. The
         * caller makes sure that one thread at a time advances a share and that what one such
         * thread wrote is visible to the next; shares advance in parallel.
         */
        Progress progress(int share);
    }

    /** One operation being run. */
    interface Run extends Pieces {
        /**
         * Called once when no thread is in {@link #progress} any more.
         *
         * @param done whether all shares are {@link Progress#DONE}; otherwise the operation was
         *     given up
         */
        void finish(boolean done);

        /**
         * Whether it can carry out another operation as well, behind its own: one that moves the
         * same between the same places, so that each share can go on to it without waiting for the
         * others.
         */
        default boolean canRepeatAs(JoinedOperation operation) {
            return false;
        }

        /**
         * A share that is {@link Progress#DONE} begins anew, with the next of the operations that
         * this run carries out. Called as {@link #progress}.
         */
        default void repeat(int share) {
            throw new IllegalStateException("this run carries out one operation");
        }

        /** Says how many operations all shares have carried out. Called before {@link #finish}. */
        default void repeated(int times) {
            throw new IllegalStateException("this run carries out one operation");
        }
    }

    /** How far a share came. */
    enum Progress {
        /** It moved a piece or took a step; call again. */
        ADVANCED,
        /** It needs another share to move first; advance that one. */
        BLOCKED,
        /** It is complete; do not call again, but for {@link Run#repeat}. */
        DONE
    }
}
