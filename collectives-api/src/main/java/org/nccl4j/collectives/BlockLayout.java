package org.nccl4j.collectives;

import java.util.Arrays;

/**
 * One block of elements per rank inside a buffer: sizes and places, in elements. For all-gather-v
 * and reduce-scatter-v, and each half of an {@link AllToAllVPlan}. Copied and validated once,
 * reusable for any number of operations.
 *
 * <p>Thread safety: immutable.
 */
public final class BlockLayout {
    private final long[] countsElements;
    private final long[] offsetsElements;
    private final long extentElements;
    private final long totalElements;

    private BlockLayout(long[] counts, long[] offsets, boolean mayOverlap) {
        if (counts.length != offsets.length || counts.length == 0) {
            throw new InvalidArgumentException(
                    "a layout needs one count and one offset per rank, got "
                            + counts.length
                            + " counts and "
                            + offsets.length
                            + " offsets");
        }
        this.countsElements = counts.clone();
        this.offsetsElements = offsets.clone();
        long extent = 0;
        long total = 0;
        for (int r = 0; r < counts.length; r++) {
            if (counts[r] < 0
                    || offsets[r] < 0
                    || offsets[r] > Long.MAX_VALUE - counts[r]
                    || total > Long.MAX_VALUE - counts[r]) {
                throw new InvalidArgumentException(
                        "block of rank "
                                + r
                                + ": count "
                                + counts[r]
                                + " and offset "
                                + offsets[r]
                                + " must be at least 0 and their sums fit a long");
            }
            if (counts[r] > 0) {
                extent = Math.max(extent, offsets[r] + counts[r]);
            }
            total += counts[r];
        }
        this.extentElements = extent;
        this.totalElements = total;
        if (!mayOverlap) {
            refuseOverlap();
        }
    }

    /**
     * Blocks at given places.
     *
     * @param countsElements elements per rank, at least 0 each
     * @param offsetsElements where each block starts
     * @return the layout
     * @throws InvalidArgumentException if lengths differ, a number is negative, or two blocks
     *     overlap
     */
    public static BlockLayout of(long[] countsElements, long[] offsetsElements) {
        return new BlockLayout(countsElements, offsetsElements, false);
    }

    /**
     * Blocks in rank order without gaps.
     *
     * @param countsElements elements per rank, at least 0 each
     * @return the layout
     * @throws InvalidArgumentException if a count is negative or the sum does not fit a long
     */
    public static BlockLayout packed(long... countsElements) {
        long[] offsets = new long[countsElements.length];
        for (int r = 1; r < offsets.length; r++) {
            offsets[r] = offsets[r - 1] + countsElements[r - 1];
        }
        return new BlockLayout(countsElements, offsets, true);
    }

    /**
     * A total cut as evenly as possible: the first {@code total mod n} ranks get one element more.
     *
     * @param totalElements elements of all blocks together, at least 0
     * @param ranks the number of blocks, at least 1
     * @return the layout
     * @throws InvalidArgumentException if a number is out of range
     */
    public static BlockLayout even(long totalElements, int ranks) {
        if (totalElements < 0 || ranks < 1) {
            throw new InvalidArgumentException(
                    "cannot cut " + totalElements + " elements into " + ranks + " blocks");
        }
        long[] counts = new long[ranks];
        for (int r = 0; r < ranks; r++) {
            counts[r] = totalElements / ranks + (r < totalElements % ranks ? 1 : 0);
        }
        return packed(counts);
    }

    /**
     * The number of blocks.
     *
     * @return the number of ranks
     */
    public int ranks() {
        return countsElements.length;
    }

    /**
     * The size of a rank's block.
     *
     * @param rank the rank
     * @return elements
     */
    public long countElements(int rank) {
        return countsElements[rank];
    }

    /**
     * The place of a rank's block.
     *
     * @param rank the rank
     * @return elements before it
     */
    public long offsetElements(int rank) {
        return offsetsElements[rank];
    }

    /**
     * How long a buffer must be to hold all non-empty blocks.
     *
     * @return elements
     */
    public long extentElements() {
        return extentElements;
    }

    /**
     * The elements of all blocks together.
     *
     * @return their number
     */
    public long totalElements() {
        return totalElements;
    }

    /**
     * All sizes.
     *
     * @return a copy
     */
    public long[] countsElements() {
        return countsElements.clone();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof BlockLayout layout
                && Arrays.equals(countsElements, layout.countsElements)
                && Arrays.equals(offsetsElements, layout.offsetsElements);
    }

    @Override
    public int hashCode() {
        return 31 * Arrays.hashCode(countsElements) + Arrays.hashCode(offsetsElements);
    }

    @Override
    public String toString() {
        return "counts "
                + Arrays.toString(countsElements)
                + " at "
                + Arrays.toString(offsetsElements);
    }

    private void refuseOverlap() {
        Integer[] order = new Integer[countsElements.length];
        Arrays.setAll(order, r -> r);
        Arrays.sort(order, (a, b) -> Long.compare(offsetsElements[a], offsetsElements[b]));
        int previous = -1;
        for (int r : order) {
            if (countsElements[r] == 0) {
                continue;
            }
            if (previous >= 0
                    && offsetsElements[previous] + countsElements[previous] > offsetsElements[r]) {
                throw new InvalidArgumentException(
                        "blocks of ranks "
                                + previous
                                + " and "
                                + r
                                + " overlap: ["
                                + offsetsElements[previous]
                                + ", +"
                                + countsElements[previous]
                                + ") and ["
                                + offsetsElements[r]
                                + ", +"
                                + countsElements[r]
                                + ")");
            }
            previous = r;
        }
    }
}
