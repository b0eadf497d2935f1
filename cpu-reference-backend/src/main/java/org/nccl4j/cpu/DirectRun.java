package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * One operation being run by the {@link DirectEngine}. Its data is a number of blocks laid end to
 * end; a block goes from one participant, or all of them combined, to one participant or all. The
 * whole is cut into a contiguous {@link Share} per thread that may run it, at multiples of a cache
 * line; who the ranks are plays no part in that.
 *
 * <p>Why nothing is overwritten too early, in place too: a byte of a block is read and written at
 * one place in each buffer, all of them belong to one share, and within a share a range's inputs
 * are read before its outputs are written.
 *
 * <p>Reused from operation to operation with all its memory.
 *
 * <p>Thread safety: as {@link Engine.Run} says; shares have nothing in common that changes.
 */
final class DirectRun implements Engine.Run {
    static final int LINE_BYTES = 64;

    /** What is copied to several places goes in parts that stay in a level-one cache meanwhile. */
    private static final int COPY_BYTES = 16 << 10;

    /**
     * But from here on it goes to one place after the other where such copies {@linkplain
     * KernelChoice#longCopiesPassCaches pass the caches by}: HotSpot's threshold.
     */
    static final int LONG_COPY_BYTES = 5 << 19;

    /** How many times as long the pieces of a copy are, so that they may be long ones. */
    static final int COPY_PIECES = 16;

    private static final int SHORTEST_PIECE_BYTES = 1 << 10;
    private static final int ALL = -1;

    private final DirectEngine engine;
    private final boolean longCopies;
    private final int participants;
    private final MemorySegment[] sends;
    private final MemorySegment[] recvs;
    private final Share[] shares;

    private JoinedOperation operation;
    private OperationKind kind;
    private boolean reduces;
    private DataType type;

    /** The first participant's reduction; null if there is none. */
    private ReduceOp op;

    private int elementBytes;
    private int blocks;
    private int pieceBytes;

    /** The size of every block, unless there are layouts. */
    private long blockBytes;

    /** Of the blocks, where they differ but are the same for all; else null. */
    private BlockLayout layout;

    private long totalBytes;
    private int shareCount;

    /** The size of every share but the last. */
    private long shareBytes;

    /** How many operations it has been used for, not counting what it has repeated. */
    private int life;

    /** How many operations it has carried out this time. */
    private int times;

    DirectRun(DirectEngine engine, int participants) {
        this.engine = engine;
        this.longCopies = engine.kernels().longCopiesPassCaches();
        this.participants = participants;
        this.sends = new MemorySegment[participants];
        this.recvs = new MemorySegment[participants];
        this.shares = new Share[engine.mostShares(participants)];
    }

    int participants() {
        return participants;
    }

    /** Sets up for one operation; by one thread, before anything else. */
    void begin(JoinedOperation joined) {
        operation = joined;
        kind = joined.kind();
        reduces = kind.reduces();
        type = joined.type();
        op = reduces ? joined.reduction(0) : null;
        elementBytes = type == null ? 1 : type.sizeBytes();
        blockBytes = joined.countElements() * elementBytes;
        layout = null;
        blocks = participants;
        switch (kind) {
            case ALL_REDUCE, REDUCE, BROADCAST, SEND_RECV -> blocks = 1;
            case REDUCE_SCATTER_V -> layout = joined.sendLayout(0);
            case ALL_GATHER_V -> layout = joined.recvLayout(0);
            case REDUCE_SCATTER, ALL_GATHER, GATHER, SCATTER -> {}
            case ALL_TO_ALL, ALL_TO_ALL_V -> blocks = participants * participants;
            case BARRIER -> blocks = 0;
            case SPLIT, EXCHANGE_COUNTS ->
                    throw new IllegalArgumentException(
                            kind.operation() + " moves no data through an engine");
        }
        totalBytes = totalBytes();
        long lines = lines(totalBytes);
        shareCount = shareCount(totalBytes, engine.leastShareBytes(), shares.length);
        shareBytes = (lines + shareCount - 1) / shareCount * LINE_BYTES;
        pieceBytes = pieceBytes();
        for (int p = 0; p < participants; p++) {
            sends[p] = joined.send(p);
            recvs[p] = joined.recv(p);
        }
        times = 1;
        life++;
    }

    /** The most that a step moves of a block that all ranks give or get at once. */
    private int pieceBytes() {
        int ranges =
                (source(0) == ALL ? participants : 1) + (destination(0) == ALL ? participants : 1);
        return Math.max(SHORTEST_PIECE_BYTES, engine.pieceBytes() / ranges)
                / LINE_BYTES
                * LINE_BYTES;
    }

    /**
     * How much a step copies of a range: all of it, or if that is too much one of several pieces of
     * the same size, so that none is too short to be a long copy.
     */
    static long copyPieceBytes(long rangeBytes, int enginePieceBytes) {
        long pieces = Math.max(1, rangeBytes / ((long) COPY_PIECES * enginePieceBytes));
        return Math.min(rangeBytes, lines((rangeBytes + pieces - 1) / pieces) * LINE_BYTES);
    }

    private long totalBytes() {
        if (kind == OperationKind.ALL_TO_ALL_V) {
            long elements = 0;
            for (int p = 0; p < participants; p++) {
                elements += operation.recvLayout(p).totalElements();
            }
            return elements * elementBytes;
        }
        return layout == null ? blockBytes * blocks : layout.totalElements() * elementBytes;
    }

    /** How many shares data is cut into. */
    static int shareCount(long totalBytes, int leastShareBytes, int mostShares) {
        return Math.clamp(totalBytes / leastShareBytes, 1, mostShares);
    }

    private static long lines(long bytes) {
        return (bytes + LINE_BYTES - 1) / LINE_BYTES;
    }

    @Override
    public int shares() {
        return shareCount;
    }

    @Override
    public Engine.Progress progress(int share) {
        if (shares[share] == null) {
            shares[share] = new Share(share);
        }
        return shares[share].progress();
    }

    @Override
    public void finish(boolean done) {
        if (done) {
            account();
        }
        for (int p = 0; p < participants; p++) {
            sends[p] = null;
            recvs[p] = null;
        }
        operation = null;
        layout = null;
        engine.recycle(this);
    }

    /**
     * If it is the same in the same memory: what is at one place there is in the same share of
     * both, and within one operation no share touches what another writes. Layouts would have to be
     * compared, and a trace wants to know each operation.
     */
    @Override
    public boolean canRepeatAs(JoinedOperation other) {
        if (other.kind() != kind
                || other.participants() != participants
                || layout != null
                || kind == OperationKind.ALL_TO_ALL_V
                || other.countElements() != operation.countElements()
                || other.type() != type
                || other.root() != operation.root()) {
            return false;
        }
        for (int p = 0; p < participants; p++) {
            if (other.rank(p) != operation.rank(p)
                    || !Objects.equals(sends[p], other.send(p))
                    || !Objects.equals(recvs[p], other.recv(p))
                    || (reduces && !other.reduction(p).equals(operation.reduction(p)))
                    || operation.trace(p) != null) {
                return false;
            }
        }
        return true;
    }

    @Override
    public void repeat(int share) {
        shares[share].begun = life - 1;
    }

    @Override
    public void repeated(int newTimes) {
        times = newTimes;
    }

    /**
     * Lists what all shares do, for who does it alone; and counts it once.
     *
     * @return null if that would take long
     */
    DirectPlan plan() {
        DirectPlan.Builder plan = new DirectPlan.Builder(operation, engine.kernels());
        for (int block = 0; block < blocks; block++) {
            long bytes = sizeBytes(block);
            int to = destination(block);
            int first = to == ALL ? 0 : to;
            int end = to == ALL ? participants : to + 1;
            if (bytes > 0 && reduces) {
                MemorySegment[] from = new MemorySegment[participants];
                for (int p = 0; p < participants; p++) {
                    from[p] = sends[p].asSlice(sendOffsetBytes(p, block), bytes);
                }
                MemorySegment[] into = new MemorySegment[participants];
                for (int p = first; p < end; p++) {
                    into[p] = recvs[p].asSlice(recvOffsetBytes(p, block), bytes);
                }
                plan.addReduction(from, into, first, end - first);
            } else if (bytes > 0) {
                int from = source(block);
                MemorySegment send = sends[from].asSlice(sendOffsetBytes(from, block), bytes);
                for (int p = first; p < end; p++) {
                    plan.addCopy(send, recvs[p].asSlice(recvOffsetBytes(p, block), bytes));
                }
            }
            if (plan.isLong()) {
                return null;
            }
        }
        account();
        return plan.plan();
    }

    private boolean isAllToAll() {
        return kind == OperationKind.ALL_TO_ALL || kind == OperationKind.ALL_TO_ALL_V;
    }

    /** Who gives a block; {@link #ALL} combined in a reduction. */
    private int source(int block) {
        return switch (kind) {
            case ALL_REDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_V -> ALL;
            case BROADCAST, SCATTER -> operation.root();
            case SEND_RECV -> 0;
            case ALL_TO_ALL, ALL_TO_ALL_V -> block % participants;
            default -> block;
        };
    }

    /** Who gets a block. */
    private int destination(int block) {
        return switch (kind) {
            case ALL_REDUCE, ALL_GATHER, ALL_GATHER_V, BROADCAST -> ALL;
            case REDUCE, GATHER -> operation.root();
            case SEND_RECV -> 1;
            case ALL_TO_ALL, ALL_TO_ALL_V -> block / participants;
            default -> block;
        };
    }

    private long sizeBytes(int block) {
        if (kind == OperationKind.ALL_TO_ALL_V) {
            return operation.recvLayout(destination(block)).countElements(source(block))
                    * elementBytes;
        }
        return layout == null ? blockBytes : layout.countElements(block) * elementBytes;
    }

    /** Where a block starts in what a participant reads. */
    private long sendOffsetBytes(int participant, int block) {
        return switch (kind) {
            case REDUCE_SCATTER, SCATTER -> block * blockBytes;
            case ALL_TO_ALL -> destination(block) * blockBytes;
            case REDUCE_SCATTER_V ->
                    operation.sendLayout(participant).offsetElements(block) * elementBytes;
            case ALL_TO_ALL_V ->
                    operation.sendLayout(participant).offsetElements(destination(block))
                            * elementBytes;
            default -> 0;
        };
    }

    /** Where a block starts in what a participant writes. */
    private long recvOffsetBytes(int participant, int block) {
        return switch (kind) {
            case ALL_GATHER, GATHER -> block * blockBytes;
            case ALL_TO_ALL -> source(block) * blockBytes;
            case ALL_GATHER_V ->
                    operation.recvLayout(participant).offsetElements(block) * elementBytes;
            case ALL_TO_ALL_V ->
                    operation.recvLayout(participant).offsetElements(source(block)) * elementBytes;
            default -> 0;
        };
    }

    /**
     * Counts and traces what has been moved, as if each rank had combined and handed on a slice of
     * an all-reduce, and all else had gone from rank to rank.
     */
    private void account() {
        if (kind == OperationKind.ALL_REDUCE) {
            long slice = (lines(totalBytes) + participants - 1) / participants * LINE_BYTES;
            slice = Math.max(slice, engine.leastShareBytes());
            for (int from = 0; from < participants; from++) {
                accountSlices(from, slice);
            }
            return;
        }
        for (int block = 0; block < blocks; block++) {
            long bytes = sizeBytes(block);
            int from = source(block);
            int to = destination(block);
            int chunk = isAllToAll() ? to : block;
            // Of all or to all, but for all-reduce not both.
            int pairs = from == ALL || to == ALL ? participants : 1;
            for (int p = 0; p < pairs && bytes > 0; p++) {
                moved(from == ALL ? p : from, to == ALL ? p : to, chunk, bytes);
            }
        }
    }

    /** What a rank has sent in an all-reduce. */
    private void accountSlices(int from, long slice) {
        StepTrace trace = operation.trace(from);
        long own = Math.clamp(totalBytes - from * slice, 0, slice);
        for (int to = 0; to < participants; to++) {
            long other = Math.clamp(totalBytes - to * slice, 0, slice);
            if (from == to || own + other == 0) {
                continue;
            }
            operation.countSent(from, to, times * (own + other));
            if (trace != null && other > 0) {
                trace.sent(operation, 0, from, to, to, 0, other);
            }
            if (trace != null && own > 0) {
                trace.sent(operation, 1, from, to, from, 0, own);
            }
        }
    }

    private void moved(int from, int to, int chunk, long bytes) {
        if (from == to) {
            return;
        }
        if (operation.rank(from) != operation.rank(to)) {
            operation.countSent(from, to, times * bytes);
        }
        StepTrace trace = operation.trace(from);
        if (trace != null) {
            trace.sent(operation, 0, from, to, chunk, 0, bytes);
        }
    }

    /**
     * What one thread moves, and how far it has come. Made and set up by that thread, so that what
     * it changes is in its core's cache and not beside what another changes.
     */
    private final class Share extends Padding {
        private final int index;

        /** Made when first needed, as are the two below. */
        private FusedReduction reduction;

        /** For each participant where the current range is in its buffer. */
        private long[] fromAt;

        private long[] toAt;

        /** The {@link DirectRun#life} that it has begun. */
        private int begun;

        private long leftBytes;
        private int block;

        /** Where in the block the next piece starts. */
        private long at;

        /** Who gets it next, if each destination has a step of its own. */
        private int nextDestination;

        Share(int index) {
            this.index = index;
        }

        private void begin() {
            begun = life;
            block = 0;
            at = 0;
            nextDestination = 0;
            long start = Math.min(totalBytes, index * shareBytes);
            leftBytes = Math.min(shareBytes, totalBytes - start);
            if (leftBytes > 0) {
                seek(start);
                if (reduces) {
                    if (reduction == null) {
                        reduction = new FusedReduction(engine.kernels());
                        fromAt = new long[participants];
                        toAt = new long[participants];
                    }
                    reduction.begin(operation, participants, type, op);
                }
            }
        }

        private void seek(long start) {
            if (layout == null && kind != OperationKind.ALL_TO_ALL_V) {
                block = (int) (start / blockBytes);
                at = start % blockBytes;
                return;
            }
            at = start;
            for (long size = sizeBytes(block); at >= size; size = sizeBytes(block)) {
                at -= size;
                block++;
            }
        }

        Engine.Progress progress() {
            if (begun != life) {
                begin();
            }
            if (leftBytes == 0) {
                return Engine.Progress.DONE;
            }
            long inBlock = sizeBytes(block) - at;
            while (inBlock == 0) {
                block++;
                at = 0;
                inBlock = sizeBytes(block);
            }
            long range = Math.min(leftBytes, inBlock);
            boolean together = reduces || (destination(block) == ALL && !isLongCopy(range));
            long bytes =
                    together
                            ? Math.min(pieceBytes, range)
                            : copyPieceBytes(range, engine.pieceBytes());
            if (reduces) {
                reduce(bytes);
            } else if (!copy(bytes)) {
                return Engine.Progress.ADVANCED;
            }
            at += bytes;
            leftBytes -= bytes;
            return leftBytes == 0 ? Engine.Progress.DONE : Engine.Progress.ADVANCED;
        }

        private void reduce(long bytes) {
            int to = destination(block);
            int first = to == ALL ? 0 : to;
            int outputs = to == ALL ? participants : 1;
            for (int p = 0; p < participants; p++) {
                fromAt[p] = sendOffsetBytes(p, block) + at;
            }
            for (int p = first; p < first + outputs; p++) {
                toAt[p] = recvOffsetBytes(p, block) + at;
            }
            reduction.reduce(
                    sends, fromAt, recvs, toAt, first, outputs, (int) (bytes / elementBytes));
        }

        private boolean isLongCopy(long bytes) {
            return longCopies && bytes >= LONG_COPY_BYTES;
        }

        /**
         * Copies a range, or if it is long only to the next of its destinations, for an abort must
         * not have to wait for all of them.
         *
         * @return whether that was the last
         */
        private boolean copy(long bytes) {
            int from = source(block);
            int to = destination(block);
            MemorySegment send = sends[from];
            long sendAt = sendOffsetBytes(from, block) + at;
            if (to != ALL) {
                copy(send, sendAt, to, at, bytes);
                return true;
            }
            if (isLongCopy(bytes)) {
                copy(send, sendAt, nextDestination, at, bytes);
                nextDestination = (nextDestination + 1) % participants;
                return nextDestination == 0;
            }
            for (long done = 0; done < bytes; done += COPY_BYTES) {
                long part = Math.min(COPY_BYTES, bytes - done);
                for (int p = 0; p < participants; p++) {
                    copy(send, sendAt + done, p, at + done, part);
                }
            }
            return true;
        }

        private void copy(MemorySegment send, long sendAt, int to, long place, long bytes) {
            MemorySegment recv = recvs[to];
            long recvAt = recvOffsetBytes(to, block) + place;
            if (send.address() + sendAt != recv.address() + recvAt) {
                MemorySegment.copy(send, sendAt, recv, recvAt, bytes);
            }
        }
    }

    /** A cache line before the fields of what extends it. */
    @SuppressWarnings("unused")
    private abstract static class Padding {
        private long p0;
        private long p1;
        private long p2;
        private long p3;
        private long p4;
        private long p5;
        private long p6;
        private long p7;
    }
}
