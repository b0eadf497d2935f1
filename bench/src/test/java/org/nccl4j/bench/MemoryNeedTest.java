package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.Device;

final class MemoryNeedTest {

    private static final long GIB = 1L << 30;

    private static Device withFree(long freeBytes) {
        return (Device)
                Proxy.newProxyInstance(
                        Device.class.getClassLoader(),
                        new Class<?>[] {Device.class},
                        (proxy, method, arguments) -> new Device.Memory(freeBytes, freeBytes));
    }

    private static MemoryNeed need(long minBytes, long maxBytes, int unalign, long... freeBytes) {
        List<Device> devices = Arrays.stream(freeBytes).mapToObj(MemoryNeedTest::withFree).toList();
        return new MemoryNeed(
                new BenchOptions.Sweep(minBytes, maxBytes, 1, 2, 1), unalign, devices);
    }

    @Test
    void bothBuffersAndTheReserveMustFitOnEveryDevice() {
        long reserve = 32 << 20;
        assertThat(need(1, GIB, 0, 2 * GIB + reserve, 2 * GIB + reserve).refusal()).isEmpty();
        assertThat(need(1, GIB, 0, 2 * GIB + reserve, 2 * GIB + reserve - 1).refusal()).isPresent();
        assertThat(need(1, GIB, 1, 2 * GIB + reserve).refusal()).as("the shift").isPresent();
        assertThat(need(1, GIB, 1, 2 * GIB + reserve + 16).refusal()).isEmpty();
        assertThat(need(1, GIB, 1, GIB).bufferBytes()).isEqualTo(GIB + 8);
    }

    @Test
    void theReserveOfASmallDeviceIsAnEighth() {
        assertThat(need(1, 7000, 0, 16_000).refusal()).isEmpty();
        assertThat(need(1, 7001, 0, 16_000).refusal().orElseThrow())
                .endsWith(
                        "16000 are free there, and 2000 of them stay in reserve;"
                                + " the largest that fits is -e 7000");
        assertThat(need(1, 1, 0, 0).refusal().orElseThrow())
                .endsWith("not even -b 1 fits: use fewer devices (-g, -t)");
    }

    @Test
    void aRefusalHoldsTheNumbersAndWhatFits() {
        assertThat(need(1024, 4 * GIB, 0, 3 * GIB, 5 * GIB).refusal())
                .contains(
                        "bench: -e 4294967296 needs 8589934592 bytes on each of 2 devices (2"
                                + " buffers of a rank); 3221225472 are free there, and 33554432 of"
                                + " them stay in reserve; the largest that fits is -e 1520M");
        assertThat(need(1520L << 20, 4 * GIB, 0, 3 * GIB).refusal().orElseThrow())
                .endsWith("-e 1520M");
        // Rounded down it would be below -b.
        assertThat(need((1520L << 20) - 1024, 4 * GIB, 1 << 20, 3 * GIB).refusal().orElseThrow())
                .endsWith("not even -b 1593834496 fits: use fewer devices (-g, -t)");
        assertThat(need(1, Long.MAX_VALUE - 1023, 0, 2000L << 30).refusal().orElseThrow())
                .contains(" needs 18446744073709549568 bytes ")
                .endsWith("-e 999G");
    }
}
