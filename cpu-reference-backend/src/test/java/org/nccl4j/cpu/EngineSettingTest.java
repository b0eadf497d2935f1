package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.Explanation;
import org.nccl4j.collectives.InvalidArgumentException;

class EngineSettingTest {
    private static EngineSetting setting(String property, String variable) {
        Map<String, String> properties =
                property == null ? Map.of() : Map.of(EngineSetting.PROPERTY, property);
        Map<String, String> variables =
                variable == null ? Map.of() : Map.of(EngineSetting.VARIABLE, variable);
        return EngineSetting.of(properties::get, variables::get);
    }

    @Test
    void thePropertyWinsOverTheVariableAndTheReferenceIsTheDefault() {
        assertThat(setting(null, null).engine().name()).isEqualTo("reference");
        assertThat(setting("reference", "tree").engine().name()).isEqualTo("reference");
        assertThat(setting(null, "tree").engine().name()).isEqualTo("tree");
        assertThat(setting("direct", null).engine().name()).isEqualTo("direct");
        assertThat(setting("double-tree, bruck", "tree").engine().name())
                .isEqualTo("double-tree,bruck");
    }

    @Test
    void aNameThatDoesNotExistIsRefusedWithTheNamesThatDo() {
        EngineSetting setting = setting(null, "tre");
        assertThat(setting.refusal())
                .hasValueSatisfying(why ->
                        assertThat(why)
                                .startsWith(
                                        "environment variable NCCL4J_CPU_ALGORITHM=tre: there is no"
                                                + " algorithm 'tre', only reference, direct, ring,"
                                                + " tree, ")
                                .contains("(did you mean tree?)"));
        assertThatThrownBy(setting::engine).isInstanceOf(InvalidArgumentException.class);
        CpuBackend backend = new CpuBackend(setting, CpuDevices.SHARED);
        assertThat(backend.availability())
                .isEqualTo(new Availability.Unavailable(List.of(setting.refusal().orElseThrow())));
        assertThatThrownBy(() -> backend.createLocal(2, CommunicatorConfig.defaults()))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(setting.refusal().orElseThrow());
        assertThat(setting("", null).refusal()).isPresent();
        assertThat(setting("ring,", null).refusal()).isPresent();
    }

    @Test
    void theDirectEngineSaysWhichKernelsItHasChosen() {
        assertThat(setting("direct", null).engine().description())
                .isEqualTo("direct (" + KernelChoice.ofThisProcess().description() + ")");
        assertThat(KernelChoice.named("plain").description()).isEqualTo("plain kernels");
        assertThat(KernelChoice.named(null).description().contains("jdk.incubator.vector"))
                .isEqualTo(KernelChoice.hasVectors());
        assertThatThrownBy(() -> KernelChoice.named("simd"))
                .isInstanceOf(IllegalArgumentException.class)
                .hasMessageContaining("=simd: there are plain and vector");
    }

    @Test
    void twoAlgorithmsForOneCollectiveAreRefused() {
        assertThat(setting("ring,tree", null).refusal())
                .hasValue(
                        "system property nccl4j.cpu.algorithm=ring,tree: ring and tree are both for"
                                + " all-reduce; correct or unset it");
    }

    @Test
    void theBackendExplainsItsAlgorithms() {
        CpuBackend backend = new CpuBackend();
        Explanation ring =
                backend.explain("allReduce", Optional.of("ring"), 4, DataType.FLOAT32, 4096);
        assertThat(ring.text()).startsWith("all-reduce by ring, 4 ranks, 4096 bytes");
        assertThat(ring.svg()).startsWith("<svg ");
        assertThat(backend.explain("alltoall", Optional.empty(), 3, DataType.INT8, 9).text())
                .startsWith("all-to-all by pairwise");
        assertThatThrownBy(() ->
                        backend.explain("all_gather", Optional.of("bruck"), 4, DataType.INT8, 4))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageContaining("all-gather: there is no algorithm 'bruck', only ring");
        assertThatThrownBy(() -> backend.explain("allreduc", Optional.empty(), 4, DataType.INT8, 4))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageContaining("(did you mean all-reduce?)");
        assertThatThrownBy(
                        () -> backend.explain("allreduce", Optional.empty(), 257, DataType.INT8, 4))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageContaining("257 ranks, must be 1 to 256");
        assertThatThrownBy(
                        () -> backend.explain("allreduce", Optional.empty(), 2, DataType.INT32, 6))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageContaining("6 bytes are not a whole number");
    }
}
