package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicReference;
import org.nccl4j.collectives.DataType;

/**
 * One loop over memory itself: reads two to four ranges, combines them in order, and writes the
 * result to as many ranges, or to one; or reads one range and multiplies it by a factor. Ranges may
 * start at any byte; an output may be exactly the range of an input.
 *
 * <p>Thread safety: any thread may call it.
 */
abstract class VectorKernel {
    /** The most ranges that one loop reads, and writes. */
    static final int MOST_RANGES = 4;

    /**
     * What a loop does.
     *
     * @param type element type
     * @param fold how two elements become one
     * @param inputs how many ranges it reads; 1 if it multiplies by a factor
     * @param outputs how many ranges it writes
     */
    record Shape(DataType type, Fold fold, int inputs, int outputs) {}

    /** How far the JIT has been brought. */
    final AtomicReference<VectorWarmup.State> warmth =
            new AtomicReference<>(VectorWarmup.State.COLD);

    /** What it does. */
    abstract Shape shape();

    /** The size of what it combines at once; at most 256 bytes. */
    abstract int stepBytes();

    /**
     * Multiplies one range by a factor.
     *
     * @param from what to read
     * @param fromAt where it starts, in bytes
     * @param factor by what it is multiplied, as {@link Kernels#factorBits} has it
     * @param to where to write
     * @param toAt where it starts, in bytes
     * @param sizeBytes how much; a multiple of {@link #stepBytes}
     */
    abstract void scale(
            MemorySegment from,
            long fromAt,
            long factor,
            MemorySegment to,
            long toAt,
            int sizeBytes);

    /**
     * Combines ranges. The first input and the first output are given apart from the others,
     * because they may be memory of the caller.
     *
     * @param input the first input
     * @param inputAt where it starts, in bytes
     * @param from the further inputs
     * @param fromAt where they start, in bytes
     * @param next the index of the second input in these two
     * @param output the first output
     * @param outputAt where it starts, in bytes
     * @param to the outputs
     * @param toAt where they start, in bytes
     * @param first the index of the first output in these two
     * @param skipBytes added to all of {@code fromAt} and {@code toAt}
     * @param sizeBytes how much; a multiple of {@link #stepBytes}
     */
    abstract void combine(
            MemorySegment input,
            long inputAt,
            MemorySegment[] from,
            long[] fromAt,
            int next,
            MemorySegment output,
            long outputAt,
            MemorySegment[] to,
            long[] toAt,
            int first,
            long skipBytes,
            int sizeBytes);
}
