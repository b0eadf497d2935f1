package org.nccl4j.contract;

import java.util.Arrays;
import org.nccl4j.collectives.DataType;

/**
 * The elements of one operation.
 *
 * @param inputs each rank's input
 * @param scalars each rank's factor, for pre-multiplied sums
 * @param reduced what the inputs reduce to; null for operations that only move, and where the right
 *     bits are not known
 */
record Values(long[][] inputs, long[] scalars, long[] reduced) {

    /** Inputs that are only moved; their lengths may differ. */
    static Values copied(DataType type, int[] lengthByRank, long seed) {
        int ranks = lengthByRank.length;
        long[][] inputs = new long[ranks][];
        for (int r = 0; r < ranks; r++) {
            inputs[r] = new long[lengthByRank[r]];
            long rankSeed = Mix.hash(seed, r);
            for (int i = 0; i < inputs[r].length; i++) {
                inputs[r][i] = ExactInputs.copied(type, rankSeed, i);
            }
        }
        return new Values(inputs, new long[ranks], null);
    }

    /** Inputs whose reduction has one right answer. */
    static Values exact(DataType type, Reduction reduction, int ranks, int length, long seed) {
        ExactInputs exact = new ExactInputs(type, reduction, ranks, seed);
        Arithmetic arithmetic = Arithmetic.of(type);
        long[][] inputs = new long[ranks][length];
        long[] scalars = exact.scalars();
        long[] reduced = new long[length];
        int[] order = new int[ranks];
        Arrays.setAll(order, r -> r);
        long[] element = new long[ranks];
        for (int i = 0; i < length; i++) {
            exact.element(i, element);
            for (int r = 0; r < ranks; r++) {
                inputs[r][i] = element[r];
            }
            reduced[i] = arithmetic.reduce(reduction, element, scalars, order);
        }
        return new Values(inputs, scalars, reduced);
    }

    /** The same inputs, reduced as the hop order of an operation has it. */
    Values reducedInOrder(OperationCase operation, HopOrder order) {
        Arithmetic arithmetic = Arithmetic.of(operation.type());
        int ranks = operation.ranks();
        int length = inputs[0].length;
        long[] result = new long[length];
        long[] element = new long[ranks];
        int[] chunkOf = chunks(operation, length);
        int[][] orders = new int[ranks][];
        for (int chunk = 0; chunk < ranks; chunk++) {
            orders[chunk] = order.ranksInOrder(ranks, chunk);
        }
        for (int i = 0; i < length; i++) {
            for (int r = 0; r < ranks; r++) {
                element[r] = inputs[r][i];
            }
            int[] inOrder = orders[chunkOf[i]];
            result[i] = arithmetic.reduce(operation.reduction(), element, scalars, inOrder);
        }
        return new Values(inputs, scalars, result);
    }

    /** The chunk of each element. */
    private static int[] chunks(OperationCase operation, int length) {
        int[] chunkOf = new int[length];
        if (operation.collective() == Collective.REDUCE) {
            Arrays.fill(chunkOf, operation.root());
            return chunkOf;
        }
        int ranks = operation.ranks();
        int i = 0;
        for (int chunk = 0; chunk < ranks; chunk++) {
            int end = i + length / ranks + (chunk < length % ranks ? 1 : 0);
            Arrays.fill(chunkOf, i, end, chunk);
            i = end;
        }
        return chunkOf;
    }
}
