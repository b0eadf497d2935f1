package org.nccl4j.contract;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.nccl4j.collectives.DataType;

/** Which operations are checked at which sizes in which tier. */
final class TierCases {
    static final int[] CORE_RANKS = {1, 2, 3, 4, 5, 8};
    static final int[] WIDE_RANKS = {2, 3, 8};
    static final int[] FULL_RANKS = {2, 3, 6, 7, 13};
    static final List<Integer> CORE_COUNTS = List.of(0, 1, 3, 33, 1025);
    private static final int[] FULL_COUNTS = {
        2, 7, 8, 31, 32, 63, 64, 65, 127, 255, 257, 511, 1023, 1024, 2047, 4099
    };
    static final List<DataType> WIDE_TYPES =
            List.of(DataType.BFLOAT16, DataType.FLOAT32, DataType.INT64);
    private static final int OVER_ONE_MIB = (1 << 20) + 24;

    private final long baseSeed;

    TierCases(long baseSeed) {
        this.baseSeed = baseSeed;
    }

    /** All of one collective and type: reductions x counts, out of place. */
    List<OperationCase> core(
            Collective collective, DataType type, int ranks, List<Integer> counts) {
        List<OperationCase> cases = new ArrayList<>();
        for (int count : counts) {
            add(cases, collective, type, ranks, count, reductions(collective));
        }
        return cases;
    }

    /** Sizes beyond caches; small communicators, and large ones in the full tier, over 1 MiB. */
    List<OperationCase> wide(Collective collective, DataType type, int ranks, boolean full) {
        List<OperationCase> cases = new ArrayList<>();
        int elements = OVER_ONE_MIB / type.sizeBytes();
        List<Reduction> reductions =
                collective.reduces()
                        ? List.of(Reduction.SUM, Reduction.AVG)
                        : reductions(collective);
        int[] counts =
                full || ranks <= 3
                        ? new int[] {elements / 64 + 1, elements}
                        : new int[] {elements / 64 + 1};
        for (int count : counts) {
            // Operations that move n blocks reach the size with all blocks together.
            int share = movesBlocks(collective) ? count / ranks + 1 : count;
            add(cases, collective, type, ranks, share, reductions);
        }
        return cases;
    }

    /** More sizes, among them the neighbours of powers of two. */
    List<OperationCase> full(Collective collective, DataType type, int ranks) {
        List<OperationCase> cases = new ArrayList<>();
        Mix random = new Mix(Mix.hash(baseSeed + type.ordinal(), ranks));
        for (int i = 0; i < 4; i++) {
            int count = FULL_COUNTS[random.next(FULL_COUNTS.length)];
            add(cases, collective, type, ranks, count, reductions(collective));
        }
        return cases;
    }

    private void add(
            List<OperationCase> cases,
            Collective collective,
            DataType type,
            int ranks,
            int count,
            List<Reduction> reductions) {
        for (Reduction reduction : reductions) {
            cases.add(operation(collective, type, reduction, ranks, count));
        }
    }

    /** One reduction that is none, for operations that only move. */
    private static List<Reduction> reductions(Collective collective) {
        return collective.reduces() ? List.of(Reduction.values()) : Collections.singletonList(null);
    }

    OperationCase operation(
            Collective collective, DataType type, Reduction reduction, int ranks, int count) {
        long shape = collective.ordinal();
        shape = shape * 31 + type.ordinal();
        shape = shape * 31 + (reduction == null ? 30 : reduction.ordinal());
        shape = shape * 1031 + ranks;
        long seed = Mix.hash(Mix.hash(baseSeed, shape), count);
        int root = collective.rooted() ? new Mix(seed).next(ranks) : 0;
        return new OperationCase(collective, type, reduction, ranks, count, false, root, seed);
    }

    private static boolean movesBlocks(Collective collective) {
        return switch (collective) {
            case ALL_GATHER, REDUCE_SCATTER, GATHER, SCATTER, ALL_TO_ALL -> true;
            case ALL_GATHER_V, REDUCE_SCATTER_V, ALL_TO_ALL_V -> true;
            case ALL_REDUCE, REDUCE, BROADCAST, SEND_RECV, PAIRS -> false;
        };
    }
}
