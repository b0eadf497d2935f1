package org.nccl4j.contract;

import java.util.ArrayList;
import java.util.List;
import java.util.OptionalInt;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.BlockLayout;

/** Which element goes where in an operation: the meaning of each collective, apart from values. */
final class Geometry {
    private static final int GAP_LIMIT = 4;

    private final OperationCase operation;
    private final int ranks;
    private final int count;

    /** Blocks of the V operations: elements from rank to rank; row 0 by block for the other two. */
    private final int[][] uneven;

    Geometry(OperationCase operation) {
        this(operation, randomCounts(operation));
    }

    /** With given blocks: row s of an all-to-all-v is what rank s sends to each rank. */
    Geometry(OperationCase operation, int[][] uneven) {
        this.operation = operation;
        this.ranks = operation.ranks();
        this.count = operation.countElements();
        this.uneven = uneven;
    }

    private static int[][] randomCounts(OperationCase operation) {
        int[][] counts = new int[operation.ranks()][operation.ranks()];
        Mix random = new Mix(operation.seed() ^ 0x1a7007);
        for (int[] row : counts) {
            for (int block = 0; block < row.length; block++) {
                // None, all, or anything between, so that zero blocks meet full ones.
                row[block] =
                        switch (random.next(3)) {
                            case 0 -> 0;
                            case 1 -> operation.countElements();
                            default -> random.next(operation.countElements() + 1);
                        };
            }
        }
        return counts;
    }

    /** How many elements each rank puts in. */
    int[] inputLengths() {
        int[] lengths = new int[ranks];
        for (int r = 0; r < ranks; r++) {
            for (Part part : input(r)) {
                lengths[r] = Math.max(lengths[r], part.index() + part.count());
            }
        }
        return lengths;
    }

    /** Places and indices of a rank's input in its send buffer. */
    List<Part> input(int rank) {
        return switch (operation.collective()) {
            case ALL_REDUCE, REDUCE, ALL_GATHER, GATHER, SEND_RECV ->
                    List.of(new Part(0, rank, 0, count));
            case PAIRS -> sendsInPairs(rank) ? List.of(new Part(0, rank, 0, count)) : List.of();
            case BROADCAST ->
                    rank == operation.root() ? List.of(new Part(0, rank, 0, count)) : List.of();
            case SCATTER ->
                    rank == operation.root()
                            ? List.of(new Part(0, rank, 0, ranks * count))
                            : List.of();
            case REDUCE_SCATTER, ALL_TO_ALL -> List.of(new Part(0, rank, 0, ranks * count));
            case ALL_GATHER_V -> List.of(new Part(0, rank, 0, uneven[0][rank]));
            case REDUCE_SCATTER_V -> laidOut(uneven[0], layoutSeed(rank, 0), rank);
            case ALL_TO_ALL_V -> laidOut(uneven[rank], layoutSeed(rank, 0), rank);
        };
    }

    /** What a rank's receive buffer must hold; the rest of it must not change. */
    List<Part> output(int rank) {
        boolean isRoot = rank == operation.root();
        return switch (operation.collective()) {
            case ALL_REDUCE -> List.of(new Part(0, Part.REDUCED, 0, count));
            case REDUCE -> isRoot ? List.of(new Part(0, Part.REDUCED, 0, count)) : List.of();
            case BROADCAST -> List.of(new Part(0, operation.root(), 0, count));
            case ALL_GATHER -> gathered();
            case GATHER -> isRoot ? gathered() : List.of();
            case ALL_GATHER_V -> {
                List<Part> parts = new ArrayList<>();
                int[] places = places(uneven[0], layoutSeed(rank, 1));
                for (int s = 0; s < ranks; s++) {
                    parts.add(new Part(places[s], s, 0, uneven[0][s]));
                }
                yield parts;
            }
            case REDUCE_SCATTER -> List.of(new Part(0, Part.REDUCED, rank * count, count));
            case REDUCE_SCATTER_V ->
                    List.of(new Part(0, Part.REDUCED, startOf(uneven[0], rank), uneven[0][rank]));
            case SCATTER -> List.of(new Part(0, operation.root(), rank * count, count));
            case ALL_TO_ALL -> {
                List<Part> parts = new ArrayList<>();
                for (int s = 0; s < ranks; s++) {
                    parts.add(new Part(s * count, s, rank * count, count));
                }
                yield parts;
            }
            case ALL_TO_ALL_V -> {
                List<Part> parts = new ArrayList<>();
                int[] places = places(receivedBy(rank), layoutSeed(rank, 1));
                for (int s = 0; s < ranks; s++) {
                    parts.add(new Part(places[s], s, startOf(uneven[s], rank), uneven[s][rank]));
                }
                yield parts;
            }
            case SEND_RECV -> List.of(new Part(0, (rank + ranks - 1) % ranks, 0, count));
            case PAIRS -> rank % 2 == 1 ? List.of(new Part(0, rank - 1, 0, count)) : List.of();
        };
    }

    /**
     * Where the rank's send buffer starts relative to its receive buffer in the operation's
     * in-place form, in elements; none if the rank keeps two buffers or has only one.
     */
    OptionalInt inPlaceShift(int rank) {
        boolean isRoot = rank == operation.root();
        int own = rank * count;
        return switch (operation.collective()) {
            case ALL_REDUCE, BROADCAST -> OptionalInt.of(0);
            case REDUCE -> isRoot ? OptionalInt.of(0) : OptionalInt.empty();
            case ALL_GATHER -> OptionalInt.of(own);
            case GATHER -> isRoot ? OptionalInt.of(own) : OptionalInt.empty();
            case ALL_GATHER_V -> OptionalInt.of(places(uneven[0], layoutSeed(rank, 1))[rank]);
            case REDUCE_SCATTER -> OptionalInt.of(-own);
            case SCATTER -> isRoot ? OptionalInt.of(-own) : OptionalInt.empty();
            case REDUCE_SCATTER_V -> OptionalInt.of(-places(uneven[0], layoutSeed(rank, 0))[rank]);
            case ALL_TO_ALL, ALL_TO_ALL_V, SEND_RECV, PAIRS -> OptionalInt.empty();
        };
    }

    boolean sendsInPairs(int rank) {
        return rank % 2 == 0 && rank + 1 < ranks;
    }

    /** The layout argument of all-gather-v or reduce-scatter-v. */
    BlockLayout layout(int rank) {
        int half = operation.collective() == Collective.ALL_GATHER_V ? 1 : 0;
        return layout(uneven[0], layoutSeed(rank, half));
    }

    AllToAllVPlan plan(int rank) {
        return new AllToAllVPlan(
                layout(uneven[rank], layoutSeed(rank, 0)),
                layout(receivedBy(rank), layoutSeed(rank, 1)));
    }

    private static BlockLayout layout(int[] counts, long seed) {
        int[] places = places(counts, seed);
        long[] countsElements = new long[counts.length];
        long[] offsetsElements = new long[counts.length];
        for (int i = 0; i < counts.length; i++) {
            countsElements[i] = counts[i];
            offsetsElements[i] = places[i];
        }
        return BlockLayout.of(countsElements, offsetsElements);
    }

    private int[] receivedBy(int rank) {
        int[] counts = new int[ranks];
        for (int s = 0; s < ranks; s++) {
            counts[s] = uneven[s][rank];
        }
        return counts;
    }

    private List<Part> gathered() {
        List<Part> parts = new ArrayList<>();
        for (int s = 0; s < ranks; s++) {
            parts.add(new Part(s * count, s, 0, count));
        }
        return parts;
    }

    private static List<Part> laidOut(int[] counts, long seed, int rank) {
        int[] places = places(counts, seed);
        List<Part> parts = new ArrayList<>();
        for (int block = 0; block < counts.length; block++) {
            parts.add(new Part(places[block], rank, startOf(counts, block), counts[block]));
        }
        return parts;
    }

    /** Offsets may differ from rank to rank; counts may not. */
    private long layoutSeed(int rank, int half) {
        return Mix.hash(operation.seed() + half, rank);
    }

    /** Places with gaps, in an order of their own. */
    private static int[] places(int[] counts, long seed) {
        Mix random = new Mix(seed);
        int[] order = new int[counts.length];
        for (int i = 0; i < order.length; i++) {
            int j = random.next(i + 1);
            order[i] = order[j];
            order[j] = i;
        }
        int[] places = new int[counts.length];
        int next = 0;
        for (int block : order) {
            next += random.next(GAP_LIMIT);
            places[block] = next;
            next += counts[block];
        }
        return places;
    }

    private static int startOf(int[] counts, int block) {
        int start = 0;
        for (int i = 0; i < block; i++) {
            start += counts[i];
        }
        return start;
    }
}
