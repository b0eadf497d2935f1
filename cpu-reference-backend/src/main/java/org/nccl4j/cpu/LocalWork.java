package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.cpu.Engine.Progress;

/** A stream's own copy or fill, in pieces. Guarded as {@link Work}; used again and again. */
final class LocalWork extends Work implements Engine.Pieces {
    private static final long PIECE_BYTES = 256 << 10;

    private final CpuStream stream;
    private DeviceBuffer source;
    private DeviceBuffer destination;
    private MemorySegment from;
    private MemorySegment to;
    private long sizeBytes;
    private long movedBytes;
    private byte value;

    LocalWork(CpuStream stream) {
        super(1);
        this.stream = stream;
    }

    /** Takes over what was called; a null source means fill. Lock held. */
    void describe(DeviceBuffer newSource, DeviceBuffer newDestination, long bytes, byte newValue) {
        from = newSource == null ? null : newSource.hostSegment();
        to = newDestination.hostSegment();
        CpuMemory.use(newSource, newDestination);
        source = newSource;
        destination = newDestination;
        sizeBytes = bytes;
        movedBytes = 0;
        value = newValue;
        renew();
    }

    CpuStream stream() {
        return stream;
    }

    void releaseBuffers() {
        CpuMemory.unuse(source, scheduler());
        CpuMemory.unuse(destination, scheduler());
        source = null;
        destination = null;
        from = null;
        to = null;
    }

    /** For messages. */
    String describe() {
        return source == null
                ? "fill of " + sizeBytes + " bytes"
                : "copy of " + sizeBytes + " bytes";
    }

    @Override
    Scheduler scheduler() {
        return stream.scheduler();
    }

    @Override
    long sizeBytes() {
        return sizeBytes;
    }

    @Override
    long steps() {
        return 1;
    }

    @Override
    void gather() {}

    @Override
    Engine.Pieces begin() {
        return this;
    }

    @Override
    public int shares() {
        return 1;
    }

    @Override
    public Progress progress(int share) {
        long piece = Math.min(PIECE_BYTES, sizeBytes - movedBytes);
        if (from != null) {
            MemorySegment.copy(from, movedBytes, to, movedBytes, piece);
        } else if (movedBytes > 0) {
            // More of the same: a slice to be filled would be an object for each piece.
            MemorySegment.copy(to, 0, to, movedBytes, piece);
        } else {
            fillFirst(piece);
        }
        movedBytes += piece;
        return movedBytes == sizeBytes ? Progress.DONE : Progress.ADVANCED;
    }

    /** Fills the start: what is filled already is copied behind itself until it is enough. */
    private void fillFirst(long piece) {
        to.set(ValueLayout.JAVA_BYTE, 0, value);
        long filled = 1;
        while (filled < piece) {
            long more = Math.min(filled, piece - filled);
            MemorySegment.copy(to, 0, to, filled, more);
            filled += more;
        }
    }

    @Override
    void end() {}

    @Override
    void broke(int share, Throwable failure) {
        try {
            CollectiveException cause =
                    new InvalidArgumentException(
                            describe()
                                    + " on "
                                    + stream
                                    + " failed: "
                                    + failure
                                    + "; keep the memory of both buffers open until the stream is"
                                    + " synchronized",
                            failure);
            stream.remember(cause);
        } catch (OutOfMemoryError | StackOverflowError e) {
            stream.rememberWithoutWords(e);
        }
    }

    @Override
    void brokeWithoutWords(Throwable failure) {
        stream.rememberWithoutWords(failure);
    }

    @Override
    boolean usesClosedArena() {
        return isClosed(from) || isClosed(to);
    }

    @Override
    void completed() {
        scheduler().completed(this);
    }

    @Override
    void givenUp() {
        throw new IllegalStateException("a copy or fill is never given up");
    }

    @Override
    void unused() {
        stream.giveBack(this);
    }
}
