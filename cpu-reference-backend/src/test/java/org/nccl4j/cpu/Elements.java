package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.nccl4j.collectives.DataType;

/** Elements of any type in memory, as bits and as numbers. */
final class Elements {
    private Elements() {}

    static long bits(MemorySegment segment, DataType type, long index) {
        long offset = type.bytes(index);
        return switch (type.sizeBytes()) {
            case 1 -> segment.get(ValueLayout.JAVA_BYTE, offset) & 0xffL;
            case 2 -> segment.get(ValueLayout.JAVA_SHORT_UNALIGNED, offset) & 0xffffL;
            case 4 -> segment.get(ValueLayout.JAVA_INT_UNALIGNED, offset) & 0xffff_ffffL;
            default -> segment.get(ValueLayout.JAVA_LONG_UNALIGNED, offset);
        };
    }

    static void setBits(MemorySegment segment, DataType type, long index, long bits) {
        long offset = type.bytes(index);
        switch (type.sizeBytes()) {
            case 1 -> segment.set(ValueLayout.JAVA_BYTE, offset, (byte) bits);
            case 2 -> segment.set(ValueLayout.JAVA_SHORT_UNALIGNED, offset, (short) bits);
            case 4 -> segment.set(ValueLayout.JAVA_INT_UNALIGNED, offset, (int) bits);
            default -> segment.set(ValueLayout.JAVA_LONG_UNALIGNED, offset, bits);
        }
    }

    static double value(MemorySegment segment, DataType type, long index) {
        return type.valueOf(bits(segment, type, index));
    }

    static void setValue(MemorySegment segment, DataType type, long index, double value) {
        setBits(segment, type, index, type.bitsOf(value));
    }
}
