package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.LoadedLibrary;

final class BackendFactsTest {

    @Test
    void theCpuHasNoNccl() {
        BackendFacts facts = BackendFacts.of(Backends.named("cpu"));
        assertThat(facts.ncclHeaders()).isZero();
        assertThat(facts.ncclLibrary()).isZero();
        assertThat(facts.isNccl()).isFalse();
        assertThat(facts.emulated()).isFalse();
    }

    @Test
    void versionsAreThoseOfTheLoadedNccl() {
        OpaqueBackend backend = new OpaqueBackend(Backends.named("cpu"));
        backend.libraries =
                List.of(
                        new LoadedLibrary("CUDA runtime", "13.0", 13000, "/opt/libcudart.so.13"),
                        new LoadedLibrary("NCCL", "2.18.5", 21805, "/opt/libnccl.so.2"));
        BackendFacts facts = BackendFacts.of(backend);
        assertThat(facts.ncclLibrary()).isEqualTo(21805);
        assertThat(facts.ncclVersion()).isEqualTo("2.18.5");
        assertThat(facts.isNccl()).isTrue();
        assertThat(facts.emulated()).isFalse();
        backend.deviceName = "nccl4j EMULATOR";
        assertThat(BackendFacts.of(backend).emulated()).isTrue();
    }

    /** By reflection: bench is compiled against the contract alone. */
    @Test
    void theHeadersAreThoseOfTheBindings() throws ReflectiveOperationException {
        Object code =
                Class.forName("org.nccl4j.bindings.nccl.Nccl")
                        .getMethod("NCCL_VERSION_CODE")
                        .invoke(null);
        assertThat(code).isEqualTo(BackendFacts.NCCL_HEADERS);
    }
}
