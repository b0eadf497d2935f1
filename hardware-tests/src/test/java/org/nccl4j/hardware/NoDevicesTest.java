package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.LibraryUnavailableException;
import org.nccl4j.nccl.NcclBackend;

/** Libraries without a GPU: the backend says why it cannot be used, and what to do. */
@OnEmulator(devices = 0)
final class NoDevicesTest {
    private static List<String> reasons() {
        return ((Availability.Unavailable) new NcclBackend().availability()).reasons();
    }

    @Test
    void noDevice() {
        assertThat(reasons()).anySatisfy(reason -> assertThat(reason).containsIgnoringCase("GPU"));
        assertThatThrownBy(() -> new NcclBackend().createLocal(1, CommunicatorConfig.defaults()))
                .isInstanceOf(LibraryUnavailableException.class)
                .hasMessageContaining("GPU");
    }
}
