package org.nccl4j.cpu.schedule;

/**
 * Where one chunk is in a rank's memory.
 *
 * <p>Thread safety: immutable.
 *
 * @param space which memory
 * @param index of the chunk in it
 */
public record Place(Space space, int index) {
    /** A rank's memories. */
    public enum Space {
        /** What the user gives; only read, but see {@link Collective#mayBeInPlace}. */
        INPUT,
        /** What the user gets. */
        OUTPUT,
        /** Slots of the rank's own, each as large as the longest chunk. */
        SCRATCH
    }

    static Place input(int index) {
        return new Place(Space.INPUT, index);
    }

    static Place output(int index) {
        return new Place(Space.OUTPUT, index);
    }

    static Place scratch(int slot) {
        return new Place(Space.SCRATCH, slot);
    }

    /**
     * Whether a run of chunks from here shares memory with another.
     *
     * @param other where the other starts
     * @param chunks how many here
     * @param otherChunks how many there
     * @param inPlace whether input and output are one memory
     * @return whether they overlap
     */
    public boolean overlaps(Place other, int chunks, int otherChunks, boolean inPlace) {
        boolean sameSpace =
                space == other.space
                        || inPlace && space != Space.SCRATCH && other.space != Space.SCRATCH;
        return sameSpace && index < other.index + otherChunks && other.index < index + chunks;
    }

    @Override
    public String toString() {
        return space.name().toLowerCase(java.util.Locale.ROOT) + "[" + index + "]";
    }
}
