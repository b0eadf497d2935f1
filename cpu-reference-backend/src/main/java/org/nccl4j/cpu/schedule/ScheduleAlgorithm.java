package org.nccl4j.cpu.schedule;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;

/**
 * The algorithms by name, and which collectives each can do, for any number of ranks.
 *
 * <p>Thread safety: immutable.
 */
public enum ScheduleAlgorithm {
    /** Rings: least bytes, most steps. */
    RING,
    /** Binomial trees: few steps, whole buffers. */
    TREE,
    /** Recursive halving and doubling: least bytes and few steps for powers of two. */
    HALVING_DOUBLING,
    /** Two complementary trees at once, in pieces. */
    DOUBLE_TREE,
    /** Reduce-scatter within nodes, all-reduce across, all-gather within. */
    HIERARCHICAL,
    /** The same with racks of nodes above the nodes. */
    HIERARCHICAL_3,
    /** Rings along the rows, then the columns, of a grid as square as can be. */
    TORUS_2D,
    /** Rings along three dimensions. */
    TORUS_3D,
    /** One rank sums for all: the baseline. */
    STAR,
    /** Every rank reads all others and sums for itself. */
    ONE_SHOT,
    /** Every rank sums its own part, then reads the others' parts. */
    TWO_SHOT,
    /** Each block straight to its receiver, one a step. */
    PAIRWISE,
    /** Blocks passed on by distances that are powers of two. */
    BRUCK,
    /** Within nodes first, then between ranks of one place in their nodes. */
    HIERARCHICAL_EXCHANGE;

    /** Pieces that follow each other through a tree; one more costs a step. */
    private static final int TREE_PIECES = 4;

    /**
     * The name in commands and settings.
     *
     * @return such as {@code "halving-doubling"}
     */
    public String title() {
        return name().toLowerCase(Locale.ROOT).replace('_', '-');
    }

    /**
     * What it can do.
     *
     * @return at least one
     */
    public List<Collective> collectives() {
        return switch (this) {
            case RING ->
                    List.of(
                            Collective.ALL_REDUCE,
                            Collective.REDUCE_SCATTER,
                            Collective.ALL_GATHER);
            case TREE -> List.of(Collective.ALL_REDUCE, Collective.REDUCE, Collective.BROADCAST);
            case HALVING_DOUBLING, DOUBLE_TREE, HIERARCHICAL, HIERARCHICAL_3 ->
                    List.of(Collective.ALL_REDUCE);
            case TORUS_2D, TORUS_3D, STAR, ONE_SHOT, TWO_SHOT -> List.of(Collective.ALL_REDUCE);
            case PAIRWISE, BRUCK, HIERARCHICAL_EXCHANGE -> List.of(Collective.ALL_TO_ALL);
        };
    }

    /**
     * By name, exactly.
     *
     * @param title its {@link #title}
     * @return the algorithm, or empty if none has that name
     */
    public static Optional<ScheduleAlgorithm> named(String title) {
        return Arrays.stream(values())
                .filter(algorithm -> algorithm.title().equals(title))
                .findFirst();
    }

    /**
     * Its schedule as it is run.
     *
     * @param collective one that it can do
     * @param ranks at least 1
     * @return the schedule
     */
    public Schedule schedule(Collective collective, int ranks) {
        if (!collectives().contains(collective) || ranks < 1) {
            throw new IllegalArgumentException(
                    title() + " has no " + collective.title() + " for " + ranks + " ranks");
        }
        return switch (this) {
            case RING ->
                    switch (collective) {
                        case REDUCE_SCATTER -> Rings.reduceScatter(ranks);
                        case ALL_GATHER -> Rings.allGather(ranks);
                        default -> Rings.allReduce(ranks);
                    };
            case TREE ->
                    switch (collective) {
                        case REDUCE -> Trees.reduce(ranks, 1);
                        case BROADCAST -> Trees.broadcast(ranks, 1);
                        default -> Trees.allReduce(ranks, 1);
                    };
            case HALVING_DOUBLING -> HalvingDoubling.allReduce(ranks, true);
            case DOUBLE_TREE -> Trees.doubleTree(ranks, TREE_PIECES);
            case HIERARCHICAL, TORUS_2D -> Rings.allReduce(title(), grid(ranks, 2));
            case HIERARCHICAL_3, TORUS_3D -> Rings.allReduce(title(), grid(ranks, 3));
            case STAR -> DirectReads.star(ranks);
            case ONE_SHOT -> DirectReads.oneShot(ranks);
            case TWO_SHOT -> DirectReads.twoShot(ranks);
            case PAIRWISE -> Exchanges.pairwise(ranks);
            case BRUCK -> Exchanges.bruck(ranks);
            case HIERARCHICAL_EXCHANGE -> Exchanges.hierarchical(ranks, grid(ranks, 2)[0]);
        };
    }

    /**
     * Ranks as a grid, as even as the divisors of n allow, no dimension shorter than the next. With
     * a prime number of ranks it is a line.
     *
     * @param ranks the number of ranks
     * @param dimensions how many
     * @return their sizes, whose product is the number of ranks
     */
    public static int[] grid(int ranks, int dimensions) {
        int[] sizes = new int[dimensions];
        int left = ranks;
        for (int d = dimensions - 1; d > 0; d--) {
            int size = (int) Math.round(Math.pow(left, 1.0 / (d + 1)) * (1 + 1e-9));
            while (left % size != 0 || power(size, d + 1) > left) {
                size--;
            }
            sizes[d] = size;
            left /= size;
        }
        sizes[0] = left;
        return sizes;
    }

    private static long power(int base, int exponent) {
        long power = 1;
        for (int i = 0; i < exponent; i++) {
            power *= base;
        }
        return power;
    }

    /**
     * The names of the algorithms that can do something.
     *
     * @param collective what
     * @return their names, at least one
     */
    public static List<String> titles(Collective collective) {
        List<String> titles = new ArrayList<>();
        for (ScheduleAlgorithm algorithm : values()) {
            if (algorithm.collectives().contains(collective)) {
                titles.add(algorithm.title());
            }
        }
        return titles;
    }
}
