package org.nccl4j.cpu;

import org.nccl4j.cpu.Engine.Progress;

/**
 * Reduction along the chain root + 1, root + 2, ..., root: every rank adds its own elements to what
 * it has received and passes the sum on, piece by piece. The result is x[root] + (x[root-1] + (...
 * + x[root+1])), the order in which the ring reduce-scatter sums the block of rank root.
 *
 * <p>Ranks other than the root work in two scratch pieces in turn. One is written again only when
 * at most the latest posted one, which is the other, is unacknowledged.
 */
final class ChainReduce extends Algorithm {
    @Override
    long steps(int participants) {
        return 2L * participants;
    }

    @Override
    void prepare(ReferenceRun run) {
        JoinedOperation operation = run.operation();
        int n = run.participants();
        long bytes = run.blockBytes(null, 0);
        run.connect(1);
        run.cut(bytes);
        for (int p = 0; p < n; p++) {
            Cursor cursor = run.cursor(p);
            cursor.kernels.begin(operation.type(), operation.reduction(p), n);
            if (p != operation.root()) {
                cursor.needScratch(Math.min(bytes, run.pieceBytes()));
            }
        }
    }

    @Override
    Progress progress(ReferenceRun run, Cursor cursor) {
        int me = cursor.participant;
        int position = run.before(me, run.after(run.operation().root(), 1));
        boolean root = position == run.participants() - 1;
        Edge out = root ? null : run.outgoing(me, 1);
        if (cursor.piece == run.pieces()) {
            return root || out.isDrained() ? Progress.DONE : Progress.BLOCKED;
        }
        Edge in = position == 0 ? null : run.incoming(me, 1);
        if (!root && !out.hasRoom() || position > 0 && !in.hasMessage()) {
            return Progress.BLOCKED;
        }
        long place = cursor.piece * run.pieceBytes();
        long bytes = run.pieceBytes(cursor.piece, run.blockBytes(null, 0));
        int count = (int) (bytes / run.elementBytes());
        Kernels kernels = cursor.kernels;
        if (root) {
            kernels.combine(
                    cursor.recv,
                    place,
                    cursor.send,
                    place,
                    in.segment(),
                    in.offsetBytes(),
                    count,
                    true);
            in.acknowledge();
        } else if (position == 0 && !kernels.scales()) {
            out.post(cursor.send, place, bytes);
        } else {
            long scratch = cursor.nextScratch();
            if (position == 0) {
                kernels.scale(cursor.scratch, scratch, cursor.send, place, count);
            } else {
                kernels.combine(
                        cursor.scratch,
                        scratch,
                        cursor.send,
                        place,
                        in.segment(),
                        in.offsetBytes(),
                        count,
                        false);
                in.acknowledge();
            }
            out.post(cursor.scratch, scratch, bytes);
        }
        if (!root) {
            run.sent(me, run.after(me, 1), position, 0, place, bytes);
        }
        cursor.piece++;
        return Progress.ADVANCED;
    }
}
