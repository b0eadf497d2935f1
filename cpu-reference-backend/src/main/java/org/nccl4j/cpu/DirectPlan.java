package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/**
 * What a {@link DirectRun} does, as a list: for an operation so small that finding out where its
 * blocks are takes longer than moving them. An operation has copies or reductions, and none of them
 * writes what another one reads, in place too: each range belongs to one block.
 *
 * <p>Thread safety: one thread at a time.
 */
final class DirectPlan implements Engine.Persistent {
    /**
     * A block that is combined.
     *
     * @param from a range per participant
     * @param to a range per participant, null for who does not get it
     * @param first the first who gets it
     * @param outputs how many from there on get it
     */
    private record Reduction(
            MemorySegment[] from, MemorySegment[] to, int first, int outputs, int countElements) {}

    private record Copy(MemorySegment from, MemorySegment to, long bytes) {}

    private final JoinedOperation operation;
    private final FusedReduction reduction;

    /** Where each range of a reduction begins in its segment: all 0, as those are slices. */
    private final long[] starts;

    private final Reduction[] reductions;
    private final Copy[] copies;

    private DirectPlan(Builder builder) {
        this.operation = builder.operation;
        this.reduction = builder.reduction;
        this.starts = new long[operation.participants()];
        this.reductions = builder.reductions.toArray(Reduction[]::new);
        this.copies = builder.copies.toArray(Copy[]::new);
    }

    @Override
    public void run() {
        for (Copy copy : copies) {
            MemorySegment.copy(copy.from, 0, copy.to, 0, copy.bytes);
        }
        if (reduction == null) {
            return;
        }
        reduction.begin(operation);
        for (Reduction each : reductions) {
            reduction.reduce(
                    each.from,
                    starts,
                    each.to,
                    starts,
                    each.first,
                    each.outputs,
                    each.countElements);
        }
    }

    /** Makes a plan. */
    static final class Builder {
        /** The most ranges that are touched. */
        private static final int MOST_RANGES = 512;

        /**
         * The most that is combined by plain kernels, the slowest of which take a nanosecond for a
         * few bytes.
         */
        private static final long MOST_PLAIN_BYTES = 4 << 10;

        private final JoinedOperation operation;
        private final FusedReduction reduction;
        private final List<Reduction> reductions = new ArrayList<>();
        private final List<Copy> copies = new ArrayList<>();
        private int ranges;
        private long plainBytes;

        Builder(JoinedOperation operation, KernelChoice kernels) {
            this.operation = operation;
            this.reduction = operation.kind().reduces() ? new FusedReduction(kernels) : null;
        }

        void addReduction(MemorySegment[] from, MemorySegment[] to, int first, int outputs) {
            long bytes = to[first].byteSize();
            int elements = Math.toIntExact(bytes / operation.type().sizeBytes());
            reductions.add(new Reduction(from, to, first, outputs, elements));
            ranges += from.length + outputs;
            reduction.begin(operation);
            reduction.choose(outputs);
            if (reduction.isPlain(outputs)) {
                plainBytes += from.length * bytes;
            }
        }

        void addCopy(MemorySegment from, MemorySegment to) {
            if (from.address() != to.address()) {
                copies.add(new Copy(from, to, from.byteSize()));
                ranges += 2;
            }
        }

        /** Whether what is in it takes longer than the scheduler's lock may be held. */
        boolean isLong() {
            return ranges > MOST_RANGES || plainBytes > MOST_PLAIN_BYTES;
        }

        DirectPlan plan() {
            return new DirectPlan(this);
        }
    }
}
