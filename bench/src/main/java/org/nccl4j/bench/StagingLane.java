package org.nccl4j.bench;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;

/**
 * A way between Java and one device's memory: two pieces of pinned host memory with a stream each,
 * so that one is copied while the other is filled or compared. Takes no memory before its first
 * use.
 *
 * <p>Thread safety: one thread at a time; any other may close it.
 */
final class StagingLane implements AutoCloseable {

    private static final int PIECES = 2;

    /** A piece and the stream that all its copies are on. */
    private record Piece(DeviceBuffer pinned, DeviceStream stream) {}

    private final Device device;
    private final long pieceBytes;
    private final Duration timeout;
    private final List<Piece> pieces = new ArrayList<>(PIECES);
    private int current;

    /**
     * @param pieceBytes the size of each piece
     * @param timeout how long a copy may take
     */
    StagingLane(Device device, long pieceBytes, Duration timeout) {
        this.device = device;
        this.pieceBytes = pieceBytes;
        this.timeout = timeout;
    }

    /** Turns to the other piece, which becomes the current one. */
    synchronized void turn() {
        while (pieces.size() < PIECES) {
            pieces.add(new Piece(device.allocateHost(pieceBytes), device.createStream()));
        }
        current = (current + 1) % PIECES;
    }

    /** The current piece, once its last copy is over. */
    MemorySegment await() {
        Piece piece = pieces.get(current);
        piece.stream().synchronize(timeout);
        return piece.pinned().hostSegment();
    }

    /** Starts a copy of the current piece's first bytes to the device. */
    void upload(DeviceBuffer destination) {
        Piece piece = pieces.get(current);
        piece.stream().copy(piece.pinned(), destination, destination.sizeBytes());
    }

    /** Starts a copy from the device to the current piece. */
    void download(DeviceBuffer source) {
        Piece piece = pieces.get(current);
        piece.stream().copy(source, piece.pinned(), source.sizeBytes());
    }

    /** Starts to clear memory of the device, on the current piece's stream. */
    void clear(DeviceBuffer destination) {
        pieces.get(current).stream().fill(destination, (byte) 0);
    }

    /** Waits until all copies are over. */
    void drain() {
        for (Piece piece : pieces) {
            piece.stream().synchronize(timeout);
        }
    }

    /** Frees the pieces; a job that was given up may still be between two of them. */
    @Override
    public synchronized void close() {
        for (Piece piece : pieces) {
            piece.stream().close();
            piece.pinned().close();
        }
    }
}
