package org.nccl4j.bench;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;

/**
 * Writes and compares what is in buffers, on all cores, a block at a time: directly where Java can
 * read the memory, elsewhere through pinned memory, piece by piece. The one place where the
 * benchmark reaches into buffers.
 *
 * <p>Thread safety: one thread at a time.
 */
final class BufferData implements AutoCloseable {

    /** Elements generated at a time: their 64-bit form stays in the first-level cache. */
    private static final int BLOCK = Mixer.BLOCK;

    /** Elements per part of a parallel job: enough to pay for handing it out. */
    private static final int PART = 1 << 17;

    /** Elements of a job that is over before another core has begun. */
    private static final long SMALL = 1 << 13;

    /** Bytes of a piece of pinned memory: a part of the widest type. */
    private static final long PIECE_BYTES = 8L * PART;

    /** Lanes of all devices together: pinned memory is taken from the whole machine. */
    private static final int MOST_LANES = 32;

    private static final ValueLayout.OfShort SHORT = ValueLayout.JAVA_SHORT_UNALIGNED;
    private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED;
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;

    /**
     * A span of a buffer.
     *
     * @param buffer the buffer; the span's offset counts from its start
     */
    record Place(DeviceBuffer buffer, Span span) {

        /** The memory that the span fills. */
        private DeviceBuffer memory(int width) {
            return buffer.slice(span.offset() * width, span.count() * width);
        }
    }

    /**
     * A share of a place that is done in one go.
     *
     * @param of the number of the place
     */
    private record Part(int of, Place place) {}

    /** What is done with the parts of one device, by one lane among several. */
    @FunctionalInterface
    private interface LaneWork {
        void run(StagingLane lane, PartQueue parts);
    }

    /** Parts that lanes share. */
    private record PartQueue(List<Part> parts, AtomicInteger next) {

        /** The next part, or null if none is left or the thread is to end. */
        Part take() {
            int index = next.getAndIncrement();
            return index < parts.size() && !Thread.currentThread().isInterrupted()
                    ? parts.get(index)
                    : null;
        }

        boolean isEmpty() {
            return next.get() >= parts.size();
        }
    }

    private final AllCores cores;
    private final Duration copyTimeout;
    private final Map<Device, List<StagingLane>> lanes = new HashMap<>();

    /**
     * @param copyTimeout how long a copy of a piece may take
     */
    BufferData(AllCores cores, Duration copyTimeout) {
        this.cores = cores;
        this.copyTimeout = copyTimeout;
    }

    /**
     * Writes the content of every place. Places must not overlap.
     *
     * @throws CollectiveException if a copy to a device fails
     */
    void write(List<Place> places, ElementType type) throws InterruptedException {
        int width = type.widthBytes();
        onEvery(
                places,
                part -> write(part.place(), width),
                (lane, parts) -> writeStaged(lane, parts, width));
    }

    /**
     * Compares the content of every place with what is there.
     *
     * @param toleranceUnits by how many units in the last place an element may be off
     * @return the number of elements that are off by more, per place
     * @throws CollectiveException if a copy from a device fails
     */
    long[] countWrong(List<Place> places, ElementType type, long toleranceUnits)
            throws InterruptedException {
        int width = type.widthBytes();
        AtomicLongArray wrong = new AtomicLongArray(places.size());
        onEvery(
                places,
                part -> {
                    Place place = part.place();
                    MemorySegment memory = place.buffer().hostSegment();
                    long first = place.span().offset();
                    wrong.addAndGet(
                            part.of(),
                            countWrong(memory, first, place.span(), width, toleranceUnits));
                },
                (lane, parts) -> countStaged(lane, parts, width, toleranceUnits, wrong));
        return IntStream.range(0, places.size()).mapToLong(wrong::get).toArray();
    }

    /** Makes one element wrong by more than any tolerance. */
    void corrupt(DeviceBuffer buffer, long element, int widthBytes) {
        DeviceBuffer one = buffer.slice(element * widthBytes, widthBytes);
        if (one.isHostAccessible()) {
            flip(one.hostSegment());
            return;
        }
        StagingLane lane = lanes(one.device(), 1).getFirst();
        lane.turn();
        lane.download(one);
        flip(lane.await());
        lane.upload(one);
        lane.drain();
    }

    private static void flip(MemorySegment memory) {
        byte value = memory.get(ValueLayout.JAVA_BYTE, 0);
        memory.set(ValueLayout.JAVA_BYTE, 0, (byte) (value ^ 0x10));
    }

    /** Runs a job over all parts: those in host memory one by one, the others lane by lane. */
    private void onEvery(List<Place> places, Consumer<Part> direct, LaneWork staged)
            throws InterruptedException {
        List<Part> inHostMemory = new ArrayList<>();
        Map<Device, List<Part>> onDevices = new LinkedHashMap<>();
        for (int number = 0; number < places.size(); number++) {
            Place place = places.get(number);
            DeviceBuffer buffer = place.buffer();
            List<Part> parts =
                    place.span().count() == 0 || buffer.isHostAccessible()
                            ? inHostMemory
                            : onDevices.computeIfAbsent(
                                    buffer.device(), device -> new ArrayList<>());
            divide(number, place, parts);
        }
        long elements = 0;
        for (Part part : inHostMemory) {
            elements += part.place().span().count();
        }
        if (elements <= SMALL) {
            inHostMemory.forEach(direct);
        } else {
            cores.run(inHostMemory.size(), index -> direct.accept(inHostMemory.get(index)));
        }
        if (!onDevices.isEmpty()) {
            runStaged(onDevices, staged);
        }
    }

    private void runStaged(Map<Device, List<Part>> onDevices, LaneWork work)
            throws InterruptedException {
        int lanesEach = Math.max(1, Math.min(cores.count(), MOST_LANES) / onDevices.size());
        List<Runnable> jobs = new ArrayList<>();
        // The first lane of every device before the second of any, so that all devices are busy.
        List<PartQueue> queues = new ArrayList<>();
        for (List<Part> parts : onDevices.values()) {
            queues.add(new PartQueue(parts, new AtomicInteger()));
        }
        for (int number = 0; number < lanesEach; number++) {
            int device = 0;
            for (Device each : onDevices.keySet()) {
                PartQueue queue = queues.get(device++);
                if (number < queue.parts().size()) {
                    StagingLane lane = lanes(each, lanesEach).get(number);
                    jobs.add(() -> {
                        // A lane that comes too late need not allocate.
                        if (!queue.isEmpty()) {
                            work.run(lane, queue);
                        }
                    });
                }
            }
        }
        cores.run(jobs.size(), index -> jobs.get(index).run());
    }

    private List<StagingLane> lanes(Device device, int count) {
        List<StagingLane> ofDevice = lanes.computeIfAbsent(device, any -> new ArrayList<>());
        while (ofDevice.size() < count) {
            ofDevice.add(new StagingLane(device, PIECE_BYTES, copyTimeout));
        }
        return ofDevice;
    }

    private static void divide(int number, Place place, List<Part> parts) {
        Span span = place.span();
        for (long done = 0; done < span.count(); done += PART) {
            long count = Math.min(PART, span.count() - done);
            Span share =
                    new Span(span.offset() + done, count, span.content(), span.firstIndex() + done);
            parts.add(new Part(number, new Place(place.buffer(), share)));
        }
    }

    private static void writeStaged(StagingLane lane, PartQueue parts, int width) {
        for (Part part = parts.take(); part != null; part = parts.take()) {
            DeviceBuffer memory = part.place().memory(width);
            Span span = part.place().span();
            lane.turn();
            if (span.content().equals(Content.ZEROS)) {
                lane.clear(memory);
            } else {
                generate(lane.await(), 0, span, width);
                lane.upload(memory);
            }
        }
        lane.drain();
    }

    private static void countStaged(
            StagingLane lane,
            PartQueue parts,
            int width,
            long toleranceUnits,
            AtomicLongArray wrong) {
        Part next = parts.take();
        if (next != null) {
            lane.turn();
            lane.download(next.place().memory(width));
        }
        while (next != null) {
            Part part = next;
            MemorySegment found = lane.await();
            next = parts.take();
            lane.turn();
            if (next != null) {
                lane.download(next.place().memory(width));
            }
            Span span = part.place().span();
            wrong.addAndGet(part.of(), countWrong(found, 0, span, width, toleranceUnits));
        }
    }

    private static void write(Place place, int width) {
        Span span = place.span();
        MemorySegment memory = place.buffer().hostSegment();
        if (span.content().equals(Content.ZEROS)) {
            memory.asSlice(span.offset() * width, span.count() * width).fill((byte) 0);
        } else {
            generate(memory, span.offset(), span, width);
        }
    }

    /** Writes a span's content from an element of memory on. */
    private static void generate(MemorySegment memory, long first, Span span, int width) {
        long[] bits = new long[(int) Math.min(BLOCK, span.count())];
        for (long done = 0; done < span.count(); done += BLOCK) {
            int count = (int) Math.min(BLOCK, span.count() - done);
            span.content().generate(span.firstIndex() + done, bits, count);
            store(memory, (first + done) * width, width, bits, count);
        }
    }

    /** Compares a span's content with what is in memory from an element on. */
    private static long countWrong(
            MemorySegment memory, long first, Span span, int width, long toleranceUnits) {
        long[] bits = new long[(int) Math.min(BLOCK, span.count())];
        long wrong = 0;
        for (long done = 0; done < span.count(); done += BLOCK) {
            int count = (int) Math.min(BLOCK, span.count() - done);
            span.content().generate(span.firstIndex() + done, bits, count);
            long offset = (first + done) * width;
            wrong += countWrong(memory, offset, width, bits, count, toleranceUnits);
        }
        return wrong;
    }

    @Override
    public void close() {
        lanes.values().forEach(ofDevice -> ofDevice.forEach(StagingLane::close));
        lanes.clear();
    }

    private static void store(
            MemorySegment memory, long offset, int width, long[] bits, int count) {
        switch (width) {
            case 1 -> {
                for (int i = 0; i < count; i++) {
                    memory.set(ValueLayout.JAVA_BYTE, offset + i, (byte) bits[i]);
                }
            }
            case 2 -> {
                for (int i = 0; i < count; i++) {
                    memory.set(SHORT, offset + 2L * i, (short) bits[i]);
                }
            }
            case 4 -> {
                for (int i = 0; i < count; i++) {
                    memory.set(INT, offset + 4L * i, (int) bits[i]);
                }
            }
            default -> {
                for (int i = 0; i < count; i++) {
                    memory.set(LONG, offset + 8L * i, bits[i]);
                }
            }
        }
    }

    private static long countWrong(
            MemorySegment memory, long offset, int width, long[] bits, int count, long tolerance) {
        long wrong = 0;
        switch (width) {
            case 1 -> {
                for (int i = 0; i < count; i++) {
                    long found = memory.get(ValueLayout.JAVA_BYTE, offset + i) & 0xffL;
                    wrong += isOff(found, bits[i] & 0xffL, tolerance) ? 1 : 0;
                }
            }
            case 2 -> {
                for (int i = 0; i < count; i++) {
                    long found = memory.get(SHORT, offset + 2L * i) & 0xffffL;
                    wrong += isOff(found, bits[i] & 0xffffL, tolerance) ? 1 : 0;
                }
            }
            case 4 -> {
                for (int i = 0; i < count; i++) {
                    long found = memory.get(INT, offset + 4L * i) & 0xffff_ffffL;
                    wrong += isOff(found, bits[i] & 0xffff_ffffL, tolerance) ? 1 : 0;
                }
            }
            default -> {
                for (int i = 0; i < count; i++) {
                    wrong += isOff(memory.get(LONG, offset + 8L * i), bits[i], tolerance) ? 1 : 0;
                }
            }
        }
        return wrong;
    }

    /** Compares stored bits as unsigned numbers: -0 is far from +0, and NaN from every number. */
    static boolean isOff(long found, long expected, long toleranceUnits) {
        long distance =
                Long.compareUnsigned(found, expected) >= 0 ? found - expected : expected - found;
        return Long.compareUnsigned(distance, toleranceUnits) > 0;
    }
}
