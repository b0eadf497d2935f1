package org.nccl4j.collectives;

/**
 * A rank died, left or broke while others needed it; or what moves the data broke, and then no rank
 * is to blame.
 */
public final class RankFailedException extends CollectiveException {
    private static final long serialVersionUID = 1L;

    /** What {@link #failedRank} is where no rank is to blame. */
    public static final int NO_RANK = -1;

    private final int failedRank;

    /**
     * With the rank to blame.
     *
     * @param failedRank the rank in its communicator, or {@link #NO_RANK}
     * @param message the whole story in a sentence or two
     * @param cause what broke the rank, or null
     */
    public RankFailedException(int failedRank, String message, Throwable cause) {
        super(message, cause);
        this.failedRank = failedRank;
    }

    /**
     * The rank to blame.
     *
     * @return its number in the communicator, or {@link #NO_RANK}
     */
    public int failedRank() {
        return failedRank;
    }

    @Override
    public Recovery recovery() {
        return Recovery.RECREATE_COMMUNICATOR;
    }

    @Override
    public RankFailedException forThisThread() {
        return new RankFailedException(failedRank, getMessage(), this);
    }
}
