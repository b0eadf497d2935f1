package org.nccl4j.collectives;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.atomic.AtomicInteger;
import org.assertj.core.api.AbstractThrowableAssert;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.nccl4j.collectives.spi.BufferOwner;

final class DeviceBufferTest {
    private static final Device DEVICE = new FakeDevice(3);

    /** Counts how often it was asked to free. */
    private static final class CountingOwner extends BufferOwner {
        final AtomicInteger released = new AtomicInteger();

        @Override
        public void release() {
            released.incrementAndGet();
        }
    }

    @Test
    void segmentsOfSharedGlobalAndAutomaticArenasAreWrapped() {
        try (Arena shared = Arena.ofShared()) {
            for (Arena arena : new Arena[] {shared, Arena.global(), Arena.ofAuto()}) {
                MemorySegment segment = arena.allocate(64, 8);
                DeviceBuffer buffer = DeviceBuffer.wrap(segment);

                assertThat(buffer.address()).isEqualTo(segment.address());
                assertThat(buffer.sizeBytes()).isEqualTo(64);
                assertThat(buffer.device()).isNull();
                assertThat(buffer.owner()).isNull();
                assertThat(buffer.isHostAccessible()).isTrue();
                assertThat(buffer.isReadOnly()).isFalse();
                buffer.hostSegment().set(ValueLayout.JAVA_LONG, 8, 42);
                assertThat(segment.get(ValueLayout.JAVA_LONG, 8)).isEqualTo(42);
            }
        }
    }

    @Test
    void heapMemoryIsRefusedWithAdvice() {
        refused(() -> DeviceBuffer.wrap(MemorySegment.ofArray(new float[4])))
                .hasMessage(
                        "a heap segment cannot be used by asynchronous work: the garbage collector"
                                + " may move it; copy it to a segment of Arena.ofAuto() or"
                                + " Arena.ofShared() and wrap that");
        refused(() -> DeviceBuffer.wrap(ByteBuffer.allocate(12)))
                .hasMessage(
                        "a heap ByteBuffer cannot be used by asynchronous work; use"
                                + " ByteBuffer.allocateDirect(12)");
    }

    @Test
    void confinedMemoryIsRefusedWithAdviceAlsoAsAByteBuffer() {
        try (Arena confined = Arena.ofConfined()) {
            MemorySegment segment = confined.allocate(16);

            refused(() -> DeviceBuffer.wrap(segment))
                    .hasMessage(
                            "a segment of a confined arena cannot be used by other threads, and"
                                    + " asynchronous work runs on them; allocate it from"
                                    + " Arena.ofAuto(), Arena.ofShared() or Arena.global()");
            refused(() -> DeviceBuffer.wrap(segment.asByteBuffer()))
                    .hasMessageStartingWith("a segment of a confined arena");
        }
    }

    @Test
    void memoryOfAClosedArenaIsRefused() {
        Arena arena = Arena.ofShared();
        MemorySegment segment = arena.allocate(16);
        arena.close();

        refused(() -> DeviceBuffer.wrap(segment))
                .hasMessage("the arena of this segment of 16 bytes is closed");
    }

    @Test
    void nullIsRefused() {
        String advice = "cannot wrap null; DeviceBuffer.EMPTY stands for no memory";
        refused(() -> DeviceBuffer.wrap((MemorySegment) null)).hasMessage(advice);
        refused(() -> DeviceBuffer.wrap((ByteBuffer) null)).hasMessage(advice);
        refused(() -> DeviceBuffer.wrap(null, 1, 1))
                .hasMessage(
                        "an address needs the device that it belongs to, got null; for host memory"
                                + " wrap a MemorySegment");
    }

    @Test
    void aByteBufferIsTakenFromPositionToLimit() {
        ByteBuffer whole = ByteBuffer.allocateDirect(100);
        long start = MemorySegment.ofBuffer(whole).address();

        DeviceBuffer window = DeviceBuffer.wrap(whole.position(10).limit(30));
        DeviceBuffer slice = DeviceBuffer.wrap(whole.clear().position(40).slice().limit(5));
        DeviceBuffer readOnly = DeviceBuffer.wrap(whole.clear().asReadOnlyBuffer());

        assertThat(window.address()).isEqualTo(start + 10);
        assertThat(window.sizeBytes()).isEqualTo(20);
        assertThat(slice.address()).isEqualTo(start + 40);
        assertThat(slice.sizeBytes()).isEqualTo(5);
        assertThat(readOnly.isReadOnly()).isTrue();
        window.hostSegment().set(ValueLayout.JAVA_BYTE, 3, (byte) 7);
        assertThat(whole.get(13)).isEqualTo((byte) 7);
    }

    @Test
    void aMappedSegmentIsBroughtToThePlainClassAndKeepsItsArena(@TempDir Path folder)
            throws IOException {
        Class<?> plain = Arena.global().allocate(8).getClass();
        Arena arena = Arena.ofShared();
        DeviceBuffer buffer;
        try (FileChannel file =
                FileChannel.open(
                        folder.resolve("data"),
                        StandardOpenOption.CREATE,
                        StandardOpenOption.READ,
                        StandardOpenOption.WRITE)) {
            MemorySegment mapped = file.map(MapMode.READ_WRITE, 0, 4096, arena);
            buffer = DeviceBuffer.wrap(mapped);

            assertThat(mapped.getClass()).isNotEqualTo(plain);
            assertThat(buffer.hostSegment().getClass()).isEqualTo(plain);
            assertThat(buffer.address()).isEqualTo(mapped.address());
            buffer.hostSegment().set(ValueLayout.JAVA_LONG, 0, 42);
            assertThat(mapped.get(ValueLayout.JAVA_LONG, 0)).isEqualTo(42);

            DeviceBuffer readOnly = DeviceBuffer.wrap(file.map(MapMode.READ_ONLY, 0, 4096, arena));
            assertThat(readOnly.isReadOnly()).isTrue();
            assertThat(readOnly.hostSegment().getClass()).isEqualTo(plain);
        }
        arena.close();

        assertThat(buffer.isClosed()).isTrue();
    }

    @Test
    void sliceOfAReadOnlySegmentIsReadOnly() {
        DeviceBuffer buffer = DeviceBuffer.wrap(Arena.global().allocate(16).asReadOnly());

        assertThat(buffer.isReadOnly()).isTrue();
        assertThat(buffer.slice(4, 4).isReadOnly()).isTrue();
    }

    @Test
    void anArenaClosedByItsOwnerClosesTheBuffer() {
        Arena arena = Arena.ofShared();
        DeviceBuffer buffer = DeviceBuffer.wrap(arena.allocate(16));
        DeviceBuffer part = buffer.slice(8, 8);
        assertThat(buffer.isClosed()).isFalse();

        arena.close();

        assertThat(buffer.isClosed()).isTrue();
        assertThat(part.isClosed()).isTrue();
        refused(buffer::hostSegment)
                .hasMessage(buffer + " is closed, or its arena is; use it before");
    }

    @Test
    void aDeviceAddressIsHeldButNeverRead() {
        DeviceBuffer buffer = DeviceBuffer.wrap(DEVICE, 0x7f00_0000_1000L, 256);

        assertThat(buffer.address()).isEqualTo(0x7f00_0000_1000L);
        assertThat(buffer.sizeBytes()).isEqualTo(256);
        assertThat(buffer.device()).isEqualTo(DEVICE);
        assertThat(buffer.isHostAccessible()).isFalse();
        assertThat(buffer).hasToString("buffer[device 3, 0x7f0000001000, 256 bytes]");
        refused(buffer::hostSegment)
                .hasMessage(
                        "buffer[device 3, 0x7f0000001000, 256 bytes] is device memory, which Java"
                                + " cannot read; copy it to host memory with DeviceStream.copy");
        DeviceBuffer part = buffer.slice(16, 32);
        assertThat(part.address()).isEqualTo(0x7f00_0000_1010L);
        assertThat(part.sizeBytes()).isEqualTo(32);
        assertThat(part.device()).isEqualTo(DEVICE);
        refused(part::hostSegment).hasMessageContaining("is device memory");
    }

    @Test
    void aPartKeepsTheSourceOfItsWholeReachable() throws InterruptedException {
        ReferenceQueue<Object> collected = new ReferenceQueue<>();
        Object tensor = new Object();
        WeakReference<Object> source = new WeakReference<>(tensor, collected);
        DeviceBuffer part = DeviceBuffer.wrap(DEVICE, 0x1000, 256, tensor).slice(64, 64);
        tensor = null;

        System.gc();
        assertThat(source.get()).isNotNull();
        assertThat(part.owner()).isNull();
        Reference.reachabilityFence(part);

        part = null;
        Reference<?> dead = null;
        while (dead == null) { // bounded by the test's deadline
            System.gc();
            dead = collected.remove(10);
        }
        assertThat(dead).isSameAs(source);
    }

    @Test
    void whatIsNoDeviceRangeIsRefused() {
        refused(() -> DeviceBuffer.wrap(DEVICE, 0, 1))
                .hasMessage("not a device range: address 0x0, 1 bytes");
        refused(() -> DeviceBuffer.wrap(DEVICE, 0x1000, -1))
                .hasMessage("not a device range: address 0x1000, -1 bytes");
        refused(() -> DeviceBuffer.wrap(DEVICE, -16, 17))
                .hasMessage("not a device range: address 0xfffffffffffffff0, 17 bytes");
        assertThat(DeviceBuffer.wrap(DEVICE, 0, 0).sizeBytes()).isZero();
    }

    @Test
    void partsLieWithinTheirWhole() {
        DeviceBuffer buffer = DeviceBuffer.wrap(DEVICE, 0x1000, 100);

        assertThat(buffer.slice(0, 100).sizeBytes()).isEqualTo(100);
        assertThat(buffer.slice(100, 0).address()).isEqualTo(0x1064);
        assertThat(buffer.slice(40, 50).slice(10, 40).address()).isEqualTo(0x1032);
        for (long[] part : new long[][] {{-1, 1}, {0, 101}, {100, 1}, {1, -1}, {101, 0}}) {
            refused(() -> buffer.slice(part[0], part[1]))
                    .hasMessage(
                            "slice [%d, +%d) is not within buffer[device 3, 0x1000, 100 bytes];"
                                    + " offset and size are bytes",
                            part[0], part[1]);
        }
        refused(() -> buffer.slice(Long.MAX_VALUE, 1)).hasMessageContaining("is not within");
        refused(() -> buffer.slice(1, Long.MAX_VALUE)).hasMessageContaining("is not within");
        refused(() -> buffer.slice(40, 50).slice(0, 51)).hasMessageContaining("is not within");
    }

    @Test
    void closingFreesOnceAndClosesTheParts() {
        CountingOwner owner = new CountingOwner();
        MemorySegment memory = Arena.ofAuto().allocate(64);
        DeviceBuffer buffer = DeviceBuffer.allocated(DEVICE, memory, 64, owner);
        DeviceBuffer part = buffer.slice(8, 8).slice(4, 4);

        assertThat(buffer.isHostAccessible()).isTrue();
        assertThat(buffer.device()).isEqualTo(DEVICE);
        assertThat(buffer.owner()).isSameAs(owner);
        assertThat(part.owner()).isSameAs(owner);
        part.close();
        assertThat(owner.released).hasValue(0);
        assertThat(part.isClosed()).isFalse();

        buffer.close();
        buffer.close();

        assertThat(owner.released).hasValue(1);
        assertThat(buffer.isClosed()).isTrue();
        assertThat(part.isClosed()).isTrue();
        refused(buffer::hostSegment)
                .hasMessageEndingWith("is closed, or its arena is; use it before");
        refused(() -> part.slice(0, 1))
                .hasMessage(part + " is closed, or its arena is; slice it before");
    }

    @Test
    void manyThreadsThatCloseFreeOnce() throws InterruptedException {
        for (int round = 0; round < 200; round++) {
            CountingOwner owner = new CountingOwner();
            DeviceBuffer buffer =
                    DeviceBuffer.allocated(DEVICE, MemorySegment.ofAddress(0x1000), 64, owner);
            Thread other = Thread.ofPlatform().start(buffer::close);
            buffer.close();
            other.join();

            assertThat(owner.released).hasValue(1);
        }
    }

    @Test
    void deviceMemoryThatWasAllocatedIsNotDereferenceable() {
        DeviceBuffer buffer =
                DeviceBuffer.allocated(
                        DEVICE, MemorySegment.ofAddress(0x5000), 64, new CountingOwner());

        assertThat(buffer.isHostAccessible()).isFalse();
        assertThat(buffer.sizeBytes()).isEqualTo(64);
        assertThat(buffer.slice(32, 32).address()).isEqualTo(0x5020);
    }

    @Test
    void closingWrappedMemoryFreesNothing() {
        MemorySegment memory = Arena.ofAuto().allocate(8);
        DeviceBuffer buffer = DeviceBuffer.wrap(memory);

        buffer.close();

        assertThat(buffer.isClosed()).isTrue();
        memory.set(ValueLayout.JAVA_BYTE, 0, (byte) 1);
        assertThat(DeviceBuffer.wrap(memory).isClosed()).isFalse();
    }

    @Test
    void emptyCannotBeClosed() {
        DeviceBuffer.EMPTY.close();

        assertThat(DeviceBuffer.EMPTY.isClosed()).isFalse();
        assertThat(DeviceBuffer.EMPTY.sizeBytes()).isZero();
        assertThat(DeviceBuffer.EMPTY.slice(0, 0).sizeBytes()).isZero();
        assertThat(DeviceBuffer.EMPTY.hostSegment().byteSize()).isZero();
        assertThat(DeviceBuffer.EMPTY).hasToString("EMPTY");
        refused(() -> DeviceBuffer.EMPTY.slice(0, 1))
                .hasMessage("slice [0, +1) is not within EMPTY; offset and size are bytes");
    }

    private static AbstractThrowableAssert<?, ?> refused(ThrowingCallable call) {
        return assertThatThrownBy(call).isInstanceOf(InvalidArgumentException.class);
    }
}
