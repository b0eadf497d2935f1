package org.nccl4j.collectives;

/** A rank died, left or broke while others needed it. */
public final class RankFailedException extends CollectiveException {
    private static final long serialVersionUID = 1L;

    private final int failedRank;

    /**
     * With the rank to blame.
     *
     * @param failedRank the rank in its communicator
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
     * @return its number in the communicator
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
