package org.nccl4j.nccl.interop;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.bytedeco.javacpp.Pointer;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;

/** With JavaCPP's types alone: none of its natives is loaded. */
final class JavaCppMemoryTest {
    private static final Device DEVICE = new HandleDevice();
    private static final long ADDRESS = 0x7f00_0000_1000L;

    /** A pointer to elements of some size, as FloatPointer is once its natives are loaded. */
    private static final class Elements extends Pointer {
        private final int elementBytes;

        Elements(int elementBytes, long elementAddress, long elementCount) {
            this.elementBytes = elementBytes;
            address = elementAddress;
            limit = elementCount;
            capacity = elementCount;
        }

        @Override
        public int sizeof() {
            return elementBytes;
        }
    }

    @Test
    void aPointerIsWrappedFromItsPositionToItsLimit() {
        Pointer floats = new Elements(4, ADDRESS, 100);
        DeviceBuffer whole = JavaCppMemory.buffer(DEVICE, floats);
        DeviceBuffer window = JavaCppMemory.buffer(DEVICE, floats.position(10).limit(30));

        assertThat(whole.device()).isSameAs(DEVICE);
        assertThat(whole.address()).isEqualTo(ADDRESS);
        assertThat(whole.sizeBytes()).isEqualTo(400);
        assertThat(whole.isHostAccessible()).isFalse();
        assertThat(window.address()).isEqualTo(ADDRESS + 40);
        assertThat(window.sizeBytes()).isEqualTo(80);
    }

    @Test
    void aSizeInBytesCountsFromThePosition() {
        Pointer floats = new Elements(4, ADDRESS, 100).position(10);
        DeviceBuffer buffer = JavaCppMemory.buffer(DEVICE, floats, 360);

        assertThat(buffer.address()).isEqualTo(ADDRESS + 40);
        assertThat(buffer.sizeBytes()).isEqualTo(360);
        refused(
                () -> JavaCppMemory.buffer(DEVICE, floats, 361),
                floats
                        + " with 4 bytes an element has no 361 bytes between its position and its"
                        + " limit; sizes are bytes");
    }

    @Test
    void aPointerWithoutALimitNeedsASize() {
        Pointer pointer = new Elements(1, ADDRESS, 0);

        assertThat(JavaCppMemory.buffer(DEVICE, pointer, 1 << 20).sizeBytes()).isEqualTo(1 << 20);
        refused(
                () -> JavaCppMemory.buffer(DEVICE, pointer),
                pointer
                        + " has no limit, as one that cudaMalloc has filled: pass the size in"
                        + " bytes");
        refused(
                () -> JavaCppMemory.buffer(DEVICE, pointer, -1),
                "not a device range: address 0x7f0000001000, -1 bytes");
    }

    @Test
    void aPointerThatPointsNowhereIsRefused() {
        String message =
                "cannot wrap a null JavaCPP pointer, or one that has been deallocated;"
                        + " DeviceBuffer.EMPTY stands for no memory";
        Pointer deallocated = new Elements(4, ADDRESS, 100);
        deallocated.setNull();

        refused(() -> JavaCppMemory.buffer(DEVICE, null), message);
        refused(() -> JavaCppMemory.buffer(DEVICE, new Pointer(), 8), message);
        refused(() -> JavaCppMemory.buffer(DEVICE, deallocated), message);
    }

    @Test
    void aPointerOfUnknownElementsIsRefused() {
        Pointer pointer = new Elements(-1, ADDRESS, 100);

        refused(
                () -> JavaCppMemory.buffer(DEVICE, pointer),
                "JavaCPP does not know the element size of "
                        + pointer
                        + ": the natives of its class are not loaded; load them with Loader.load");
    }

    @Test
    void theBufferKeepsItsPointerReachable() {
        Pointer pointer = new Elements(4, ADDRESS, 100);
        WeakReference<Pointer> kept = new WeakReference<>(pointer);
        DeviceBuffer part = JavaCppMemory.buffer(DEVICE, pointer).slice(0, 4);
        pointer = null;

        System.gc();
        assertThat(kept.get()).isNotNull();
        Reference.reachabilityFence(part);
    }

    @Test
    void aStreamIsWrapped() {
        assertThat(JavaCppMemory.stream(DEVICE, new Elements(1, 0xabc0, 0)))
                .isEqualTo(new HandleDevice.HandleStream(DEVICE, 0xabc0));
    }

    @Test
    void aStreamThatNobodyHasCreatedIsRefused() {
        for (Pointer stream : new Pointer[] {null, new Pointer()}) {
            refused(
                    () -> JavaCppMemory.stream(DEVICE, stream),
                    "the stream is null, which is CUDA's default stream or one that has not been"
                            + " created; create one, or, if the default stream is meant, say"
                            + " device.wrapStream(0)");
        }
    }

    private static void refused(ThrowingCallable call, String message) {
        assertThatThrownBy(call).isInstanceOf(InvalidArgumentException.class).hasMessage(message);
    }
}
