package org.nccl4j.nccl;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicBoolean;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;

/**
 * Copies and fills. CUDA copies between device memory and pinned memory by itself. Ordinary host
 * memory it would copy through memory of its own, for which the call waits for all earlier work of
 * the stream; so that goes through our {@link Staging} in pieces, each moved by {@link HostWork}
 * when the stream comes to it. Nothing waits, and the host memory is reached by Java alone.
 *
 * <p>Thread safety: by the thread that enqueues on the stream.
 */
final class LocalWork {
    private LocalWork() {}

    /** Refuses memory that neither Java nor CUDA can reach. */
    static void requireReachable(String operation, DeviceBuffer buffer) {
        if (!buffer.isHostAccessible() && !(buffer.device() instanceof NcclDevice)) {
            throw new InvalidArgumentException(
                    operation
                            + ": "
                            + buffer
                            + " is device memory of another backend; nothing was enqueued");
        }
    }

    /** Whether CUDA's copies take it without waiting. */
    private static boolean isDirect(DeviceBuffer buffer) {
        return !buffer.isHostAccessible() || NcclMemory.isPinned(buffer);
    }

    /** Whether it was wrapped: an address on a device may be pinned memory of the host then. */
    private static boolean isOfOthers(DeviceBuffer buffer) {
        return buffer.owner() == null && !buffer.isHostAccessible();
    }

    static void copy(
            NcclStream stream, DeviceBuffer source, DeviceBuffer destination, long sizeBytes) {
        String doing = "copying " + sizeBytes + " bytes on " + stream;
        boolean fromHost = source.isHostAccessible();
        boolean toHost = destination.isHostAccessible();
        if (fromHost && toHost) {
            MemorySegment from = source.hostSegment();
            MemorySegment to = destination.hostSegment();
            HostWork.enqueue(
                    stream.address(),
                    stream,
                    doing,
                    new AtomicBoolean(),
                    () -> MemorySegment.copy(from, 0, to, 0, sizeBytes));
        } else if (!isDirect(source)) {
            upload(stream, source.hostSegment(), destination.address(), sizeBytes, doing);
        } else if (!isDirect(destination)) {
            download(stream, source.address(), destination.hostSegment(), sizeBytes, doing);
        } else if (!fromHost
                && !toHost
                && !isOfOthers(source)
                && !isOfOthers(destination)
                && !source.device().equals(destination.device())) {
            CudaRuntime.copyPeerAsync(
                    destination.address(),
                    destination.device().ordinal(),
                    source.address(),
                    source.device().ordinal(),
                    sizeBytes,
                    stream.address(),
                    doing);
        } else {
            CudaRuntime.copyAsync(
                    destination.address(), source.address(), sizeBytes, stream.address(), doing);
        }
    }

    private static void upload(
            NcclStream stream,
            MemorySegment source,
            long destination,
            long sizeBytes,
            String doing) {
        Staging.Slot slot = stream.device().staging().take(stream);
        AtomicBoolean broken = new AtomicBoolean();
        for (long done = 0; done < sizeBytes; done += Staging.SLOT_BYTES) {
            long offset = done;
            long piece = Math.min(Staging.SLOT_BYTES, sizeBytes - done);
            HostWork.enqueue(
                    stream.address(),
                    stream,
                    doing,
                    broken,
                    () -> MemorySegment.copy(source, offset, slot.memory, 0, piece));
            CudaRuntime.copyAsync(
                    destination + offset, slot.address, piece, stream.address(), doing);
        }
    }

    private static void download(
            NcclStream stream,
            long source,
            MemorySegment destination,
            long sizeBytes,
            String doing) {
        Staging.Slot slot = stream.device().staging().take(stream);
        AtomicBoolean broken = new AtomicBoolean();
        for (long done = 0; done < sizeBytes; done += Staging.SLOT_BYTES) {
            long offset = done;
            long piece = Math.min(Staging.SLOT_BYTES, sizeBytes - done);
            CudaRuntime.copyAsync(slot.address, source + offset, piece, stream.address(), doing);
            HostWork.enqueue(
                    stream.address(),
                    stream,
                    doing,
                    broken,
                    () -> MemorySegment.copy(slot.memory, 0, destination, offset, piece));
        }
    }

    static void fill(NcclStream stream, DeviceBuffer destination, byte value) {
        long sizeBytes = destination.sizeBytes();
        String doing = "filling " + sizeBytes + " bytes on " + stream;
        if (destination.isHostAccessible()) {
            MemorySegment memory = destination.hostSegment();
            HostWork.enqueue(
                    stream.address(), stream, doing, new AtomicBoolean(), () -> memory.fill(value));
        } else if (destination.device().equals(stream.device())) {
            CudaRuntime.fillAsync(destination.address(), value, sizeBytes, stream.address(), doing);
        } else {
            fillElsewhere(stream, (NcclDevice) destination.device(), destination, value, doing);
        }
    }

    /** A device fills its own memory only, so its side stream does it in this stream's stead. */
    private static void fillElsewhere(
            NcclStream stream,
            NcclDevice device,
            DeviceBuffer destination,
            byte value,
            String doing) {
        EventPool here = stream.device().events();
        EventPool there = device.events();
        device.retain();
        long before = 0;
        long after = 0;
        try {
            before = here.take(false);
            after = there.take(false);
            long side = device.sideStream();
            stream.recordRaw(before, doing);
            long waited = before;
            long recorded = after;
            device.run(() -> {
                CudaRuntime.streamWaitEvent(side, waited, doing);
                CudaRuntime.fillAsync(
                        destination.address(), value, destination.sizeBytes(), side, doing);
                CudaRuntime.recordEvent(recorded, side, doing);
            });
            stream.waitRaw(after);
        } finally {
            if (before != 0) {
                here.giveBack(before, false);
            }
            if (after != 0) {
                there.giveBack(after, false);
            }
            device.release();
        }
    }
}
