package org.nccl4j.cpu;

import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.cpu.schedule.Collective;

/**
 * Which bytes of a rank's buffers are which chunk, and how chunks are cut into pieces: a pass takes
 * piece w of every chunk through the whole schedule, and is about 256 KiB of the full buffer, so
 * that a step is short, scratch memory is small and the ranks' pieces stay in caches.
 *
 * <p>Thread safety: one thread at a time.
 */
final class ChunkMap {
    private static final long PASS_BYTES = 256 << 10;
    private static final long SHORTEST_PIECE_BYTES = 512;
    private static final long CACHE_LINE_BYTES = 64;

    private final Collective collective;
    private final int chunks;
    private final long pieceBytes;

    private int elementBytes;
    private BlockLayout layout;
    private long chunkElements;
    private long longerChunks;
    private long longestBytes;

    ChunkMap(Program program) {
        collective = program.collective;
        chunks = program.chunks;
        pieceBytes = pieceBytes(chunks);
    }

    /** The longest piece of a chunk that a pass takes, if a buffer is cut into so many chunks. */
    static long pieceBytes(int chunks) {
        return Math.max(
                SHORTEST_PIECE_BYTES, PASS_BYTES / chunks / CACHE_LINE_BYTES * CACHE_LINE_BYTES);
    }

    void begin(JoinedOperation operation, int participant) {
        elementBytes = operation.type().sizeBytes();
        layout =
                switch (operation.kind()) {
                    case ALL_GATHER_V -> operation.recvLayout(participant);
                    case REDUCE_SCATTER_V -> operation.sendLayout(participant);
                    default -> null;
                };
        longestBytes = 0;
        if (layout != null) {
            for (int block = 0; block < chunks; block++) {
                longestBytes = Math.max(longestBytes, layout.countElements(block) * elementBytes);
            }
            return;
        }
        boolean cut =
                switch (collective) {
                    case ALL_REDUCE, REDUCE, BROADCAST -> true;
                    case REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL -> false;
                };
        chunkElements = cut ? operation.countElements() / chunks : operation.countElements();
        longerChunks = cut ? operation.countElements() % chunks : 0;
        longestBytes = (chunkElements + (longerChunks > 0 ? 1 : 0)) * elementBytes;
    }

    void end() {
        layout = null;
    }

    /** In how many passes the operation goes. */
    long passes() {
        return (longestBytes + pieceBytes - 1) / pieceBytes;
    }

    /** The size of a scratch slot. */
    long slotBytes() {
        long needed = Math.min(longestBytes, pieceBytes);
        return (needed + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES;
    }

    int elementBytes() {
        return elementBytes;
    }

    /** The size of a chunk's piece in a pass; 0 beyond its end. */
    long pieceBytes(int chunk, long pass) {
        return Math.clamp(chunkBytes(chunk) - pass * pieceBytes, 0, pieceBytes);
    }

    /** Where a pass's piece starts in a chunk. */
    long pieceOffset(long pass) {
        return pass * pieceBytes;
    }

    private long chunkBytes(int chunk) {
        long elements =
                layout != null
                        ? layout.countElements(chunk)
                        : chunkElements + (chunk < longerChunks ? 1 : 0);
        return elements * elementBytes;
    }

    /** Where a chunk starts in a buffer that has all of them. */
    long chunkOffset(int index) {
        long elements =
                layout != null
                        ? layout.offsetElements(index)
                        : chunkElements * index + Math.min(index, longerChunks);
        return elements * elementBytes;
    }

    /** Where a chunk starts in the send buffer; in an all-gather that has the own block alone. */
    long inputOffset(int index) {
        return collective == Collective.ALL_GATHER ? 0 : chunkOffset(index);
    }

    /** Where a chunk starts in the receive buffer; of a reduce-scatter that is the own block. */
    long outputOffset(int index) {
        return collective == Collective.REDUCE_SCATTER ? 0 : chunkOffset(index);
    }

    /** Whether chunks lie one behind the other where they are scaled, as they do in the input. */
    boolean isPacked() {
        return layout == null && passes() == 1;
    }
}
