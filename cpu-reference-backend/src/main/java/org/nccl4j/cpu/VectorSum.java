package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicReference;
import org.nccl4j.collectives.DataType;

/**
 * The sum of one type on memory itself: {@code target[i] = a[i] + b[i]}. Ranges may start at any
 * byte; a target may be exactly the range of a source.
 *
 * <p>Thread safety: any thread may call it.
 */
abstract class VectorSum {
    /** How far the JIT has been brought. */
    final AtomicReference<VectorWarmup.State> warmth =
            new AtomicReference<>(VectorWarmup.State.COLD);

    private final DataType type;

    VectorSum(DataType type) {
        this.type = type;
    }

    final DataType type() {
        return type;
    }

    /**
     * Adds two ranges.
     *
     * @param a the first operand
     * @param aAt where it starts, in bytes
     * @param b the second operand
     * @param bAt where it starts, in bytes
     * @param target where to write
     * @param targetAt where it starts, in bytes
     * @param countElements how many
     */
    abstract void add(
            MemorySegment a,
            long aAt,
            MemorySegment b,
            long bAt,
            MemorySegment target,
            long targetAt,
            int countElements);

    /** Adds two ranges and writes the result to two places. */
    abstract void addTwice(
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
