package org.nccl4j.nccl;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.concurrent.CompletionStage;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;

/** A CUDA stream. Thread safety: as {@link DeviceStream}. */
final class NcclStream implements DeviceStream {
    /** The stream, or a refusal of what is null or of another backend. */
    static NcclStream of(String operation, DeviceStream stream) {
        if (stream instanceof NcclStream mine) {
            return mine;
        }
        throw new InvalidArgumentException(
                operation
                        + ": the stream is "
                        + (stream == null ? "null" : "of another backend")
                        + "; make one with device().createStream(); nothing was enqueued");
    }

    // ---- for communicators

    /** The {@code cudaStream_t}. */
    MemorySegment handle() {
        return MemorySegment.ofAddress(address());
    }

    /** The {@code cudaStream_t} as a number. */
    long address() {
        throw new UnsupportedOperationException();
    }

    /** Whether others own it. */
    boolean isForeign() {
        throw new UnsupportedOperationException();
    }

    void requireOpen(String operation) {
        throw new UnsupportedOperationException(operation);
    }

    /** An operation has been enqueued here, by this thread. */
    void enqueued(NcclCommunicator communicator) {
        throw new UnsupportedOperationException(communicator.describe());
    }

    /** How many tickets have been given out. */
    long issued() {
        throw new UnsupportedOperationException();
    }

    /** The last ticket that is known to be over. */
    long passed() {
        throw new UnsupportedOperationException();
    }

    /** A launch begins that NCCL goes on with after the call: nothing may touch the stream. */
    void launchBegins() {
        throw new UnsupportedOperationException();
    }

    void launchEnds() {
        throw new UnsupportedOperationException();
    }

    /** Looks at how far it is, and asks for the next marker; by the watchdog only. */
    void sample(long nowNanos) {
        throw new UnsupportedOperationException(Long.toString(nowNanos));
    }

    /** Since when the oldest unpassed ticket has headed the stream, or -1 if it is idle. */
    long busySinceNanos(long nowNanos) {
        throw new UnsupportedOperationException(Long.toString(nowNanos));
    }

    boolean hasWorkOf(NcclCommunicator communicator) {
        throw new UnsupportedOperationException(communicator.describe());
    }

    /** Remembers why a communicator's work here has been given up. */
    void fail(CommunicatorFailure failure) {
        throw new UnsupportedOperationException(failure.toString());
    }

    // ---- DeviceStream

    @Override
    public NcclDevice device() {
        throw new UnsupportedOperationException();
    }

    @Override
    public boolean poll() {
        throw new UnsupportedOperationException();
    }

    @Override
    public void synchronize(Duration timeout) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void record(DeviceEvent event) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void waitFor(DeviceEvent event) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void copy(DeviceBuffer source, DeviceBuffer destination, long sizeBytes) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void fill(DeviceBuffer destination, byte value) {
        throw new UnsupportedOperationException();
    }

    @Override
    public CompletionStage<Void> completion() {
        throw new UnsupportedOperationException();
    }

    @Override
    public void close() {
        throw new UnsupportedOperationException();
    }
}
