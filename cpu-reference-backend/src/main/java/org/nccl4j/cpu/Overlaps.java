package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.InvalidArgumentException;

/**
 * Finds memory that one rank writes in an operation while another reads or writes it. What one rank
 * does with its own memory has been checked when it called.
 *
 * <p>Every operation comes through here, so it costs little: an operation with the ranges of the
 * one before is known to be right, few ranks are compared each with each, many are sorted. Blocks
 * of a layout are looked at only if what lies around them overlaps. Allocates nothing once it has
 * seen the largest case, unless there is an overlap to tell.
 *
 * <p>Thread safety: one thread at a time.
 */
final class Overlaps {
    /** Up to so many ranks comparing each with each is faster than sorting. */
    private static final int MOST_PAIRWISE = 8;

    /**
     * Memory of a rank; addresses, the end exclusive.
     *
     * @param block which block of the rank's layout, -1 without one
     */
    record Range(int rank, boolean written, int block, long start, long end) {}

    private final int size;

    /** What each rank read and wrote in the last collective, from 0 to 0 if nothing. */
    private final long[] readStarts;

    private final long[] readEnds;
    private final long[] writeStarts;
    private final long[] writeEnds;

    /** Whether these are known not to overlap. */
    private boolean known;

    /** Of all ranks together, for sorting; made when first needed. */
    private long[] starts = {};

    private long[] ends = {};

    Overlaps(int size) {
        this.size = size;
        this.readStarts = new long[size];
        this.readEnds = new long[size];
        this.writeStarts = new long[size];
        this.writeEnds = new long[size];
    }

    /**
     * Looks at an operation that all ranks have posted and that is not empty.
     *
     * @return what overlaps, or null
     */
    InvalidArgumentException check(Match match) {
        if (areApart(match) || match.usesClosedMemory()) {
            // What was in a closed arena may have become another rank's memory. The operation
            // breaks when it runs, and says why.
            return null;
        }
        if (match.isPair()) {
            return ofPair(match);
        }
        if (size > MOST_PAIRWISE && hasLayout(match) && sortedBlocksAreApart(match)) {
            return null;
        }
        return first(match);
    }

    /** Whether nothing overlaps, not even what lies around the blocks of a layout. */
    boolean areApart(OperationOfParts operation) {
        if (operation.type() == null) {
            return true;
        }
        if (operation.isPair()) {
            // Also of a rank with itself, for its two calls have not been compared.
            long from = operation.send(0).address();
            long to = operation.recv(1).address();
            long bytes = operation.part(0).readBytes(size);
            return areApart(from, from + bytes, to, to + bytes);
        }
        if (size > 1 && !isKnown(operation)) {
            known = size <= MOST_PAIRWISE ? extentsAreApart() : sortedExtentsAreApart();
        }
        return size == 1 || known;
    }

    private InvalidArgumentException ofPair(Match match) {
        long from = match.send(0).address();
        long to = match.recv(1).address();
        long bytes = match.part(0).readBytes(size);
        return Wording.overlap(
                match,
                new Range(match.senderRank, false, -1, from, from + bytes),
                new Range(match.receiverRank, true, -1, to, to + bytes));
    }

    /** Notes what the ranks use, and whether that is what has been found right last. */
    private boolean isKnown(OperationOfParts operation) {
        boolean same = known;
        for (int rank = 0; rank < size; rank++) {
            Part part = operation.part(rank);
            long read = address(part.sendSegment);
            long readEnd = read + part.readBytes(size);
            long write = address(part.recvSegment);
            long writeEnd = write + part.writtenBytes(size);
            if (readStarts[rank] != read
                    || readEnds[rank] != readEnd
                    || writeStarts[rank] != write
                    || writeEnds[rank] != writeEnd) {
                same = false;
                readStarts[rank] = read;
                readEnds[rank] = readEnd;
                writeStarts[rank] = write;
                writeEnds[rank] = writeEnd;
            }
        }
        return same;
    }

    private static long address(MemorySegment segment) {
        return segment == null ? 0 : segment.address();
    }

    private static boolean areApart(long aStart, long aEnd, long bStart, long bEnd) {
        return aEnd <= bStart || bEnd <= aStart;
    }

    private boolean extentsAreApart() {
        for (int a = 0; a < size; a++) {
            for (int b = a + 1; b < size; b++) {
                if (!areApart(writeStarts[a], writeEnds[a], writeStarts[b], writeEnds[b])
                        || !areApart(readStarts[a], readEnds[a], writeStarts[b], writeEnds[b])
                        || !areApart(writeStarts[a], writeEnds[a], readStarts[b], readEnds[b])) {
                    return false;
                }
            }
        }
        return true;
    }

    private boolean sortedExtentsAreApart() {
        reserve(size);
        int count = 0;
        for (int rank = 0; rank < size; rank++) {
            count = addWritten(count, writeStarts[rank], writeEnds[rank]);
        }
        if (!sortedAreApart(count)) {
            return false;
        }
        for (int rank = 0; rank < size; rank++) {
            if (!isApart(readStarts[rank], readEnds[rank], writeStarts[rank], count)) {
                return false;
            }
        }
        return true;
    }

    private boolean sortedBlocksAreApart(Match match) {
        reserve(size * size);
        int count = 0;
        for (int rank = 0; rank < size; rank++) {
            Part part = match.part(rank);
            for (int block = 0; block < blocks(part, true); block++) {
                long start = start(part, true, block);
                count = addWritten(count, start, start + bytes(part, true, block));
            }
        }
        if (!sortedAreApart(count)) {
            return false;
        }
        for (int rank = 0; rank < size; rank++) {
            Part part = match.part(rank);
            // In place, a rank reads its own one of the blocks that it writes, or writes its own
            // one of those that it reads; it does not if there are layouts of both.
            boolean both = part.sendLayout != null && part.recvLayout != null;
            long own = both ? -1 : start(part, true, part.recvLayout == null ? 0 : rank);
            for (int block = 0; block < blocks(part, false); block++) {
                long start = start(part, false, block);
                if (!isApart(start, start + bytes(part, false, block), own, count)) {
                    return false;
                }
            }
        }
        return true;
    }

    private void reserve(int ranges) {
        if (starts.length < ranges) {
            starts = new long[ranges];
            ends = new long[ranges];
        }
    }

    private int addWritten(int count, long start, long end) {
        if (start == end) {
            return count;
        }
        starts[count] = start;
        ends[count] = end;
        return count + 1;
    }

    /**
     * Ranges are apart if, with starts and ends sorted by themselves, each ends before the next.
     */
    private boolean sortedAreApart(int count) {
        Arrays.sort(starts, 0, count);
        Arrays.sort(ends, 0, count);
        for (int i = 1; i < count; i++) {
            if (ends[i - 1] > starts[i]) {
                return false;
            }
        }
        return true;
    }

    /** Whether what is read is not written, but for what starts at the reader's own place. */
    private boolean isApart(long start, long end, long own, int count) {
        if (start == end) {
            return true;
        }
        int found = Arrays.binarySearch(ends, 0, count, start);
        for (int i = found < 0 ? ~found : found + 1; i < count && starts[i] < end; i++) {
            if (starts[i] != own) {
                return false;
            }
        }
        return true;
    }

    // ---- by blocks, from the calls themselves

    private static boolean hasLayout(Match match) {
        return match.first.sendLayout != null || match.first.recvLayout != null;
    }

    private static BlockLayout layout(Part part, boolean written) {
        return written ? part.recvLayout : part.sendLayout;
    }

    private static int blocks(Part part, boolean written) {
        BlockLayout layout = layout(part, written);
        return layout == null ? 1 : layout.ranks();
    }

    private static long start(Part part, boolean written, int block) {
        BlockLayout layout = layout(part, written);
        return address(written ? part.recvSegment : part.sendSegment)
                + (layout == null ? 0 : part.type.bytes(layout.offsetElements(block)));
    }

    private long bytes(Part part, boolean written, int block) {
        BlockLayout layout = layout(part, written);
        if (layout != null) {
            return part.type.bytes(layout.countElements(block));
        }
        return written ? part.writtenBytes(size) : part.readBytes(size);
    }

    /** The first overlap of blocks, named; null if only what lies around them overlaps. */
    private InvalidArgumentException first(Match match) {
        for (int a = 0; a < size; a++) {
            for (int b = a + 1; b < size; b++) {
                InvalidArgumentException overlap = first(match, a, true, b, true);
                if (overlap == null) {
                    overlap = first(match, a, true, b, false);
                }
                if (overlap == null) {
                    overlap = first(match, a, false, b, true);
                }
                if (overlap != null) {
                    return overlap;
                }
            }
        }
        return null;
    }

    private InvalidArgumentException first(
            Match match, int a, boolean aWritten, int b, boolean bWritten) {
        if (areApart(start(a, aWritten), end(a, aWritten), start(b, bWritten), end(b, bWritten))) {
            return null;
        }
        Part one = match.part(a);
        Part other = match.part(b);
        for (int i = 0; i < blocks(one, aWritten); i++) {
            long oneStart = start(one, aWritten, i);
            long oneEnd = oneStart + bytes(one, aWritten, i);
            for (int j = 0; j < blocks(other, bWritten); j++) {
                long otherStart = start(other, bWritten, j);
                long otherEnd = otherStart + bytes(other, bWritten, j);
                if (oneStart < oneEnd
                        && otherStart < otherEnd
                        && !areApart(oneStart, oneEnd, otherStart, otherEnd)) {
                    return Wording.overlap(
                            match,
                            range(one, aWritten, i, oneStart, oneEnd),
                            range(other, bWritten, j, otherStart, otherEnd));
                }
            }
        }
        return null;
    }

    private static Range range(Part part, boolean written, int block, long start, long end) {
        return new Range(
                part.participant, written, layout(part, written) == null ? -1 : block, start, end);
    }

    private long start(int rank, boolean written) {
        return written ? writeStarts[rank] : readStarts[rank];
    }

    private long end(int rank, boolean written) {
        return written ? writeEnds[rank] : readEnds[rank];
    }
}
