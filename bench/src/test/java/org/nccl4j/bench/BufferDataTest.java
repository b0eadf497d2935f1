package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;

final class BufferDataTest {

    /** Several parts of a parallel job, and an incomplete block at the end. */
    private static final long ELEMENTS = 300_001;

    private static final Duration TIMEOUT = Duration.ofSeconds(20);

    @ParameterizedTest
    @EnumSource(ElementType.class)
    void whatIsWrittenIsFoundAndOneChangeIsCounted(ElementType type) throws InterruptedException {
        int width = type.widthBytes();
        try (Arena arena = Arena.ofShared();
                AllCores cores = new AllCores();
                BufferData data = new BufferData(cores, TIMEOUT)) {
            MemorySegment memory = arena.allocate((ELEMENTS + 2) * width);
            memory.fill((byte) 0x5a);
            Content content = ReductionData.of(type.dataType(), RedOp.SUM, 3, 5).input(1);
            DeviceBuffer buffer = DeviceBuffer.wrap(memory);
            List<BufferData.Place> places =
                    List.of(new BufferData.Place(buffer, new Span(1, ELEMENTS, content, 17)));
            data.write(places, type);
            assertThat(data.countWrong(places, type, 0)).containsExactly(0);
            for (int i = 0; i < width; i++) {
                assertThat(memory.get(ValueLayout.JAVA_BYTE, i)).isEqualTo((byte) 0x5a);
                long behind = (ELEMENTS + 1) * width + i;
                assertThat(memory.get(ValueLayout.JAVA_BYTE, behind)).isEqualTo((byte) 0x5a);
            }
            data.corrupt(buffer, 1, width);
            data.corrupt(buffer, ELEMENTS, width);
            assertThat(data.countWrong(places, type, 2)).containsExactly(2);
            data.corrupt(buffer, 0, width);
            data.corrupt(buffer, ELEMENTS + 1, width);
            assertThat(data.countWrong(places, type, 2)).containsExactly(2);
        }
    }

    @ParameterizedTest
    @EnumSource(ElementType.class)
    void memoryThatJavaCannotReadIsWrittenAndComparedThroughPinnedMemory(ElementType type)
            throws InterruptedException {
        OpaqueBackend backend = new OpaqueBackend(Backends.named("cpu"));
        int width = type.widthBytes();
        List<BufferData.Place> places = new ArrayList<>();
        List<DeviceBuffer> buffers = new ArrayList<>();
        Content content = ReductionData.of(type.dataType(), RedOp.SUM, 3, 5).input(1);
        try (AllCores cores = new AllCores();
                BufferData data = new BufferData(cores, TIMEOUT)) {
            for (int rank = 0; rank < 3; rank++) {
                Device device = backend.device(rank);
                DeviceBuffer buffer = device.allocate((ELEMENTS + 300) * width);
                assertThat(buffer.isHostAccessible()).isFalse();
                buffers.add(buffer);
                places.add(new BufferData.Place(buffer, new Span(1, ELEMENTS, content, 17)));
                places.add(
                        new BufferData.Place(
                                buffer, new Span(ELEMENTS + 1, 298, Content.ZEROS, 0)));
                places.add(
                        new BufferData.Place(
                                buffer, new Span(ELEMENTS + 299, 0, Content.ZEROS, 0)));
            }
            data.write(places, type);
            assertThat(data.countWrong(places, type, 0)).hasSize(9).containsOnly(0);
            data.corrupt(buffers.get(1), 1, width);
            data.corrupt(buffers.get(1), ELEMENTS, width);
            data.corrupt(buffers.get(2), ELEMENTS + 298, width);
            // Outside of all places.
            data.corrupt(buffers.get(0), 0, width);
            data.corrupt(buffers.get(0), ELEMENTS + 299, width);
            assertThat(data.countWrong(places, type, 2)).containsExactly(0, 0, 0, 2, 0, 0, 0, 1, 0);
            assertThat(backend.pinnedBytes).hasPositiveValue();
        } finally {
            buffers.forEach(DeviceBuffer::close);
        }
        assertThat(backend.pinnedBytes).hasValue(0);
        assertThat(backend.openStreams).hasValue(0);
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
