package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;

final class BufferDataTest {

    /** Several parts of a parallel job, and an incomplete block at the end. */
    private static final long ELEMENTS = 300_001;

    @ParameterizedTest
    @EnumSource(ElementType.class)
    void whatIsWrittenIsFoundAndOneChangeIsCounted(ElementType type) throws InterruptedException {
        int width = type.widthBytes();
        try (Arena arena = Arena.ofShared();
                AllCores cores = new AllCores()) {
            BufferData data = new BufferData(cores);
            MemorySegment memory = arena.allocate((ELEMENTS + 2) * width);
            memory.fill((byte) 0x5a);
            Content content = ReductionData.of(type.dataType(), RedOp.SUM, 3, 5).input(1);
            DeviceBuffer buffer = DeviceBuffer.wrap(memory);
            List<BufferData.Place> places =
                    List.of(new BufferData.Place(buffer, new Span(1, ELEMENTS, content, 17)));
            data.write(places, type);
            assertThat(data.countWrong(places, type, 0)).isZero();
            for (int i = 0; i < width; i++) {
                assertThat(memory.get(ValueLayout.JAVA_BYTE, i)).isEqualTo((byte) 0x5a);
                long behind = (ELEMENTS + 1) * width + i;
                assertThat(memory.get(ValueLayout.JAVA_BYTE, behind)).isEqualTo((byte) 0x5a);
            }
            BufferData.corrupt(buffer, 1, width);
            BufferData.corrupt(buffer, ELEMENTS, width);
            assertThat(data.countWrong(places, type, 2)).isEqualTo(2);
            BufferData.corrupt(buffer, 0, width);
            BufferData.corrupt(buffer, ELEMENTS + 1, width);
            assertThat(data.countWrong(places, type, 2)).isEqualTo(2);
        }
    }

    @Test
    void comparesStoredBits() {
        long one = DataType.FLOAT32.bitsOf(1.0);
        assertThat(BufferData.isOff(one + 2, one, 2)).isFalse();
        assertThat(BufferData.isOff(one - 2, one, 2)).isFalse();
        assertThat(BufferData.isOff(one + 3, one, 2)).isTrue();
        assertThat(BufferData.isOff(one - 3, one, 2)).isTrue();
        assertThat(BufferData.isOff(one + 1, one, 0)).isTrue();
        assertThat(BufferData.isOff(0x8000_0000L, 0, 2)).as("-0 for +0").isTrue();
        assertThat(BufferData.isOff(0x7fc0_0000L, one, 2)).as("NaN").isTrue();
        assertThat(BufferData.isOff(-1L, 0, 2)).as("the ends of 64 bits").isTrue();
    }
}
