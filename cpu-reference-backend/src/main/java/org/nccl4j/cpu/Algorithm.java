package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import org.nccl4j.cpu.Engine.Progress;

/**
 * How a kind of operation is done. Stateless: what it knows about an operation in progress is in
 * the {@link ReferenceRun} and its {@link Cursor}s.
 *
 * <p>Thread safety: immutable.
 */
abstract class Algorithm {
    /** How many steps all participants together take if every block goes in one piece. */
    abstract long steps(int participants);

    /** Makes what the operation needs: edges, scratch, reductions. */
    abstract void prepare(ReferenceRun run);

    /** Advances one participant, as {@link Engine.Run#progress} says. */
    abstract Progress progress(ReferenceRun run, Cursor cursor);

    /**
     * Copies at most one piece of a range of the participant's own, from {@code cursor.movedBytes}
     * on.
     *
     * @return whether the range is complete; {@code movedBytes} is then 0 again
     */
    static boolean copyPiece(
            ReferenceRun run,
            Cursor cursor,
            MemorySegment from,
            long fromOffset,
            MemorySegment to,
            long toOffset,
            long bytes) {
        if (bytes == 0 || isSamePlace(from, fromOffset, to, toOffset)) {
            return true;
        }
        long moved = cursor.movedBytes;
        long now = Math.min(bytes - moved, run.pieceBytes());
        MemorySegment.copy(from, fromOffset + moved, to, toOffset + moved, now);
        cursor.movedBytes = moved + now;
        if (moved + now < bytes) {
            return false;
        }
        cursor.movedBytes = 0;
        return true;
    }

    /** Whether two ranges start at one address: the in-place form. */
    static boolean isSamePlace(MemorySegment a, long aOffset, MemorySegment b, long bOffset) {
        return a.address() + aOffset == b.address() + bOffset;
    }
}
