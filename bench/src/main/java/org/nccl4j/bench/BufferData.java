package org.nccl4j.bench;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import org.nccl4j.collectives.DeviceBuffer;

/**
 * Writes and compares what is in buffers, on all cores, a block at a time. The one place where the
 * benchmark reaches into buffers: a backend whose memory Java cannot read needs a copy in {@link
 * #store} and {@link #countWrong} and nothing else.
 *
 * <p>Thread safety: as {@link AllCores}.
 */
final class BufferData {

    /** Elements generated at a time: their 64-bit form stays in the first-level cache. */
    private static final int BLOCK = Mixer.BLOCK;

    /** Elements per part of a parallel job: enough to pay for handing it out. */
    private static final long PART = 1 << 17;

    private static final ValueLayout.OfShort SHORT = ValueLayout.JAVA_SHORT_UNALIGNED;
    private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED;
    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;

    /**
     * A span of a buffer.
     *
     * @param buffer the buffer; the span's offset counts from its start
     */
    record Place(DeviceBuffer buffer, Span span) {}

    private final AllCores cores;

    BufferData(AllCores cores) {
        this.cores = cores;
    }

    /** Writes the content of every place. Places must not overlap. */
    void write(List<Place> places, ElementType type) throws InterruptedException {
        List<Place> parts = parts(places);
        int width = type.widthBytes();
        if (!parts.isEmpty()) {
            cores.sum(
                    parts.size(),
                    index -> {
                        write(parts.get(index), width);
                        return 0;
                    });
        }
    }

    /**
     * Compares the content of every place with what is there.
     *
     * @param toleranceUnits by how many units in the last place an element may be off
     * @return the number of elements that are off by more
     */
    long countWrong(List<Place> places, ElementType type, long toleranceUnits)
            throws InterruptedException {
        List<Place> parts = parts(places);
        int width = type.widthBytes();
        return parts.isEmpty()
                ? 0
                : cores.sum(
                        parts.size(), index -> countWrong(parts.get(index), width, toleranceUnits));
    }

    /** Makes one element wrong by more than any tolerance. */
    static void corrupt(DeviceBuffer buffer, long element, int widthBytes) {
        MemorySegment memory = buffer.hostSegment();
        long offset = element * widthBytes;
        byte value = memory.get(ValueLayout.JAVA_BYTE, offset);
        memory.set(ValueLayout.JAVA_BYTE, offset, (byte) (value ^ 0x10));
    }

    private static List<Place> parts(List<Place> places) {
        List<Place> parts = new ArrayList<>();
        for (Place place : places) {
            Span span = place.span();
            for (long done = 0; done < span.count(); done += PART) {
                long count = Math.min(PART, span.count() - done);
                parts.add(
                        new Place(
                                place.buffer(),
                                new Span(
                                        span.offset() + done,
                                        count,
                                        span.content(),
                                        span.firstIndex() + done)));
            }
        }
        return parts;
    }

    private static void write(Place place, int width) {
        Span span = place.span();
        MemorySegment memory = place.buffer().hostSegment();
        if (span.content().equals(Content.ZEROS)) {
            memory.asSlice(span.offset() * width, span.count() * width).fill((byte) 0);
            return;
        }
        long[] bits = new long[(int) Math.min(BLOCK, span.count())];
        for (long done = 0; done < span.count(); done += BLOCK) {
            int count = (int) Math.min(BLOCK, span.count() - done);
            span.content().generate(span.firstIndex() + done, bits, count);
            store(memory, (span.offset() + done) * width, width, bits, count);
        }
    }

    private static long countWrong(Place place, int width, long toleranceUnits) {
        Span span = place.span();
        MemorySegment memory = place.buffer().hostSegment();
        long[] bits = new long[(int) Math.min(BLOCK, span.count())];
        long wrong = 0;
        for (long done = 0; done < span.count(); done += BLOCK) {
            int count = (int) Math.min(BLOCK, span.count() - done);
            span.content().generate(span.firstIndex() + done, bits, count);
            long offset = (span.offset() + done) * width;
            wrong += countWrong(memory, offset, width, bits, count, toleranceUnits);
        }
        return wrong;
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
