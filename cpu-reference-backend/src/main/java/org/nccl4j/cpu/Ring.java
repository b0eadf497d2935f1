package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.cpu.Engine.Progress;

/**
 * Ring reduce-scatter, ring all-gather, and the all-reduce that is one after the other. A buffer is
 * n blocks; in each step every rank sends one block to its successor and receives one from its
 * predecessor, as the {@link RingSchedule} says; each half takes n - 1 steps.
 *
 * <p>To bound scratch memory and the time of a step, blocks are cut into pieces: piece w of every
 * block goes round the whole ring before piece w + 1 does. A block that has no piece w takes part
 * with an empty one.
 *
 * <p>Why nothing is overwritten too early: a rank posts and receives alternately, and writes only
 * while at most one of its posted ranges, the latest, is unacknowledged ({@link Edge#hasRoom}).
 *
 * <ul>
 *   <li>Scratch: the two pieces are written in turn, and what was written last has always been
 *       posted since. So the other one, which is next, was posted before the latest.
 *   <li>Send, in place: the only piece posted straight from it is that of step 0. The all-gather
 *       overwrites it with the block's result, n - 1 posts later at the least, so it was
 *       acknowledged; indeed the result contains it. All other pieces of send were read by this
 *       rank alone, in the reduce-scatter steps before.
 *   <li>Recv: each piece of it is written once.
 * </ul>
 *
 * <p>Nobody waits in a circle: a rank that waits for an acknowledgement of its post in step s - 1
 * waits for its successor to finish step s - 1, and one that waits for a message waits for its
 * predecessor to begin step s; of the ranks that are furthest back one can always move.
 */
final class Ring extends Algorithm {
    private final RingSchedule schedule;
    private final boolean reduces;
    private final boolean gathers;

    private Ring(RingSchedule schedule, boolean reduces, boolean gathers) {
        this.schedule = schedule;
        this.reduces = reduces;
        this.gathers = gathers;
    }

    static Ring allReduce(RingSchedule schedule) {
        return new Ring(schedule, true, true);
    }

    /** Rank r gets block r, so the schedule is {@link RingSchedule#B}. */
    static Ring reduceScatter() {
        return new Ring(RingSchedule.B, true, false);
    }

    /** Rank r starts with block r, so the schedule is {@link RingSchedule#B}. */
    static Ring allGather() {
        return new Ring(RingSchedule.B, false, true);
    }

    @Override
    long steps(int participants) {
        int halves = (reduces ? 1 : 0) + (gathers ? 1 : 0);
        return (long) participants * halves * (participants - 1);
    }

    @Override
    void prepare(ReferenceRun run) {
        JoinedOperation operation = run.operation();
        int n = run.participants();
        run.connect(1);
        BlockLayout layout = layout(operation, 0);
        long longest = 0;
        for (int block = 0; block < n; block++) {
            longest = Math.max(longest, run.blockBytes(layout, block));
        }
        run.cut(longest);
        if (reduces) {
            for (int p = 0; p < n; p++) {
                Cursor cursor = run.cursor(p);
                cursor.kernels.begin(operation.type(), operation.reduction(p), n);
                cursor.needScratch(Math.min(longest, run.pieceBytes()));
            }
        }
    }

    @Override
    Progress progress(ReferenceRun run, Cursor cursor) {
        int n = run.participants();
        Edge out = run.outgoing(cursor.participant, 1);
        if (cursor.piece == run.pieces()) {
            return out.isDrained() ? Progress.DONE : Progress.BLOCKED;
        }
        if (!out.hasRoom()) {
            return Progress.BLOCKED;
        }
        int reduceSteps = reduces ? n - 1 : 0;
        boolean reducing = cursor.step < reduceSteps;
        if (!cursor.posted) {
            cursor.posted = true;
            boolean moved =
                    reducing ? postPartial(run, cursor, out) : postComplete(run, cursor, out);
            // Posting alone is quick, so the step goes on; hasRoom may have changed.
            if (moved || !out.hasRoom()) {
                return Progress.ADVANCED;
            }
            if (!run.incoming(cursor.participant, 1).hasMessage()) {
                return Progress.ADVANCED;
            }
        }
        Edge in = run.incoming(cursor.participant, 1);
        if (!in.hasMessage()) {
            return Progress.BLOCKED;
        }
        if (reducing) {
            combine(run, cursor, in, cursor.step == reduceSteps - 1);
        } else {
            store(run, cursor, in);
        }
        in.acknowledge();
        cursor.posted = false;
        cursor.step++;
        if (cursor.step == reduceSteps + (gathers ? n - 1 : 0)) {
            cursor.step = 0;
            cursor.piece++;
        }
        return Progress.ADVANCED;
    }

    /**
     * Posts what a reduce-scatter step sends: in the first step this rank's own elements, scaled if
     * need be, later what the step before combined.
     *
     * @return whether it moved data
     */
    private boolean postPartial(ReferenceRun run, Cursor cursor, Edge out) {
        int me = cursor.participant;
        int block = schedule.reduceScatterSend(me, cursor.step, run.participants());
        BlockLayout layout = layout(run.operation(), me);
        long bytes = run.pieceBytes(cursor.piece, run.blockBytes(layout, block));
        boolean moved = false;
        if (cursor.step == 0 && !cursor.kernels.scales()) {
            out.post(cursor.send, blockPiece(run, cursor, layout, block), bytes);
        } else {
            if (cursor.step == 0) {
                cursor.kernels.scale(
                        cursor.scratch,
                        cursor.nextScratch(),
                        cursor.send,
                        blockPiece(run, cursor, layout, block),
                        (int) (bytes / run.elementBytes()));
                moved = true;
            }
            out.post(cursor.scratch, cursor.latestScratch(), bytes);
        }
        sent(run, cursor, block, bytes);
        return moved;
    }

    /** Adds this rank's own elements to what came in, to be sent in the next step or kept. */
    private void combine(ReferenceRun run, Cursor cursor, Edge in, boolean last) {
        int me = cursor.participant;
        int block = schedule.reduceScatterReceive(me, cursor.step, run.participants());
        BlockLayout layout = layout(run.operation(), me);
        long own = blockPiece(run, cursor, layout, block);
        MemorySegment target;
        long place;
        if (last) {
            target = cursor.recv;
            place = gathers ? own : cursor.piece * run.pieceBytes();
        } else {
            target = cursor.scratch;
            place = cursor.nextScratch();
        }
        cursor.kernels.combine(
                target,
                place,
                cursor.send,
                own,
                in.segment(),
                in.offsetBytes(),
                (int) (in.sizeBytes() / run.elementBytes()),
                last);
    }

    /**
     * Posts a complete block from where it is in recv; without a reduce-scatter before, this rank's
     * own is put there first.
     *
     * @return whether it moved data
     */
    private boolean postComplete(ReferenceRun run, Cursor cursor, Edge out) {
        int n = run.participants();
        int me = cursor.participant;
        int step = reduces ? cursor.step - (n - 1) : cursor.step;
        int block = schedule.allGatherSend(me, step, n);
        BlockLayout layout = layout(run.operation(), me);
        long bytes = run.pieceBytes(cursor.piece, run.blockBytes(layout, block));
        long place = blockPiece(run, cursor, layout, block);
        boolean moved = false;
        if (step == 0 && !reduces && bytes > 0) {
            long own = cursor.piece * run.pieceBytes();
            if (!isSamePlace(cursor.send, own, cursor.recv, place)) {
                MemorySegment.copy(cursor.send, own, cursor.recv, place, bytes);
                moved = true;
            }
        }
        out.post(cursor.recv, place, bytes);
        sent(run, cursor, block, bytes);
        return moved;
    }

    /** Stores a complete block that came in. */
    private void store(ReferenceRun run, Cursor cursor, Edge in) {
        int n = run.participants();
        int me = cursor.participant;
        int step = reduces ? cursor.step - (n - 1) : cursor.step;
        int block = schedule.allGatherReceive(me, step, n);
        long place = blockPiece(run, cursor, layout(run.operation(), me), block);
        if (in.sizeBytes() > 0) {
            MemorySegment.copy(in.segment(), in.offsetBytes(), cursor.recv, place, in.sizeBytes());
        }
    }

    private static void sent(ReferenceRun run, Cursor cursor, int block, long bytes) {
        run.sent(
                cursor.participant,
                run.after(cursor.participant, 1),
                cursor.step,
                block,
                cursor.piece * run.pieceBytes(),
                bytes);
    }

    /** Where the current piece of a block starts in the buffer that holds all blocks. */
    private static long blockPiece(ReferenceRun run, Cursor cursor, BlockLayout layout, int block) {
        return run.blockOffsetBytes(layout, block) + cursor.piece * run.pieceBytes();
    }

    private BlockLayout layout(JoinedOperation operation, int participant) {
        return reduces ? operation.sendLayout(participant) : operation.recvLayout(participant);
    }
}
