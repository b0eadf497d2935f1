package org.nccl4j.cpu.schedule;

/**
 * The order in which the ranks' inputs of a chunk are combined: rounding, where there is any,
 * happens at each hop.
 *
 * <p>Thread safety: immutable.
 */
public sealed interface Combination {
    /**
     * One rank's own elements.
     *
     * @param rank the rank
     */
    record Input(int rank) implements Combination {
        @Override
        public String toString() {
            return "x" + rank;
        }
    }

    /**
     * Two results combined into one. Which is left and which is right makes no difference to any
     * reduction.
     *
     * @param left one of them
     * @param right the other
     */
    record Hop(Combination left, Combination right) implements Combination {
        @Override
        public String toString() {
            return "(" + left + "+" + right + ")";
        }
    }
}
