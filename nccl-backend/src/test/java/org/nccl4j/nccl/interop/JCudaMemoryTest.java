package org.nccl4j.nccl.interop;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.reflect.Field;
import jcuda.NativePointerObject;
import jcuda.Pointer;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUstream;
import jcuda.runtime.cudaStream_t;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;

/** With JCuda's types alone: none of its natives is loaded. */
final class JCudaMemoryTest {
    private static final Device DEVICE = new HandleDevice();
    private static final long ADDRESS = 0x7f00_0000_1000L;

    /** Does what JCuda's native code does when CUDA has given it an address. */
    private static <T extends NativePointerObject> T filled(T object, long address) {
        try {
            Field nativePointer = NativePointerObject.class.getDeclaredField("nativePointer");
            nativePointer.setAccessible(true);
            nativePointer.setLong(object, address);
            return object;
        } catch (ReflectiveOperationException e) {
            throw new AssertionError("this JCuda holds its addresses otherwise", e);
        }
    }

    @Test
    void aPointerIsWrapped() {
        DeviceBuffer buffer = JCudaMemory.buffer(DEVICE, filled(new Pointer(), ADDRESS), 256);

        assertThat(buffer.device()).isSameAs(DEVICE);
        assertThat(buffer.address()).isEqualTo(ADDRESS);
        assertThat(buffer.sizeBytes()).isEqualTo(256);
        assertThat(buffer.isHostAccessible()).isFalse();
    }

    @Test
    void itsByteOffsetCounts() {
        Pointer pointer = filled(new Pointer(), ADDRESS).withByteOffset(64).withByteOffset(32);
        CUdeviceptr driverPointer = filled(new CUdeviceptr(), ADDRESS).withByteOffset(128);

        assertThat(JCudaMemory.buffer(DEVICE, pointer, 8).address()).isEqualTo(ADDRESS + 96);
        assertThat(JCudaMemory.buffer(DEVICE, driverPointer, 8).address()).isEqualTo(ADDRESS + 128);
    }

    @Test
    void aPointerThatPointsNowhereIsRefused() {
        refused(
                null,
                8,
                "cannot wrap a null jcuda.Pointer; DeviceBuffer.EMPTY stands for no memory");
        refused(
                new Pointer(),
                8,
                "this jcuda.Pointer has no native address, so there are no 8 bytes at it: it has"
                        + " not been allocated, has been freed, or is Pointer.to(...) of Java"
                        + " memory, which a GPU cannot use; wrap what cudaMalloc, cuMemAlloc or"
                        + " cudaHostAlloc has filled: Pointer[nativePointer=0x0,byteOffset=0]");
        assertThatThrownBy(() ->
                        JCudaMemory.buffer(DEVICE, Pointer.to(new float[8]).withByteOffset(4), 8))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageStartingWith("this jcuda.Pointer has no native address");
        assertThat(JCudaMemory.buffer(DEVICE, new Pointer(), 0).sizeBytes()).isZero();
    }

    @Test
    void aSizeMustFit() {
        refused(
                filled(new Pointer(), ADDRESS),
                -1,
                "not a device range: address 0x7f0000001000, -1 bytes");
    }

    @Test
    void closingLeavesJCudasMemoryAlone() {
        Pointer pointer = filled(new Pointer(), ADDRESS);
        DeviceBuffer buffer = JCudaMemory.buffer(DEVICE, pointer, 256);
        buffer.close();

        assertThat(buffer.isClosed()).isTrue();
        assertThat(JCudaMemory.buffer(DEVICE, pointer, 256).isClosed()).isFalse();
    }

    @Test
    void streamsOfBothApisAreWrapped() {
        cudaStream_t stream = filled(new cudaStream_t(), 0xabc0);

        assertThat(JCudaMemory.stream(DEVICE, stream)).isEqualTo(stream(0xabc0));
        assertThat(JCudaMemory.stream(DEVICE, new CUstream(stream))).isEqualTo(stream(0xabc0));
    }

    @Test
    void aStreamThatNobodyHasCreatedIsRefused() {
        for (cudaStream_t stream : new cudaStream_t[] {null, new cudaStream_t()}) {
            assertThatThrownBy(() -> JCudaMemory.stream(DEVICE, stream))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessage(
                            "the stream is null, which is CUDA's default stream or one that has not"
                                    + " been created; create one, or, if the default stream is"
                                    + " meant, say device.wrapStream(0)");
        }
        assertThatThrownBy(() -> JCudaMemory.stream(null, new CUstream()))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("a stream needs the device that it belongs to, got null");
    }

    private static DeviceStream stream(long handle) {
        return new HandleDevice.HandleStream(DEVICE, handle);
    }

    private static void refused(Pointer pointer, long sizeBytes, String message) {
        assertThatThrownBy(() -> JCudaMemory.buffer(DEVICE, pointer, sizeBytes))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(message);
    }
}
