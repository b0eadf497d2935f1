package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import org.nccl4j.collectives.BlockLayout;

/**
 * One operation being run by the {@link DirectEngine}. Its data is a number of blocks laid end to
 * end; a block goes from one participant, or all of them combined, to one participant or all. The
 * whole is cut into a contiguous {@link Share} per participant, at multiples of a cache line; in an
 * all-to-all a participant's share is what it receives.
 *
 * <p>Why nothing is overwritten too early, in place too: a byte of a block is read and written at
 * one place in each buffer, all of them belong to one share, and within a share a range's inputs
 * are read before its outputs are written.
 *
 * <p>Reused from operation to operation with all its memory.
 *
 * <p>Thread safety: as {@link Engine.Run} says; participants share nothing that changes.
 */
final class DirectRun implements Engine.Run {
    static final int LINE_BYTES = 64;

    /** What is copied to several places goes in parts that stay in a level-one cache meanwhile. */
    private static final int COPY_BYTES = 16 << 10;

    private static final int SHORTEST_PIECE_BYTES = 1 << 10;
    private static final int ALL = -1;

    private final DirectEngine engine;
    private final int participants;
    private final MemorySegment[] sends;
    private final MemorySegment[] recvs;
    private final Share[] shares;

    private JoinedOperation operation;
    private OperationKind kind;
    private boolean reduces;
    private int elementBytes;
    private int blocks;
    private int pieceBytes;

    /** The size of every block, unless there is a layout of blocks. */
    private long blockBytes;

    private BlockLayout layout;

    /** The size of every share but the last. */
    private long shareBytes;

    private long totalBytes;

    DirectRun(DirectEngine engine, int participants) {
        this.engine = engine;
        this.participants = participants;
        this.sends = new MemorySegment[participants];
        this.recvs = new MemorySegment[participants];
        this.shares = new Share[participants];
    }

    int participants() {
        return participants;
    }

    /** Sets up for one operation; by one thread, before anything else. */
    void begin(JoinedOperation joined) {
        operation = joined;
        kind = joined.kind();
        reduces = kind.reduces();
        elementBytes = joined.type() == null ? 1 : joined.type().sizeBytes();
        blockBytes = joined.countElements() * elementBytes;
        layout = null;
        blocks = participants;
        switch (kind) {
            case ALL_REDUCE, REDUCE, BROADCAST, SEND_RECV -> blocks = 1;
            case REDUCE_SCATTER_V -> layout = joined.sendLayout(0);
            case ALL_GATHER_V -> layout = joined.recvLayout(0);
            case REDUCE_SCATTER, ALL_GATHER, GATHER, SCATTER, ALL_TO_ALL, ALL_TO_ALL_V -> {}
            case BARRIER -> blocks = 0;
            case SPLIT, EXCHANGE_COUNTS ->
                    throw new IllegalArgumentException(
                            kind.operation() + " moves no data through an engine");
        }
        totalBytes = layout == null ? blockBytes * blocks : layout.totalElements() * elementBytes;
        long lines = (totalBytes + LINE_BYTES - 1) / LINE_BYTES;
        shareBytes = (lines + participants - 1) / participants * LINE_BYTES;
        shareBytes = Math.max(shareBytes, engine.leastShareBytes());
        int ranges =
                (source(0) == ALL ? participants : 1) + (destination(0) == ALL ? participants : 1);
        pieceBytes =
                Math.max(SHORTEST_PIECE_BYTES, engine.pieceBytes() / ranges)
                        / LINE_BYTES
                        * LINE_BYTES;
        for (int p = 0; p < participants; p++) {
            sends[p] = joined.send(p);
            recvs[p] = joined.recv(p);
            if (shares[p] == null) {
                shares[p] = new Share(p);
            }
            shares[p].begin();
        }
    }

    @Override
    public Engine.Progress progress(int participant) {
        return shares[participant].progress();
    }

    @Override
    public void finish() {
        for (int p = 0; p < participants; p++) {
            sends[p] = null;
            recvs[p] = null;
        }
        operation = null;
        layout = null;
        engine.recycle(this);
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
            default -> block;
        };
    }

    /** Who gets a block; in an all-to-all this is the share's participant. */
    private int destination(int block) {
        return switch (kind) {
            case ALL_REDUCE, ALL_GATHER, ALL_GATHER_V, BROADCAST -> ALL;
            case REDUCE, GATHER -> operation.root();
            case SEND_RECV -> 1;
            default -> block;
        };
    }

    /** Where a block starts in what a participant reads. */
    private long sendOffsetBytes(int participant, int block) {
        return switch (kind) {
            case REDUCE_SCATTER, SCATTER, ALL_TO_ALL -> block * blockBytes;
            case REDUCE_SCATTER_V, ALL_TO_ALL_V ->
                    operation.sendLayout(participant).offsetElements(block) * elementBytes;
            default -> 0;
        };
    }

    /** Where a block starts in what a participant writes. */
    private long recvOffsetBytes(int participant, int block) {
        return switch (kind) {
            case ALL_GATHER, GATHER, ALL_TO_ALL -> block * blockBytes;
            case ALL_GATHER_V, ALL_TO_ALL_V ->
                    operation.recvLayout(participant).offsetElements(block) * elementBytes;
            default -> 0;
        };
    }

    /** Counts and traces data that has gone from one participant to another. */
    private void moved(int from, int to, int step, int chunk, long offsetBytes, long bytes) {
        if (from == to) {
            return;
        }
        if (operation.rank(from) != operation.rank(to)) {
            operation.countSent(from, to, bytes);
        }
        StepTrace trace = operation.trace(from);
        if (trace != null) {
            trace.sent(operation, step, from, to, chunk, offsetBytes, bytes);
        }
    }

    /** What one participant moves, and how far it has come. */
    private final class Share {
        private final int owner;

        /** Made when first needed: with short data most participants never reduce. */
        private FusedReduction reduction;

        /** For each participant where the current range is in its buffer. */
        private long[] fromAt;

        private long[] toAt;

        private long leftBytes;
        private int block;

        /** Where in the block the next piece starts. */
        private long at;

        /** Where in the block this share starts, or the block's start. */
        private long rangeStart;

        Share(int owner) {
            this.owner = owner;
        }

        void begin() {
            block = 0;
            at = 0;
            if (isAllToAll()) {
                leftBytes = 0;
                for (int b = 0; b < blocks; b++) {
                    leftBytes += sizeBytes(b);
                }
            } else {
                long start = Math.min(totalBytes, owner * shareBytes);
                leftBytes = Math.min(shareBytes, totalBytes - start);
                if (leftBytes > 0) {
                    seek(start);
                }
            }
            rangeStart = at;
            if (reduces && leftBytes > 0) {
                if (reduction == null) {
                    reduction = new FusedReduction(engine.kernels());
                    fromAt = new long[participants];
                    toAt = new long[participants];
                }
                reduction.begin(operation);
            }
        }

        private void seek(long start) {
            if (layout == null) {
                block = (int) (start / blockBytes);
                at = start % blockBytes;
            } else {
                at = start;
                while (at >= sizeBytes(block)) {
                    at -= sizeBytes(block);
                    block++;
                }
            }
        }

        private long sizeBytes(int b) {
            if (kind == OperationKind.ALL_TO_ALL_V) {
                return operation.recvLayout(owner).countElements(b) * elementBytes;
            }
            return layout == null ? blockBytes : layout.countElements(b) * elementBytes;
        }

        Engine.Progress progress() {
            if (leftBytes == 0) {
                return Engine.Progress.DONE;
            }
            long inBlock = sizeBytes(block) - at;
            while (inBlock == 0) {
                block++;
                at = 0;
                rangeStart = 0;
                inBlock = sizeBytes(block);
            }
            long bytes = Math.min(pieceBytes, Math.min(leftBytes, inBlock));
            if (reduces) {
                reduce(bytes);
            } else {
                copy(bytes);
            }
            at += bytes;
            leftBytes -= bytes;
            if (leftBytes == 0 || bytes == inBlock) {
                account();
            }
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

        private void copy(long bytes) {
            int from = source(block);
            int to = isAllToAll() ? owner : destination(block);
            MemorySegment send = sends[from];
            long sendAt = sendOffsetBytes(from, isAllToAll() ? owner : block) + at;
            if (to != ALL) {
                copy(send, sendAt, to, at, bytes);
                return;
            }
            for (long done = 0; done < bytes; done += COPY_BYTES) {
                long part = Math.min(COPY_BYTES, bytes - done);
                for (int p = 0; p < participants; p++) {
                    copy(send, sendAt + done, p, at + done, part);
                }
            }
        }

        private void copy(MemorySegment send, long sendAt, int to, long place, long bytes) {
            MemorySegment recv = recvs[to];
            long recvAt = recvOffsetBytes(to, block) + place;
            if (send.address() + sendAt != recv.address() + recvAt) {
                MemorySegment.copy(send, sendAt, recv, recvAt, bytes);
            }
        }

        /** Counts what this share has moved of the current block. */
        private void account() {
            long bytes = at - rangeStart;
            if (kind == OperationKind.ALL_REDUCE) {
                for (int p = 0; p < participants; p++) {
                    moved(p, owner, 0, owner, 0, bytes);
                    moved(owner, p, 1, owner, 0, bytes);
                }
                return;
            }
            int from = source(block);
            int to = isAllToAll() ? owner : destination(block);
            // Of all or to all, but for all-reduce not both.
            int pairs = from == ALL || to == ALL ? participants : 1;
            int chunk = isAllToAll() ? owner : block;
            for (int p = 0; p < pairs; p++) {
                moved(from == ALL ? p : from, to == ALL ? p : to, 0, chunk, rangeStart, bytes);
            }
        }
    }
}
