package org.nccl4j.collectives;

import java.util.Arrays;
import java.util.Comparator;
import java.util.stream.IntStream;

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

    private BlockLayout(
            long[] countsElements,
            long[] offsetsElements,
            long extentElements,
            long totalElements) {
        this.countsElements = countsElements;
        this.offsetsElements = offsetsElements;
        this.extentElements = extentElements;
        this.totalElements = totalElements;
    }

    /**
     * Blocks at given places.
     *
     * @param countsElements elements per rank, at least 0 each
     * @param offsetsElements where each block starts, at least 0 each
     * @return the layout
     * @throws InvalidArgumentException if lengths differ or are 0, a number is negative, a sum does
     *     not fit a long, or two blocks overlap
     */
    public static BlockLayout of(long[] countsElements, long[] offsetsElements) {
        if (countsElements == null
                || offsetsElements == null
                || countsElements.length != offsetsElements.length
                || countsElements.length == 0) {
            throw new InvalidArgumentException(
                    "a layout needs one count and one offset per rank, got "
                            + (countsElements == null ? "null" : countsElements.length)
                            + " counts and "
                            + (offsetsElements == null ? "null" : offsetsElements.length)
                            + " offsets");
        }
        long[] counts = countsElements.clone();
        long[] offsets = offsetsElements.clone();
        long extent = 0;
        long total = 0;
        for (int r = 0; r < counts.length; r++) {
            requireCount(r, counts[r]);
            if (offsets[r] < 0) {
                throw new InvalidArgumentException(
                        "the offset of rank " + r + " is " + offsets[r] + ", must be at least 0");
            }
            if (counts[r] > 0) {
                extent = Math.max(extent, sum(r, offsets[r], counts[r]));
            }
            total = sum(r, total, counts[r]);
        }
        refuseOverlap(counts, offsets);
        return new BlockLayout(counts, offsets, extent, total);
    }

    /**
     * Blocks in rank order without gaps.
     *
     * @param countsElements elements per rank, at least 0 each
     * @return the layout
     * @throws InvalidArgumentException if there is no count, one is negative, or the sum does not
     *     fit a long
     */
    public static BlockLayout packed(long... countsElements) {
        if (countsElements == null || countsElements.length == 0) {
            throw new InvalidArgumentException("a layout needs one count per rank, got none");
        }
        long[] counts = countsElements.clone();
        long[] offsets = new long[counts.length];
        long total = 0;
        for (int r = 0; r < counts.length; r++) {
            requireCount(r, counts[r]);
            offsets[r] = total;
            total = sum(r, total, counts[r]);
        }
        return new BlockLayout(counts, offsets, total, total);
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
                    "cannot cut "
                            + totalElements
                            + " elements into "
                            + ranks
                            + " blocks; needs at least 0 elements and 1 block");
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

    private static void requireCount(int rank, long count) {
        if (count < 0) {
            throw new InvalidArgumentException(
                    "the count of rank " + rank + " is " + count + ", must be at least 0");
        }
    }

    private static long sum(int rank, long before, long count) {
        if (before > Long.MAX_VALUE - count) {
            throw new InvalidArgumentException(
                    "the block of rank "
                            + rank
                            + " ends beyond 2^63-1 elements: "
                            + count
                            + " after "
                            + before);
        }
        return before + count;
    }

    private static void refuseOverlap(long[] counts, long[] offsets) {
        int[] order =
                IntStream.range(0, counts.length)
                        .filter(r -> counts[r] > 0)
                        .boxed()
                        .sorted(Comparator.comparingLong(r -> offsets[r]))
                        .mapToInt(Integer::intValue)
                        .toArray();
        for (int i = 1; i < order.length; i++) {
            int before = order[i - 1];
            int after = order[i];
            if (offsets[before] + counts[before] > offsets[after]) {
                throw new InvalidArgumentException(
                        "blocks of ranks "
                                + before
                                + " and "
                                + after
                                + " overlap: ["
                                + offsets[before]
                                + ", +"
                                + counts[before]
                                + ") and ["
                                + offsets[after]
                                + ", +"
                                + counts[after]
                                + ") elements");
            }
        }
    }
}
