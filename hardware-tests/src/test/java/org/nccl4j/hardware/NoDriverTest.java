package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.Availability;
import org.nccl4j.nccl.NcclBackend;

/** The libraries are there and the driver is not, as in a container without GPUs. */
@OnEmulator(faults = "cudaGetDeviceCount:*=code:35")
final class NoDriverTest {
    @Test
    void theBackendSaysThatTheDriverIsMissing() {
        assertThat(new NcclBackend().availability())
                .isInstanceOfSatisfying(
                        Availability.Unavailable.class,
                        unavailable ->
                                assertThat(unavailable.reasons())
                                        .anySatisfy(reason ->
                                                assertThat(reason)
                                                        .contains("cudaGetDeviceCount")
                                                        .contains("35")
                                                        .contains("driver")));
    }
}
