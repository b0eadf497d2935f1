package org.nccl4j.cpu;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * How far one participant has come in an algorithm, with what it works on. Fields mean what the
 * {@link Algorithm} says; all are zero at the start.
 *
 * <p>Thread safety: one thread at a time.
 */
final class Cursor {
    private static final long CACHE_LINE_BYTES = 64;

    final int participant;
    final Kernels kernels = new Kernels();

    /** What the participant reads, from its first element on. */
    MemorySegment send;

    /** What the participant writes, from its first element on. */
    MemorySegment recv;

    /** Two pieces of the participant's own, written in turn. */
    MemorySegment scratch;

    private long scratchPieceBytes;
    private int scratchTurn;

    /** The step of the algorithm. */
    int step;

    /** The piece of the buffer that the steps are at. */
    long piece;

    /** Whether the current step has posted what it sends. */
    boolean posted;

    /** Whether the current step has received what it needs. */
    boolean received;

    /** Bytes of the current range that have been moved. */
    long movedBytes;

    Cursor(int participant) {
        this.participant = participant;
    }

    void begin(JoinedOperation operation) {
        send = operation.send(participant);
        recv = operation.recv(participant);
        step = 0;
        piece = 0;
        posted = false;
        received = false;
        movedBytes = 0;
    }

    void end() {
        send = null;
        recv = null;
    }

    /** Makes sure that there are two scratch pieces of a size. */
    void needScratch(long sizeBytes) {
        if (scratch == null || scratchPieceBytes < sizeBytes) {
            scratchPieceBytes =
                    (sizeBytes + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES;
            // Freed by the garbage collector with the run that owns this cursor.
            scratch = Arena.ofAuto().allocate(2 * scratchPieceBytes, CACHE_LINE_BYTES);
        }
    }

    /** Where to write next: the scratch piece that was not written last. */
    long nextScratch() {
        scratchTurn ^= 1;
        return latestScratch();
    }

    /** Where the scratch piece that was written last starts. */
    long latestScratch() {
        return scratchTurn * scratchPieceBytes;
    }
}
