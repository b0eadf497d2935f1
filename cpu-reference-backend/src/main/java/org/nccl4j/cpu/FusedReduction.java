package org.nccl4j.cpu;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * Combines a range of every participant's elements and writes the result to one or more places:
 * {@code ((x0 + x1) + x2) + ...}, each x scaled first if the reduction asks for it, each step
 * rounded to the type, the last divided if the reduction asks for that. Block by block, so that
 * what is in between stays in a level-one cache.
 *
 * <p>Thread safety: one thread at a time.
 */
final class FusedReduction {
    private static final int BLOCK_BYTES = 8 << 10;

    private final KernelChoice choice;
    private final Kernels kernels = new Kernels();
    private final MemorySegment scratch = Arena.ofAuto().allocate(BLOCK_BYTES, 64);

    private JoinedOperation operation;
    private DataType type;
    private int inputs;

    /** Whether each participant brings a factor of its own. */
    private boolean ownFactors;

    /** What does it at once, or null. */
    private VectorSum vectors;

    FusedReduction(KernelChoice choice) {
        this.choice = choice;
    }

    /** Sets up the reduction of an operation over all its participants. */
    void begin(JoinedOperation joined) {
        operation = joined;
        type = joined.type();
        inputs = joined.participants();
        ReduceOp first = joined.reduction(0);
        ownFactors = first instanceof ReduceOp.PreMulSum;
        kernels.begin(type, first, inputs);
        vectors = kernels.onlyFolds() ? choice.vectors(type, kernels.fold()) : null;
    }

    /**
     * Reduces one range.
     *
     * @param from what each participant reads
     * @param fromAt where in it, in bytes
     * @param to what each participant writes; may be the very range that it reads
     * @param toAt where in it, in bytes
     * @param firstOutput the first participant that gets the result
     * @param outputs how many from there on get it
     * @param countElements how many
     */
    void reduce(
            MemorySegment[] from,
            long[] fromAt,
            MemorySegment[] to,
            long[] toAt,
            int firstOutput,
            int outputs,
            int countElements) {
        int block = BLOCK_BYTES / type.sizeBytes();
        for (int done = 0; done < countElements; done += block) {
            int count = Math.min(block, countElements - done);
            long skip = (long) done * type.sizeBytes();
            if (inputs == 1) {
                alone(from[0], fromAt[0] + skip, to[0], toAt[0] + skip, count);
            } else if (vectors != null) {
                byVectors(from, fromAt, to, toAt, firstOutput, outputs, skip, count);
            } else {
                byKernels(from, fromAt, to, toAt, firstOutput, skip, count);
                repeat(to, toAt, firstOutput, firstOutput + 1, outputs - 1, skip, count);
            }
        }
    }

    private void alone(MemorySegment from, long fromAt, MemorySegment to, long toAt, int count) {
        if (kernels.scales()) {
            kernels.scale(to, toAt, from, fromAt, count);
        } else if (from.address() + fromAt != to.address() + toAt) {
            MemorySegment.copy(from, fromAt, to, toAt, type.bytes(count));
        }
    }

    private void byVectors(
            MemorySegment[] from,
            long[] fromAt,
            MemorySegment[] to,
            long[] toAt,
            int first,
            int outputs,
            long skip,
            int count) {
        MemorySegment sum = from[0];
        long sumAt = fromAt[0] + skip;
        int last = inputs - 1;
        for (int p = 1; p < last; p++) {
            vectors.add(sum, sumAt, from[p], fromAt[p] + skip, scratch, 0, count);
            sum = scratch;
            sumAt = 0;
        }
        long at = toAt[first] + skip;
        if (outputs == 1) {
            vectors.add(sum, sumAt, from[last], fromAt[last] + skip, to[first], at, count);
            return;
        }
        vectors.addTwice(
                sum,
                sumAt,
                from[last],
                fromAt[last] + skip,
                to[first],
                at,
                to[first + 1],
                toAt[first + 1] + skip,
                count);
        repeat(to, toAt, first, first + 2, outputs - 2, skip, count);
    }

    private void byKernels(
            MemorySegment[] from,
            long[] fromAt,
            MemorySegment[] to,
            long[] toAt,
            int first,
            long skip,
            int count) {
        MemorySegment sum = from[0];
        long sumAt = fromAt[0] + skip;
        if (kernels.scales()) {
            take(0);
            kernels.scale(scratch, 0, sum, sumAt, count);
            sum = scratch;
            sumAt = 0;
        }
        int last = inputs - 1;
        for (int p = 1; p < last; p++) {
            take(p);
            kernels.combine(scratch, 0, from[p], fromAt[p] + skip, sum, sumAt, count, false);
            sum = scratch;
            sumAt = 0;
        }
        take(last);
        kernels.combine(
                to[first],
                toAt[first] + skip,
                from[last],
                fromAt[last] + skip,
                sum,
                sumAt,
                count,
                true);
    }

    private void take(int participant) {
        if (ownFactors) {
            kernels.begin(type, operation.reduction(participant), inputs);
        }
    }

    /** Copies the result to further participants. */
    private void repeat(
            MemorySegment[] to,
            long[] toAt,
            int first,
            int next,
            int outputs,
            long skip,
            int count) {
        for (int p = next; p < next + outputs; p++) {
            MemorySegment.copy(
                    to[first], toAt[first] + skip, to[p], toAt[p] + skip, type.bytes(count));
        }
    }
}
