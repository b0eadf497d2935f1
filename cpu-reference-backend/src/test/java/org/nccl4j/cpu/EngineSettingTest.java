package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
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
    void thePropertyWinsOverTheVariableAndAutoIsTheDefault() {
        assertThat(setting(null, null).engine().name()).isEqualTo("auto");
        assertThat(setting("auto", "tree").engine().name()).isEqualTo("auto");
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
                                                + " algorithm 'tre', only auto, direct, reference,"
                                                + " ring, tree, ")
                                .contains("(did you mean tree?)"));
        assertThatThrownBy(setting::engine).isInstanceOf(InvalidArgumentException.class);
        CpuBackend backend = new CpuBackend(setting, CpuDevices.SHARED);
        assertThat(backend.availability())
                .isEqualTo(new Availability.Unavailable(List.of(setting.refusal().orElseThrow())));
        assertThatThrownBy(() -> backend.createLocal(2, CommunicatorConfig.defaults()))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(setting.refusal().orElseThrow());
        assertThat(setting("ring,", null).refusal()).isPresent();
    }

    /** Of properties and variables, each by itself and a property before a variable. */
    @ParameterizedTest
    @ValueSource(strings = {"", " ", "\t"})
    void whatIsEmptyCountsAsNotSet(String empty) {
        UnaryOperator<String> none = name -> null;
        UnaryOperator<String> blank = name -> empty;
        for (EngineSetting setting :
                List.of(EngineSetting.of(none, blank), EngineSetting.of(blank, none))) {
            assertThat(setting.refusal()).isEmpty();
            assertThat(setting.reproducible()).isEmpty();
            assertThat(setting.engine().name()).isEqualTo("auto");
        }
        assertThat(setting(empty, "tree").engine().name()).isEqualTo("tree");
        String best = KernelChoice.named(null).description();
        assertThat(KernelChoice.of(none, blank).description()).isEqualTo(best);
        assertThat(KernelChoice.of(blank, none).description()).isEqualTo(best);
        // Whoever names an algorithm in a program means one.
        EngineSetting setting = setting(null, null);
        assertThatThrownBy(() -> setting.engine(Optional.of(empty)))
                .isInstanceOf(InvalidArgumentException.class);
    }

    @Test
    void theDirectEngineSaysWhichKernelsItHasChosen() {
        assertThat(setting("direct", null).engine().description())
                .isEqualTo("direct (" + KernelChoice.ofThisProcess().description() + ")");
        assertThat(KernelChoice.named("plain").description()).isEqualTo("plain kernels");
        assertThat(KernelChoice.named(null).description().contains("jdk.incubator.vector"))
                .isEqualTo(KernelChoice.hasVectors());
        Map<String, String> simd = Map.of(KernelChoice.PROPERTY, "simd");
        assertThatThrownBy(() -> KernelChoice.of(simd::get, name -> null))
                .isInstanceOf(IllegalArgumentException.class)
                .hasMessageStartingWith(
                        "system property nccl4j.cpu.kernels=simd: there are plain and vector");
    }

    @Test
    void twoAlgorithmsForOneCollectiveAreRefused() {
        assertThat(setting("ring,tree", null).refusal())
                .hasValue(
                        "system property nccl4j.cpu.algorithm=ring,tree: ring and tree are both for"
                                + " all-reduce; correct or unset it");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = ';',
            quoteCharacter = '"',
            value = {
                "ring,ring; 'ring' is named twice: name it once",
                "ring, bruck, ring; 'ring' is named twice: name it once",
                "direct,ring; 'direct' is for all operations: name it alone, or leave it out",
                "ring,auto; 'auto' is for all operations: name it alone, or leave it out",
                "reference,reference; 'reference' is for all operations: name it alone, or leave it"
                        + " out"
            })
    void whatCannotStandTogetherIsRefused(String given, String why) {
        assertThat(setting(null, given).refusal())
                .hasValue(
                        "environment variable NCCL4J_CPU_ALGORITHM="
                                + given
                                + ": "
                                + why
                                + "; correct or unset it");
        assertThatThrownBy(() -> setting(null, null).engine(Optional.of(given)))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("algorithm '" + given + "': " + why);
        assertThat(setting(" direct ", null).engine().name()).isEqualTo("direct");
    }

    @Test
    void aConfigurationWinsOverTheSettingAndIsValidated() {
        EngineSetting setting = setting(null, "tree");
        assertThat(setting.engine(Optional.empty()).name()).isEqualTo("tree");
        assertThat(setting.engine(Optional.of("tree"))).isSameAs(setting.engine());
        Engine direct = setting.engine(Optional.of("direct"));
        assertThat(direct.name()).isEqualTo("direct");
        assertThat(setting.engine(Optional.of("direct"))).isSameAs(direct);
        assertThatThrownBy(() -> setting.engine(Optional.of("dirct")))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageStartingWith("algorithm 'dirct': there is no algorithm 'dirct', only ")
                .hasMessageContaining("(did you mean direct?)");
    }

    @Test
    void theBackendSaysWhatAnOperationIsCarriedOutBy() {
        CpuBackend backend = new CpuBackend(new ReferenceEngine(), CpuDevices.SHARED);
        CommunicatorConfig plain = CommunicatorConfig.defaults();
        CommunicatorConfig tree = plain.withAlgorithm("tree,bruck");
        assertThat(backend.algorithm("all-reduce", 4, 1024, plain)).isEqualTo("reference");
        assertThat(backend.algorithm("all_reduce", 4, 1024, tree)).isEqualTo("tree");
        assertThat(backend.algorithm("AllToAll", 4, 1024, tree)).isEqualTo("bruck");
        assertThat(backend.algorithm("sendrecv", 2, 1024, tree)).isEqualTo("reference");
        assertThat(backend.algorithm("broadcast", 257, 1024, tree)).isEqualTo("reference");
        assertThatThrownBy(() -> backend.algorithm("splt", 4, 1024, plain))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageStartingWith("there is no operation 'splt', only allReduce, ");
        assertThatThrownBy(() -> backend.algorithm("barrier", 0, 1024, plain))
                .isInstanceOf(InvalidArgumentException.class);
        assertThatThrownBy(() -> backend.createLocal(2, plain.withAlgorithm("tre")))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageContaining("(did you mean tree?)");
    }

    private static EngineSetting reproducible(String value, String algorithm) {
        Map<String, String> variables = new HashMap<>();
        variables.put(EngineSetting.REPRODUCIBLE_VARIABLE, value);
        variables.put(EngineSetting.VARIABLE, algorithm);
        return EngineSetting.of(name -> null, variables::get);
    }

    @Test
    void reproducibleModeIsTheDirectEngineAndNoOther() {
        EngineSetting on = reproducible("1", null);
        assertThat(on.engine().name()).isEqualTo("direct");
        assertThat(on.reproducible()).hasValue("environment variable NCCL4J_CPU_REPRODUCIBLE=1");
        assertThat(new CpuBackend(on, CpuDevices.SHARED).availability().toString())
                .contains(", reproducible, ");
        assertThat(on.engine(Optional.of("direct"))).isSameAs(on.engine());
        assertThatThrownBy(() -> on.engine(Optional.of("ring")))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        "algorithm 'ring': with environment variable NCCL4J_CPU_REPRODUCIBLE=1 the"
                                + " order of additions is that of 'direct' and no other: name no algorithm,"
                                + " or turn reproducible mode off");
        assertThat(reproducible("true", "tree").refusal())
                .hasValueSatisfying(why ->
                        assertThat(why)
                                .startsWith(
                                        "environment variable NCCL4J_CPU_ALGORITHM=tree: with"));
        assertThat(reproducible("0", "tree").engine().name()).isEqualTo("tree");
        assertThat(reproducible("false", null).reproducible()).isEmpty();
        assertThat(reproducible("yes", null).refusal())
                .hasValue(
                        "environment variable NCCL4J_CPU_REPRODUCIBLE=yes: it is true or false, or"
                                + " 1 or 0; correct or unset it");
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
