package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.cpu.Engine.Progress;

/**
 * What a ring or a chain is for one rank: the result is the rank's own elements bit for bit, but
 * for the scalar of a pre-multiplied sum.
 */
final class Alone extends Algorithm {
    @Override
    long steps(int participants) {
        return participants;
    }

    @Override
    void prepare(ReferenceRun run) {
        JoinedOperation operation = run.operation();
        if (operation.reduction(0) != null) {
            run.cursor(0).kernels.begin(operation.type(), operation.reduction(0), 1);
        }
    }

    @Override
    Progress progress(ReferenceRun run, Cursor cursor) {
        JoinedOperation operation = run.operation();
        BlockLayout from = operation.sendLayout(0);
        BlockLayout to = operation.recvLayout(0);
        long sendOffset = from == null ? 0 : run.blockOffsetBytes(from, 0);
        long recvOffset = to == null ? 0 : run.blockOffsetBytes(to, 0);
        long bytes = run.blockBytes(from == null ? to : from, 0);
        MemorySegment send = cursor.send;
        MemorySegment recv = cursor.recv;
        if (operation.reduction(0) == null || !cursor.kernels.scales()) {
            return copyPiece(run, cursor, send, sendOffset, recv, recvOffset, bytes)
                    ? Progress.DONE
                    : Progress.ADVANCED;
        }
        long moved = cursor.movedBytes;
        long now = Math.min(bytes - moved, run.pieceBytes());
        cursor.kernels.scale(
                recv,
                recvOffset + moved,
                send,
                sendOffset + moved,
                (int) (now / run.elementBytes()));
        cursor.movedBytes = moved + now;
        return cursor.movedBytes == bytes ? Progress.DONE : Progress.ADVANCED;
    }
}
