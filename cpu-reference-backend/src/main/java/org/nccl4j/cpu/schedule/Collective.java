package org.nccl4j.cpu.schedule;

/**
 * What a schedule achieves. Chunks are cut from the full buffer: of all-reduce, reduce and
 * broadcast the one buffer that every rank has; of the others n blocks, chunk b being the block of
 * rank b; of all-to-all chunk {@code origin * n + destination} is the block that origin has for
 * destination. The root is rank 0; a user's ranks are counted from the root.
 *
 * <p>Thread safety: immutable.
 */
public enum Collective {
    /** Every rank ends with every chunk reduced over all ranks. */
    ALL_REDUCE("all-reduce"),
    /** Rank r ends with chunk r reduced over all ranks. */
    REDUCE_SCATTER("reduce-scatter"),
    /** Rank r starts with chunk r; every rank ends with all. */
    ALL_GATHER("all-gather"),
    /** Rank 0 ends with every chunk reduced over all ranks. */
    REDUCE("reduce"),
    /** Rank 0 starts with every chunk; every rank ends with all. */
    BROADCAST("broadcast"),
    /** Rank r ends with the chunks that others have for it. */
    ALL_TO_ALL("all-to-all");

    private final String title;

    Collective(String title) {
        this.title = title;
    }

    /**
     * The name in texts and commands.
     *
     * @return such as {@code "all-reduce"}
     */
    public String title() {
        return title;
    }

    /**
     * Whether contributions are combined.
     *
     * @return false if data only moves
     */
    public boolean reduces() {
        return this == ALL_REDUCE || this == REDUCE_SCATTER || this == REDUCE;
    }

    /**
     * Whether the rank has an input at a place.
     *
     * @param rank the rank
     * @param index which of the buffer's chunks; of all-to-all the destination
     * @return whether it is there before the first step
     */
    public boolean hasInput(int rank, int index) {
        return switch (this) {
            case ALL_REDUCE, REDUCE_SCATTER, REDUCE, ALL_TO_ALL -> true;
            case ALL_GATHER -> index == rank;
            case BROADCAST -> rank == 0;
        };
    }

    /**
     * Whether the rank has an output at a place.
     *
     * @param rank the rank
     * @param index which of the buffer's chunks; of all-to-all the origin
     * @return whether it is to be written
     */
    public boolean hasOutput(int rank, int index) {
        return switch (this) {
            case ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL -> true;
            case REDUCE_SCATTER -> index == rank;
            case REDUCE -> rank == 0;
        };
    }

    /**
     * Whether a user may give one memory as a chunk's input and output.
     *
     * @return false for all-to-all alone
     */
    public boolean mayBeInPlace() {
        return this != ALL_TO_ALL;
    }
}
