package org.nccl4j.cpu;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * Combines a range of every participant's elements and writes the result to one or more places:
 * {@code ((x0 + x1) + x2) + ...}, each x scaled first if the reduction asks for it, each step
 * rounded to the type, the last divided if the reduction asks for that. A {@link VectorKernel}
 * reads up to four ranges at once and writes as many; what is left to be done goes block by block,
 * so that what is in between stays in a level-one cache.
 *
 * <p>Thread safety: one thread at a time.
 */
final class FusedReduction {
    private static final int PLAIN_BLOCK_BYTES = 8 << 10;
    private static final int BLOCK_BYTES = 4 << 10;

    /** The most that a {@link VectorKernel} combines at once: the longest vector there can be. */
    private static final int LONGEST_STEP_BYTES = 256;

    private final KernelChoice choice;
    private final Kernels kernels = new Kernels();

    /** A block of what has been combined so far; made when first needed. */
    private MemorySegment scratch;

    /** Where factors of their own come from; null if there are none. */
    private JoinedOperation operation;

    private ReduceOp reduction;
    private DataType type;
    private int inputs;

    /** Whether each participant brings a factor of its own. */
    private boolean ownFactors;

    /** By what each participant's elements are multiplied. */
    private long[] factors = new long[0];

    /** For how many outputs the loops below are; 0 for none. */
    private int outputsPrepared;

    /** Multiplies each input by its factor, into {@link #scaled}; null if they have none. */
    private VectorKernel scaler;

    /** A block per participant. */
    private MemorySegment[] scaled = new MemorySegment[0];

    private long[] scaledAt = new long[0];

    /** Combines the first inputs, if all are too many for one loop. */
    private VectorKernel head;

    private int headInputs;

    /** Combines the next three with what has come out so far. */
    private VectorKernel middle;

    /** Combines the last ones and writes the result; null if plain kernels do it all. */
    private VectorKernel last;

    private int lastOutputs;

    /** What is less than a vector, a step per participant, and the results. */
    private MemorySegment[] rest = new MemorySegment[0];

    private long[] restAt = new long[0];

    FusedReduction(KernelChoice choice) {
        this.choice = choice;
    }

    /** Sets up the reduction of an operation over all its participants. */
    void begin(JoinedOperation joined) {
        begin(joined, joined.participants(), joined.type(), joined.reduction(0));
    }

    /**
     * The same for who knows what it is and lets this thread not look at it unless it must.
     *
     * @param joined the operation
     * @param participants how many it has
     * @param newType its type
     * @param first the reduction of its first participant
     */
    void begin(JoinedOperation joined, int participants, DataType newType, ReduceOp first) {
        ownFactors = first instanceof ReduceOp.PreMulSum;
        operation = ownFactors ? joined : null;
        if (last != null
                && !ownFactors
                && type == newType
                && inputs == participants
                && first.equals(reduction)) {
            // As the last time: in a loop that is most times.
            return;
        }
        reduction = first;
        type = newType;
        inputs = participants;
        kernels.begin(type, first, inputs);
        outputsPrepared = 0;
        if (factors.length < inputs) {
            factors = new long[inputs];
        }
        if (kernels.scales()) {
            for (int p = 0; p < inputs; p++) {
                take(p);
                factors[p] = kernels.factorBits();
            }
        }
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
        if (inputs == 1) {
            alone(from[0], fromAt[0], to[0], toAt[0], countElements);
            return;
        }
        if (outputs != outputsPrepared) {
            prepare(outputs);
        }
        int sizeBytes = countElements * type.sizeBytes();
        if (last == null) {
            byKernels(from, fromAt, to, toAt, firstOutput, outputs, sizeBytes);
        } else {
            byVectors(from, fromAt, to, toAt, firstOutput, outputs, sizeBytes);
        }
    }

    private MemorySegment scratch() {
        if (scratch == null) {
            scratch = Arena.ofAuto().allocate(PLAIN_BLOCK_BYTES, 64);
        }
        return scratch;
    }

    /**
     * Whether plain kernels have a part in it, other than until vectors are compiled.
     *
     * @param outputs how many get the result
     */
    boolean isPlain(int outputs) {
        if (inputs == 1) {
            return kernels.scales();
        }
        Fold fold = kernels.fold();
        int most = Math.min(inputs, VectorKernel.MOST_RANGES);
        return kernels.divides()
                || !choice.hasVectors(type, fold, most, lastOutputs(outputs, most))
                || (kernels.scales() && !choice.hasVectors(type, fold, 1, 1));
    }

    /** How many outputs the last loop writes. */
    private int lastOutputs(int outputs, int lastInputs) {
        return outputs < lastInputs || kernels.divides() ? 1 : lastInputs;
    }

    private void alone(MemorySegment from, long fromAt, MemorySegment to, long toAt, int count) {
        if (kernels.scales()) {
            kernels.scale(to, toAt, from, fromAt, count);
        } else if (from.address() + fromAt != to.address() + toAt) {
            MemorySegment.copy(from, fromAt, to, toAt, type.bytes(count));
        }
    }

    /**
     * Chooses the loops, which {@link #reduce} does as well: for who wants none to be made there,
     * as that may take long.
     *
     * @param outputs how many participants get the result
     */
    void choose(int outputs) {
        if (inputs > 1) {
            prepare(outputs);
        }
    }

    private void prepare(int outputs) {
        outputsPrepared = outputs;
        Fold fold = kernels.fold();
        int lastInputs = Math.min(inputs, VectorKernel.MOST_RANGES);
        lastOutputs = lastOutputs(outputs, lastInputs);
        last = choice.vectors(type, fold, lastInputs, lastOutputs);
        scaler = kernels.scales() ? choice.vectors(type, fold, 1, 1) : null;
        boolean all = last != null && (scaler != null || !kernels.scales());
        headInputs = 1;
        if (inputs > lastInputs) {
            // Behind the head there are three at a time.
            headInputs = 2 + (inputs - 2) % (VectorKernel.MOST_RANGES - 1);
            head = choice.vectors(type, fold, headInputs, 1);
            middle = choice.vectors(type, fold, lastInputs, 1);
            all &= head != null && middle != null;
        }
        if (!all) {
            last = null;
        }
    }

    private void byVectors(
            MemorySegment[] from,
            long[] fromAt,
            MemorySegment[] to,
            long[] toAt,
            int first,
            int outputs,
            int sizeBytes) {
        int whole = sizeBytes / last.stepBytes() * last.stepBytes();
        boolean atOnce = headInputs == 1 && lastOutputs == outputs && scaler == null;
        int block = atOnce ? whole : BLOCK_BYTES;
        for (int done = 0; done < whole; done += block) {
            int bytes = Math.min(block, whole - done);
            scaleAndCombine(from, fromAt, to, toAt, first, done, bytes);
            repeat(to, toAt, first, first + lastOutputs, outputs - lastOutputs, done, bytes);
        }
        if (whole < sizeBytes) {
            combineRest(from, fromAt, to, toAt, first, outputs, whole, sizeBytes - whole);
        }
    }

    private void scaleAndCombine(
            MemorySegment[] from,
            long[] fromAt,
            MemorySegment[] to,
            long[] toAt,
            int first,
            int skip,
            int bytes) {
        if (scaler == null) {
            combine(from, fromAt, to, toAt, first, skip, bytes);
            return;
        }
        if (scaled.length < inputs) {
            scaled = ranges(inputs, BLOCK_BYTES);
            scaledAt = new long[inputs];
        }
        for (int p = 0; p < inputs; p++) {
            long at = (long) p * BLOCK_BYTES;
            scaler.scale(from[p], fromAt[p] + skip, factors[p], scaled[p], at, bytes);
            scaledAt[p] = at - skip;
        }
        combine(scaled, scaledAt, to, toAt, first, skip, bytes);
    }

    /** Combines whole vectors and writes the result to the first outputs. */
    private void combine(
            MemorySegment[] from,
            long[] fromAt,
            MemorySegment[] to,
            long[] toAt,
            int first,
            int skip,
            int bytes) {
        MemorySegment sum = from[0];
        long sumAt = fromAt[0] + skip;
        int next = 1;
        if (headInputs > 1) {
            head.combine(
                    sum, sumAt, from, fromAt, next, scratch(), 0, to, toAt, first, skip, bytes);
            sum = scratch;
            sumAt = 0;
            for (next = headInputs; inputs - next >= VectorKernel.MOST_RANGES; next += 3) {
                middle.combine(
                        sum, sumAt, from, fromAt, next, sum, sumAt, to, toAt, first, skip, bytes);
            }
        }
        long at = toAt[first] + skip;
        last.combine(sum, sumAt, from, fromAt, next, to[first], at, to, toAt, first, skip, bytes);
        if (kernels.divides()) {
            kernels.divide(to[first], at, bytes / type.sizeBytes());
        }
    }

    /** Combines what is less than a vector, in memory of its own. */
    private void combineRest(
            MemorySegment[] from,
            long[] fromAt,
            MemorySegment[] to,
            long[] toAt,
            int first,
            int outputs,
            int skip,
            int bytes) {
        int places = inputs + lastOutputs;
        if (rest.length < places) {
            rest = ranges(places, LONGEST_STEP_BYTES);
            restAt = new long[places];
            Arrays.setAll(restAt, i -> (long) i * LONGEST_STEP_BYTES);
        }
        for (int p = 0; p < inputs; p++) {
            MemorySegment.copy(from[p], fromAt[p] + skip, rest[p], restAt[p], bytes);
        }
        scaleAndCombine(rest, restAt, rest, restAt, inputs, 0, last.stepBytes());
        for (int p = first; p < first + outputs; p++) {
            MemorySegment.copy(rest[inputs], restAt[inputs], to[p], toAt[p] + skip, bytes);
        }
    }

    /** Memory of a number of ranges, once for each. */
    private static MemorySegment[] ranges(int count, int sizeBytes) {
        MemorySegment[] ranges = new MemorySegment[count];
        Arrays.fill(ranges, Arena.ofAuto().allocate((long) count * sizeBytes, LONGEST_STEP_BYTES));
        return ranges;
    }

    private void byKernels(
            MemorySegment[] from,
            long[] fromAt,
            MemorySegment[] to,
            long[] toAt,
            int first,
            int outputs,
            int sizeBytes) {
        for (int done = 0; done < sizeBytes; done += PLAIN_BLOCK_BYTES) {
            int bytes = Math.min(PLAIN_BLOCK_BYTES, sizeBytes - done);
            combinePlainly(from, fromAt, to, toAt, first, done, bytes / type.sizeBytes());
            repeat(to, toAt, first, first + 1, outputs - 1, done, bytes);
        }
    }

    private void combinePlainly(
            MemorySegment[] from,
            long[] fromAt,
            MemorySegment[] to,
            long[] toAt,
            int first,
            int skip,
            int count) {
        MemorySegment sum = from[0];
        long sumAt = fromAt[0] + skip;
        if (kernels.scales()) {
            take(0);
            kernels.scale(scratch(), 0, sum, sumAt, count);
            sum = scratch;
            sumAt = 0;
        }
        int end = inputs - 1;
        for (int p = 1; p < end; p++) {
            take(p);
            kernels.combine(scratch(), 0, from[p], fromAt[p] + skip, sum, sumAt, count, false);
            sum = scratch;
            sumAt = 0;
        }
        take(end);
        kernels.combine(
                to[first],
                toAt[first] + skip,
                from[end],
                fromAt[end] + skip,
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
            int skip,
            int bytes) {
        for (int p = next; p < next + outputs; p++) {
            MemorySegment.copy(to[first], toAt[first] + skip, to[p], toAt[p] + skip, bytes);
        }
    }
}
