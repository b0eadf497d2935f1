package org.nccl4j.cpu.schedule;

import static org.nccl4j.cpu.schedule.Place.input;
import static org.nccl4j.cpu.schedule.Place.output;
import static org.nccl4j.cpu.schedule.Place.scratch;

import java.util.ArrayList;
import java.util.List;

/**
 * Trees: sums go up from the leaves, results come down from the root. A message is the whole
 * buffer, or one of the pieces that follow each other, a step apart.
 *
 * <p>Thread safety: no state.
 */
public final class Trees {
    private Trees() {}

    /** ceil(log2 n). */
    public static int rounds(int ranks) {
        return Integer.SIZE - Integer.numberOfLeadingZeros(ranks - 1);
    }

    /**
     * Binomial: in round s of the way up, rank q whose lowest set bit is bit s sends to q - 2^s;
     * the way down is its mirror image. 2 ceil(log2 n) steps for one piece and one more for each
     * further; the root sends S ceil(log2 n).
     */
    public static Schedule allReduce(int ranks, int pieces) {
        Schedule.Plan plan = new Schedule.Plan("tree", Collective.ALL_REDUCE, ranks, pieces);
        if (ranks == 1) {
            plan.copy(0, 0, input(0), output(0), 0, pieces);
        }
        int rounds = rounds(ranks);
        for (int piece = 0; piece < pieces; piece++) {
            up(plan, piece, piece, true);
            for (int round = rounds - 1; round >= 0; round--) {
                int distance = 1 << round;
                for (int q = 0; q + distance < ranks; q += 2 * distance) {
                    int step = 2 * rounds - 1 - round + piece;
                    plan.move(step, q, output(piece), q + distance, output(piece), piece, 1);
                }
            }
        }
        return plan.build();
    }

    /** The way up alone; ranks other than the root sum in scratch memory. ceil(log2 n) steps. */
    public static Schedule reduce(int ranks, int pieces) {
        Schedule.Plan plan = new Schedule.Plan("tree", Collective.REDUCE, ranks, pieces);
        if (ranks == 1) {
            plan.copy(0, 0, input(0), output(0), 0, pieces);
        }
        for (int piece = 0; piece < pieces; piece++) {
            up(plan, piece, piece, false);
        }
        return plan.build();
    }

    private static void up(Schedule.Plan plan, int piece, int firstStep, boolean everywhere) {
        int ranks = plan.ranks();
        int rounds = rounds(ranks);
        for (int round = 0; round < rounds; round++) {
            int distance = 1 << round;
            for (int q = 0; q + distance < ranks; q += 2 * distance) {
                // A rank that adds for the first time adds to its own elements.
                Place sum = everywhere || q == 0 ? output(piece) : scratch(piece);
                Place theirs = everywhere ? output(piece) : scratch(piece);
                boolean theyAdded = round > 0 && q + distance + 1 < ranks;
                plan.reduce(
                        firstStep + round,
                        q + distance,
                        theyAdded ? theirs : input(piece),
                        q,
                        round == 0 ? input(piece) : sum,
                        sum,
                        piece,
                        1,
                        q == 0 && round == rounds - 1);
            }
        }
    }

    /**
     * Doubling: in round s every rank that has the data, q less than 2^s, sends it to q + 2^s.
     * ceil(log2 n) steps; the root sends S ceil(log2 n), and every other rank receives S.
     */
    public static Schedule broadcast(int ranks, int pieces) {
        Schedule.Plan plan = new Schedule.Plan("tree", Collective.BROADCAST, ranks, pieces);
        plan.copy(0, 0, input(0), output(0), 0, pieces);
        for (int piece = 0; piece < pieces; piece++) {
            for (int round = 0; round < rounds(ranks); round++) {
                int distance = 1 << round;
                for (int q = 0; q < distance && q + distance < ranks; q++) {
                    Place from = q == 0 ? input(piece) : output(piece);
                    plan.move(round + piece, q, from, q + distance, output(piece), piece, 1);
                }
            }
        }
        return plan.build();
    }

    /**
     * A rank's parent in the first of two complementary trees; -1 for the root. Inner ranks are
     * even: rank r's parent differs in r's lowest set bit, which is cleared, and in the next one,
     * which is set if that is a rank and cleared if not. The root, rank 0, has one child.
     */
    public static int parentInFirstTree(int rank, int ranks) {
        if (rank == 0) {
            return -1;
        }
        int lowest = Integer.lowestOneBit(rank);
        int parent = rank - lowest | lowest << 1;
        return parent < ranks ? parent : rank - lowest;
    }

    /**
     * A rank's parent in the second tree: the first with ranks counted backwards, or, for an odd
     * number of ranks, counted from 1. Its inner ranks are odd, but rank 0 too if n is odd.
     */
    public static int parentInSecondTree(int rank, int ranks) {
        if (ranks % 2 == 0) {
            int parent = parentInFirstTree(ranks - 1 - rank, ranks);
            return parent < 0 ? -1 : ranks - 1 - parent;
        }
        int parent = parentInFirstTree(Math.floorMod(rank - 1, ranks), ranks);
        return parent < 0 ? -1 : (parent + 1) % ranks;
    }

    /**
     * Two trees, each for half of the buffer, at once: who is inner in one is a leaf in the other,
     * so that no rank sends more than 2S. At most 2 ceil(log2 n) steps, and one more for each piece
     * of a half after the first. A rank adds its lower-numbered child's sum to its own elements
     * first.
     */
    public static Schedule doubleTree(int ranks, int pieces) {
        int chunks = 2 * pieces;
        Schedule.Plan plan = new Schedule.Plan("double-tree", Collective.ALL_REDUCE, ranks, chunks);
        if (ranks == 1) {
            plan.copy(0, 0, input(0), output(0), 0, chunks);
            return plan.build();
        }
        for (int tree = 0; tree < 2; tree++) {
            plan.lane(tree);
            int[] parents = new int[ranks];
            for (int rank = 0; rank < ranks; rank++) {
                parents[rank] =
                        tree == 0
                                ? parentInFirstTree(rank, ranks)
                                : parentInSecondTree(rank, ranks);
            }
            for (int piece = 0; piece < pieces; piece++) {
                upAndDown(plan, parents, tree * pieces + piece, piece);
            }
        }
        return plan.build();
    }

    private static void upAndDown(Schedule.Plan plan, int[] parents, int chunk, int firstStep) {
        int ranks = parents.length;
        int[] depths = new int[ranks];
        int deepest = 0;
        List<List<Integer>> children = new ArrayList<>();
        for (int rank = 0; rank < ranks; rank++) {
            children.add(new ArrayList<>());
            for (int at = rank; parents[at] >= 0; at = parents[at]) {
                depths[rank]++;
            }
            deepest = Math.max(deepest, depths[rank]);
        }
        for (int rank = 0; rank < ranks; rank++) {
            if (parents[rank] >= 0) {
                children.get(parents[rank]).add(rank);
            }
        }
        for (int parent = 0; parent < ranks; parent++) {
            boolean added = false;
            for (int child : children.get(parent)) {
                boolean leaf = children.get(child).isEmpty();
                boolean last = child == children.get(parent).getLast();
                plan.reduce(
                        firstStep + deepest - depths[child],
                        child,
                        leaf ? input(chunk) : output(chunk),
                        parent,
                        added ? output(chunk) : input(chunk),
                        output(chunk),
                        chunk,
                        1,
                        parents[parent] < 0 && last);
                added = true;
                plan.move(
                        firstStep + deepest + depths[parent],
                        parent,
                        output(chunk),
                        child,
                        output(chunk),
                        chunk,
                        1);
            }
        }
    }
}
