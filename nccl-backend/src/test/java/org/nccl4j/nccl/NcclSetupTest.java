package org.nccl4j.nccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.LibraryUnavailableException;
import org.nccl4j.collectives.ReduceOp;

final class NcclSetupTest {
    @ParameterizedTest
    @CsvSource({
        "2708, 2.7.8",
        "2804, 2.8.4",
        "20900, 2.9.0",
        "21801, 2.18.1",
        "21903, 2.19.3",
        "23007, 2.30.7",
        "23010, 2.30.10",
    })
    void aVersionCodeIsDecoded(int code, String version) {
        assertThat(NcclLibrary.version(code)).isEqualTo(version);
    }

    @ParameterizedTest
    @CsvSource({"13000, 13.0", "12080, 12.8", "12040, 12.4"})
    void aVersionOfCudaIsDecoded(int code, String version) {
        assertThat(CudaRuntime.versionText(code)).isEqualTo(version);
    }

    @ParameterizedTest
    @CsvSource({
        "00000000:3B:00.0, 0000:3b:00",
        "0000:E1:00.0, 0000:e1:00",
        "0001:00:1F.0, 0001:00:1f",
    })
    void aPciAddressIsShortened(String ofCuda, String ours) {
        assertThat(NcclDevice.busId(ofCuda)).isEqualTo(ours);
    }

    @ParameterizedTest
    @CsvSource({
        "21801, 90, false",
        "22304, 90, false",
        "22403, 90, true",
        "22403, 89, false",
        "23007, 100, true",
        "23007, 0, false",
    })
    void floatsOfEightBitsNeedTheLibraryAndTheDevices(int version, int weakest, boolean able) {
        Capabilities capabilities = NcclSetup.capabilities(version, weakest);

        assertThat(capabilities.types().contains(DataType.FLOAT8E4M3)).isEqualTo(able);
        assertThat(capabilities.types().contains(DataType.FLOAT8E5M2)).isEqualTo(able);
        assertThat(capabilities.types()).contains(DataType.BFLOAT16, DataType.FLOAT16);
    }

    @Test
    void whatNcclCannotDoIsNotClaimed() {
        Capabilities capabilities = NcclSetup.capabilities(23007, 90);

        assertThat(capabilities.reductions())
                .containsExactlyInAnyOrder(ReduceOp.Predefined.values());
        assertThat(capabilities.preMulSum()).isTrue();
        assertThat(capabilities.firstUseMayWait()).isTrue();
        assertThat(capabilities.mismatchDetection()).isFalse();
        assertThat(capabilities.hostBuffers()).isFalse();
        assertThat(capabilities.peerFailureDetection()).isFalse();
        assertThat(capabilities.capture()).isFalse();
    }

    @ParameterizedTest
    @CsvSource({"21805,false", "21901,true", "23007,true"})
    void buffersAreRegisteredFromTheVersionThatCan(int version, boolean able) {
        assertThat(NcclSetup.capabilities(version, 90).registration()).isEqualTo(able);
    }

    @Test
    void aLibraryThatIsTooOldIsNamed() {
        assertThat(NcclSetup.tooOld(21708, "/lib/libnccl.so.2"))
                .contains("2.17.8", "/lib/libnccl.so.2", "2.18 or newer");
    }

    @Test
    void aReasonIsOneLine() {
        assertThat(NcclSetup.reason("NCCL", new UnsatisfiedLinkError("first\n  second\n")))
                .isEqualTo("NCCL cannot be used: java.lang.UnsatisfiedLinkError: first; second");
        assertThat(NcclSetup.reason("NCCL", new IllegalCallerException("not enabled")))
                .contains("not enabled", "--enable-native-access=");
    }

    /** Where there is no GPU, as on most machines that run this test. */
    @Test
    void withoutGpuTheReasonsAreGivenAndEverythingElseIsRefused() {
        NcclBackend backend = new NcclBackend();
        assumeTrue(
                backend.availability() instanceof Availability.Unavailable,
                "unsupported: this machine has NCCL and a GPU");

        Availability.Unavailable unavailable = (Availability.Unavailable) backend.availability();

        assertThat(unavailable.reasons())
                .isNotEmpty()
                .allSatisfy(reason ->
                        assertThat(reason)
                                .isNotBlank()
                                .doesNotContain("\n", ".;")
                                .doesNotContainPattern("; [A-Z][a-z]|\\.$"));
        assertThatThrownBy(backend::capabilities)
                .isInstanceOf(LibraryUnavailableException.class)
                .hasMessageContaining("nccl")
                .hasMessageContaining(unavailable.reasons().getFirst());
        assertThatThrownBy(backend::devices).isInstanceOf(LibraryUnavailableException.class);
        assertThatThrownBy(() -> backend.device(0)).isInstanceOf(LibraryUnavailableException.class);
        assertThat(backend.libraries()).isNotNull();
    }
}
