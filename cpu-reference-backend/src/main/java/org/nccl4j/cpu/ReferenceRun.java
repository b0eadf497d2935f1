package org.nccl4j.cpu;

import java.util.Arrays;
import org.nccl4j.collectives.BlockLayout;

/**
 * One operation being run by the {@link ReferenceEngine}: a {@link Cursor} per participant, the
 * {@link Edge}s between them, and the {@link Algorithm} that moves the cursors. Reused from
 * operation to operation with all its memory.
 *
 * <p>Thread safety: as {@link Engine.Run} says; participants share nothing but edges.
 */
final class ReferenceRun implements Engine.Run {
    private final ReferenceEngine engine;
    private final int participants;
    private final int pieceBytes;
    private final Cursor[] cursors;

    /** By distance d and participant p: the edge from p to (p + d) mod n. */
    private final Edge[][] edges;

    /** The edges of this operation: a run that once had an all-to-all has many more. */
    private Edge[] connected = new Edge[16];

    private int connections;

    private JoinedOperation operation;
    private Algorithm algorithm;
    private int elementBytes;
    private long pieces;

    // The blocks of an operation without a layout: this many elements, the first few one more.
    private long blockElements;
    private int longerBlocks;

    ReferenceRun(ReferenceEngine engine, int participants, int pieceBytes) {
        this.engine = engine;
        this.participants = participants;
        this.pieceBytes = pieceBytes;
        this.cursors = new Cursor[participants];
        Arrays.setAll(cursors, p -> new Cursor(p));
        this.edges = new Edge[participants][];
    }

    /** Sets up for one operation; by one thread, before anything else. */
    void begin(JoinedOperation joined, Algorithm how) {
        operation = joined;
        algorithm = how;
        elementBytes = joined.type() == null ? 1 : joined.type().sizeBytes();
        pieces = 0;
        blockElements = joined.countElements();
        longerBlocks = 0;
        if (joined.kind() == OperationKind.ALL_REDUCE) {
            longerBlocks = (int) (blockElements % participants);
            blockElements /= participants;
        }
        for (Cursor cursor : cursors) {
            cursor.begin(joined);
        }
        how.prepare(this);
    }

    @Override
    public Engine.Progress progress(int participant) {
        return algorithm.progress(this, cursors[participant]);
    }

    @Override
    public void finish(boolean done) {
        for (Cursor cursor : cursors) {
            cursor.end();
        }
        for (int i = 0; i < connections; i++) {
            connected[i].reset();
        }
        connections = 0;
        operation = null;
        engine.recycle(this);
    }

    JoinedOperation operation() {
        return operation;
    }

    /** Each participant is one. */
    @Override
    public int shares() {
        return participants();
    }

    int participants() {
        return participants;
    }

    int elementBytes() {
        return elementBytes;
    }

    /** The most that one step moves at once: a multiple of every element size. */
    int pieceBytes() {
        return pieceBytes;
    }

    Cursor cursor(int participant) {
        return cursors[participant];
    }

    /** Makes the edges from every participant to the one at a distance from it. */
    void connect(int distance) {
        for (int p = 0; p < participants; p++) {
            connect(p, distance);
        }
    }

    /** Makes the edge from one participant to the one at a distance from it; once each. */
    void connect(int participant, int distance) {
        if (edges[distance] == null) {
            edges[distance] = new Edge[participants];
        }
        Edge edge = edges[distance][participant];
        if (edge == null) {
            edge = new Edge();
            edges[distance][participant] = edge;
        }
        if (connections == connected.length) {
            connected = Arrays.copyOf(connected, 2 * connections);
        }
        connected[connections++] = edge;
    }

    /** The edge from a participant to the one at a distance after it. */
    Edge outgoing(int participant, int distance) {
        return edges[distance][participant];
    }

    /** The edge to a participant from the one at a distance before it. */
    Edge incoming(int participant, int distance) {
        return edges[distance][before(participant, distance)];
    }

    /** (participant + distance) mod n. */
    int after(int participant, int distance) {
        int sum = participant + distance;
        return sum < participants ? sum : sum - participants;
    }

    /** (participant - distance) mod n. */
    int before(int participant, int distance) {
        int difference = participant - distance;
        return difference < 0 ? difference + participants : difference;
    }

    /** Counts and traces one message that {@code from} has just posted. */
    void sent(int from, int to, int step, int chunk, long offsetBytes, long bytes) {
        if (bytes > 0 && operation.rank(from) != operation.rank(to)) {
            operation.countSent(from, to, bytes);
        }
        StepTrace trace = operation.trace(from);
        if (trace != null) {
            trace.sent(operation, step, from, to, chunk, offsetBytes, bytes);
        }
    }

    /** In how many pieces the longest block goes, once the algorithm has set it. */
    long pieces() {
        return pieces;
    }

    /** Sets the size of the longest block. */
    void cut(long longestBlockBytes) {
        pieces = (longestBlockBytes + pieceBytes - 1) / pieceBytes;
    }

    /**
     * The size of a block: one of the layout's; without one the operation's count, or for
     * all-reduce, which has no blocks of its own, the n-th part of it, the first blocks being one
     * element longer if n does not divide it.
     */
    long blockBytes(BlockLayout layout, int block) {
        long elements =
                layout != null
                        ? layout.countElements(block)
                        : blockElements + (block < longerBlocks ? 1 : 0);
        return elements * elementBytes;
    }

    /** Where a block starts, in bytes. */
    long blockOffsetBytes(BlockLayout layout, int block) {
        long elements =
                layout != null
                        ? layout.offsetElements(block)
                        : blockElements * block + Math.min(block, longerBlocks);
        return elements * elementBytes;
    }

    /** The size of a piece of a block of a given size; 0 beyond its end. */
    long pieceBytes(long piece, long blockBytes) {
        return Math.max(0, Math.min(pieceBytes, blockBytes - piece * pieceBytes));
    }
}
