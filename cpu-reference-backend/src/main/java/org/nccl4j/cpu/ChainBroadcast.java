package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import org.nccl4j.cpu.Engine.Progress;

/**
 * Broadcast along the chain root, root + 1, ..., root - 1: every rank but the last passes on what
 * it has received, piece by piece, so that all links are busy at once.
 *
 * <p>Nothing is overwritten: each piece of recv is written once, and send is only read.
 */
final class ChainBroadcast extends Algorithm {
    @Override
    long steps(int participants) {
        return 2L * participants;
    }

    @Override
    void prepare(ReferenceRun run) {
        run.connect(1);
        run.cut(run.blockBytes(null, 0));
    }

    @Override
    Progress progress(ReferenceRun run, Cursor cursor) {
        JoinedOperation operation = run.operation();
        int me = cursor.participant;
        int position = run.before(me, operation.root());
        boolean last = position == run.participants() - 1;
        Edge out = last ? null : run.outgoing(me, 1);
        if (cursor.piece == run.pieces()) {
            return last || out.isDrained() ? Progress.DONE : Progress.BLOCKED;
        }
        long place = cursor.piece * run.pieceBytes();
        long bytes = run.pieceBytes(cursor.piece, run.blockBytes(null, 0));
        boolean moved = false;
        if (!cursor.received) {
            if (position == 0) {
                moved = !isSamePlace(cursor.send, 0, cursor.recv, 0);
                if (moved) {
                    MemorySegment.copy(cursor.send, place, cursor.recv, place, bytes);
                }
            } else {
                Edge in = run.incoming(me, 1);
                if (!in.hasMessage()) {
                    return Progress.BLOCKED;
                }
                MemorySegment.copy(in.segment(), in.offsetBytes(), cursor.recv, place, bytes);
                in.acknowledge();
                moved = true;
            }
            cursor.received = true;
        }
        if (!last) {
            if (!out.hasRoom()) {
                return moved ? Progress.ADVANCED : Progress.BLOCKED;
            }
            out.post(cursor.recv, place, bytes);
            run.sent(me, run.after(me, 1), position, 0, place, bytes);
        }
        cursor.received = false;
        cursor.piece++;
        return Progress.ADVANCED;
    }
}
