package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.WeakReference;
import java.util.Random;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.nccl.NcclBackend;

/** What a GPU's streams and memory do beyond the contract that all backends share. */
@OnEmulator
final class DeviceTest {
    private final Backend backend = new NcclBackend();
    private final Device first = backend.device(0);
    private final Device second = backend.device(1);

    /** Through ordinary, pinned, device, stream-ordered and another device's memory, and back. */
    @ParameterizedTest
    @ValueSource(ints = {1, 7, 1 << 18, (1 << 18) + 1, 3 << 20})
    void copiesGoBetweenAllKindsOfMemory(int sizeBytes) {
        byte[] contents = new byte[sizeBytes];
        new Random(sizeBytes).nextBytes(contents);
        MemorySegment in = Arena.ofAuto().allocate(sizeBytes);
        MemorySegment between = Arena.ofAuto().allocate(sizeBytes);
        MemorySegment out = Arena.ofAuto().allocate(sizeBytes);
        MemorySegment.copy(contents, 0, in, ValueLayout.JAVA_BYTE, 0, sizeBytes);
        try (DeviceStream stream = first.createStream();
                DeviceBuffer here = first.allocate(sizeBytes);
                DeviceBuffer there = second.allocate(sizeBytes);
                DeviceBuffer back = first.allocate(sizeBytes);
                DeviceBuffer pinned = first.allocateHost(sizeBytes);
                DeviceBuffer ordered = stream.allocate(sizeBytes)) {
            stream.copy(DeviceBuffer.wrap(in), here, sizeBytes);
            stream.copy(here, there, sizeBytes);
            stream.copy(there, back, sizeBytes);
            stream.copy(back, pinned, sizeBytes);
            stream.copy(pinned, ordered, sizeBytes);
            stream.copy(ordered, DeviceBuffer.wrap(between), sizeBytes);
            stream.copy(DeviceBuffer.wrap(between), DeviceBuffer.wrap(out), sizeBytes);
            stream.synchronize(Team.PATIENCE);
        }
        assertThat(out.mismatch(in)).isEqualTo(-1);
    }

    /** An address that others gave for a device's may be pinned memory of the host. */
    @Test
    void copiesTakeWrappedPinnedMemory() {
        MemorySegment out = Arena.ofAuto().allocate(64);
        try (DeviceStream stream = first.createStream();
                DeviceBuffer device = first.allocate(64);
                DeviceBuffer pinned = first.allocateHost(64)) {
            pinned.hostSegment().fill((byte) 7);
            DeviceBuffer wrapped =
                    DeviceBuffer.wrap(first, pinned.hostSegment().address(), 64, pinned);
            stream.copy(wrapped, device, 64);
            stream.fill(wrapped, (byte) 0);
            stream.copy(device, wrapped, 64);
            stream.copy(wrapped, DeviceBuffer.wrap(out), 64);
            stream.synchronize(Team.PATIENCE);
        }
        assertThat(out.toArray(ValueLayout.JAVA_BYTE)).containsOnly(7);
    }

    @Test
    void aStreamFillsMemoryOfAnotherDeviceAndOfTheHost() {
        MemorySegment host = Arena.ofAuto().allocate(100);
        MemorySegment read = Arena.ofAuto().allocate(100);
        try (DeviceStream stream = first.createStream();
                DeviceBuffer there = second.allocate(100)) {
            stream.fill(there, (byte) 0x5a);
            stream.copy(there, DeviceBuffer.wrap(read), 100);
            stream.fill(DeviceBuffer.wrap(host), (byte) 3);
            stream.synchronize(Team.PATIENCE);
        }
        assertThat(read.toArray(ValueLayout.JAVA_BYTE)).containsOnly(0x5a);
        assertThat(host.toArray(ValueLayout.JAVA_BYTE)).containsOnly(3);
    }

    /** The copy waits behind an operation while its memory goes away. */
    @Test
    void anArenaThatIsClosedUnderACopyIsAnExceptionOfTheStream() {
        try (Team team = Team.local(backend, 2, CommunicatorConfig.defaults())) {
            assertThat(team.sum()).isEqualTo(team.expectedSum());
            DeviceBuffer mine = team.buffer(0, 4);
            DeviceBuffer others = team.buffer(1, 4);
            DeviceBuffer destination = team.buffer(0, 64);
            try (Arena arena = Arena.ofShared()) {
                DeviceBuffer source = DeviceBuffer.wrap(arena.allocate(64));
                join(team, 0, mine);
                team.stream(0).copy(source, destination, 64);
            }
            assertThat(team.stream(0).poll()).isFalse();
            join(team, 1, others);

            assertThatThrownBy(() -> team.stream(0).synchronize(Team.PATIENCE))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessageContaining("copying 64 bytes")
                    .hasMessageContaining("keep the memory");
            team.synchronizeAll();
        }
    }

    /** A copy goes in pieces; once its failure has been told, the stream is as good as before. */
    @Test
    void aCopyOfManyPiecesFailsOnce() {
        long sizeBytes = 8 << 20;
        try (Team team = Team.local(backend, 2, CommunicatorConfig.defaults())) {
            assertThat(team.sum()).isEqualTo(team.expectedSum());
            DeviceBuffer mine = team.buffer(0, 4);
            DeviceBuffer others = team.buffer(1, 4);
            DeviceBuffer destination = team.buffer(0, sizeBytes);
            try (Arena arena = Arena.ofShared()) {
                DeviceBuffer source = DeviceBuffer.wrap(arena.allocate(sizeBytes));
                join(team, 0, mine);
                team.stream(0).copy(source, destination, sizeBytes);
            }
            join(team, 1, others);
            assertThatThrownBy(() -> team.stream(0).synchronize(Team.PATIENCE))
                    .isInstanceOf(InvalidArgumentException.class);
            team.stream(0).fill(destination, (byte) 1);
            team.synchronizeAll();
            assertThat(team.stream(0).poll()).isTrue();
        }
    }

    /** What frees wrapped memory may be the cleaner of an object that nobody else refers to. */
    @Test
    void memoryOfOthersStaysReachableUntilTheWorkIsOver() {
        try (Team team = Team.local(backend, 2, CommunicatorConfig.defaults())) {
            assertThat(team.sum()).isEqualTo(team.expectedSum());
            DeviceBuffer mine = team.buffer(0, 4);
            DeviceBuffer others = team.buffer(1, 4);
            WeakReference<Object> source = joinWithWrapped(team, mine.address());
            for (int i = 0; i < 3; i++) {
                System.gc();
            }
            assertThat(source.refersTo(null)).isFalse();

            join(team, 1, others);
            team.synchronizeAll();
            Awaitility.await()
                    .atMost(Team.PATIENCE)
                    .until(() -> {
                        System.gc();
                        return source.refersTo(null);
                    });
        }
    }

    private static WeakReference<Object> joinWithWrapped(Team team, long address) {
        Object source = new Object();
        join(team, 0, DeviceBuffer.wrap(team.communicator(0).device(), address, 4, source));
        return new WeakReference<>(source);
    }

    private static void join(Team team, int rank, DeviceBuffer buffer) {
        team.communicator(rank)
                .allReduce(buffer, buffer, 1, DataType.INT32, ReduceOp.SUM, team.stream(rank));
    }

    /** The legacy default stream belongs to the current device, which is not the second here. */
    @ParameterizedTest
    @ValueSource(longs = {0, 1})
    void theLegacyStreamIsThatOfTheDevice(long handle) {
        MemorySegment read = Arena.ofAuto().allocate(64);
        try (DeviceStream legacy = second.wrapStream(handle);
                DeviceEvent event = second.createEvent();
                DeviceBuffer buffer = second.allocate(64)) {
            legacy.fill(buffer, (byte) 9);
            legacy.copy(buffer, DeviceBuffer.wrap(read), 64);
            legacy.record(event);
            legacy.waitFor(event);
            event.synchronize(Team.PATIENCE);
            legacy.synchronize(Team.PATIENCE);
            assertThat(legacy.poll()).isTrue();
        }
        assertThat(read.toArray(ValueLayout.JAVA_BYTE)).containsOnly(9);
    }

    @Test
    void aHandleThatIsNoStreamOfTheDeviceIsRefused() {
        assertThatThrownBy(() -> first.wrapStream(2))
                .isInstanceOf(UnsupportedException.class)
                .hasMessageContaining("cudaStreamPerThread");
        assertThatThrownBy(() -> first.wrapStream(0x1234560))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageContaining("0x1234560");
    }

    @Test
    void aDeviceTellsWhatItIs() {
        assertThat(first.name()).isNotBlank();
        assertThat(first.busId()).matches("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}");
        assertThat(second.busId()).isNotEqualTo(first.busId());
        Device.Memory memory = first.memory();
        assertThat(memory.freeBytes()).isBetween(1L, memory.totalBytes());
        assertThatThrownBy(() -> backend.device(backend.deviceLimit()))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageContaining("CUDA_VISIBLE_DEVICES");
    }

    @Test
    void timesOfTwoDevicesCannotBeCompared() {
        try (DeviceStream here = first.createStream();
                DeviceStream there = second.createStream();
                DeviceEvent one = first.createEvent();
                DeviceEvent other = second.createEvent()) {
            here.record(one);
            there.record(other);
            one.synchronize(Team.PATIENCE);
            other.synchronize(Team.PATIENCE);
            assertThatThrownBy(() -> other.elapsedSince(one))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessageContaining("clocks");
            // An event may move to another device.
            there.record(one);
            one.synchronize(Team.PATIENCE);
            assertThat(one.elapsedSince(other).isNegative()).isFalse();
        }
    }
}
