package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import org.nccl4j.collectives.DataType;

/**
 * One reduction of one type on memory itself: {@code target[i] = a[i] + b[i]}. Ranges may start at
 * any byte; a target may be exactly the range of a source.
 *
 * <p>Thread safety: immutable.
 */
abstract class VectorFold {
    private final DataType type;
    private final Fold fold;

    VectorFold(DataType type, Fold fold) {
        this.type = type;
        this.fold = fold;
    }

    final DataType type() {
        return type;
    }

    final Fold fold() {
        return fold;
    }

    /**
     * Combines two ranges.
     *
     * @param a the first operand
     * @param aAt where it starts, in bytes
     * @param b the second operand
     * @param bAt where it starts, in bytes
     * @param target where to write
     * @param targetAt where it starts, in bytes
     * @param countElements how many
     */
    abstract void fold(
            MemorySegment a,
            long aAt,
            MemorySegment b,
            long bAt,
            MemorySegment target,
            long targetAt,
            int countElements);

    /** Combines two ranges and writes the result to two places. */
    abstract void foldTwice(
            MemorySegment a,
            long aAt,
            MemorySegment b,
            long bAt,
            MemorySegment target,
            long targetAt,
            MemorySegment second,
            long secondAt,
            int countElements);
}
