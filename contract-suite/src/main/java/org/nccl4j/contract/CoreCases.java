package org.nccl4j.contract;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.nccl4j.collectives.DataType;

/** Which operations are checked at which sizes in which tier. */
final class CoreCases {
    static final int[] RANKS = {1, 2, 3, 4, 5, 8};
    private static final int[] COUNTS = {0, 1, 3, 33, 1025};
    private static final List<DataType> WIDE_TYPES =
            List.of(DataType.BFLOAT16, DataType.FLOAT32, DataType.INT64);
    private static final int OVER_ONE_MIB = (1 << 20) + 24;

    private final long baseSeed;

    CoreCases(long baseSeed) {
        this.baseSeed = baseSeed;
    }

    /** All of one collective and type: ranks x reductions x counts x placement. */
    List<OperationCase> core(Collective collective, DataType type, int ranks) {
        List<OperationCase> cases = new ArrayList<>();
        for (int count : COUNTS) {
            addPlacements(cases, collective, type, ranks, count, reductions(collective));
        }
        return cases;
    }

    /**
     * Sizes beyond caches, and over 1 MiB; large communicators meet the latter in the full tier
     * alone.
     */
    List<OperationCase> wide(Collective collective, int ranks, boolean full) {
        List<OperationCase> cases = new ArrayList<>();
        for (DataType type : WIDE_TYPES) {
            int elements = OVER_ONE_MIB / type.sizeBytes();
            int[] counts =
                    full || ranks <= 3
                            ? new int[] {elements / 64 + 1, elements}
                            : new int[] {elements / 64 + 1};
            List<Reduction> reductions =
                    !collective.reduces()
                            ? reductions(collective)
                            : full
                                    ? List.of(Reduction.values())
                                    : List.of(Reduction.SUM, Reduction.AVG);
            for (int count : counts) {
                // Operations that move n blocks reach the size with all blocks together.
                int share = movesBlocks(collective) ? count / ranks + 1 : count;
                addPlacements(cases, collective, type, ranks, share, reductions);
            }
        }
        return cases;
    }

    /** Many more sizes, among them the neighbours of powers of two, and larger communicators. */
    List<OperationCase> full(Collective collective, DataType type, int ranks, int round) {
        List<OperationCase> cases = new ArrayList<>();
        int[] counts = {2, 7, 8, 31, 32, 63, 64, 65, 127, 255, 257, 511, 1023, 1024, 2047, 4099};
        Mix random = new Mix(Mix.hash(baseSeed + round, ranks));
        for (int i = 0; i < 4; i++) {
            int count = counts[random.next(counts.length)];
            addPlacements(cases, collective, type, ranks, count, reductions(collective));
        }
        return cases;
    }

    private void addPlacements(
            List<OperationCase> cases,
            Collective collective,
            DataType type,
            int ranks,
            int count,
            List<Reduction> reductions) {
        for (Reduction reduction : reductions) {
            cases.add(operation(collective, type, reduction, ranks, count, false));
            if (collective.hasInPlaceForm()) {
                cases.add(operation(collective, type, reduction, ranks, count, true));
            }
        }
    }

    /** One reduction that is none, for operations that only move. */
    private static List<Reduction> reductions(Collective collective) {
        return collective.reduces() ? List.of(Reduction.values()) : Collections.singletonList(null);
    }

    OperationCase operation(
            Collective collective,
            DataType type,
            Reduction reduction,
            int ranks,
            int count,
            boolean inPlace) {
        long shape = collective.ordinal();
        shape = shape * 31 + type.ordinal();
        shape = shape * 31 + (reduction == null ? 30 : reduction.ordinal());
        shape = shape * 1031 + ranks;
        shape = shape * 2 + (inPlace ? 1 : 0);
        long seed = Mix.hash(Mix.hash(baseSeed, shape), count);
        int root = collective.rooted() ? new Mix(seed).next(ranks) : 0;
        return new OperationCase(collective, type, reduction, ranks, count, inPlace, root, seed);
    }

    private static boolean movesBlocks(Collective collective) {
        return switch (collective) {
            case ALL_GATHER, REDUCE_SCATTER, GATHER, SCATTER, ALL_TO_ALL -> true;
            case ALL_GATHER_V, REDUCE_SCATTER_V, ALL_TO_ALL_V -> true;
            case ALL_REDUCE, REDUCE, BROADCAST, SEND_RECV, PAIRS -> false;
        };
    }
}
