package org.nccl4j.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.CollectiveException.Recovery;
import org.nccl4j.collectives.NativeCallException;

final class CudaErrorsTest {
    @ParameterizedTest
    @CsvSource({
        "1, CORRECT_THE_CALL",
        "2, CHANGE_SETUP",
        "4, RESTART_PROCESS",
        "35, CHANGE_SETUP",
        "101, CORRECT_THE_CALL",
        "214, RESTART_PROCESS",
        "400, CORRECT_THE_CALL",
        "700, RESTART_PROCESS",
        "719, RESTART_PROCESS",
        "801, CHANGE_SETUP",
        "900, CORRECT_THE_CALL",
        "999, RESTART_PROCESS",
        "12345, CHANGE_SETUP",
    })
    void aCodeSaysWhatHelps(int code, Recovery recovery) {
        NativeCallException e =
                CudaErrors.exception("cudaMemcpyAsync", code, "cudaErrorX", "words", "copying");

        assertThat(e.recovery()).isEqualTo(recovery);
        assertThat(e.code()).isEqualTo(code);
        assertThat(e)
                .hasMessageStartingWith(
                        "copying: cudaMemcpyAsync answered " + code + " (cudaErrorX: words); ");
    }

    @ParameterizedTest
    @ValueSource(ints = {214, 700, 719})
    void aLostContextIsSaidToBeLost(int code) {
        assertThat(CudaErrors.isSticky(code)).isTrue();
        assertThat(CudaErrors.exception("f", code, "n", "t", "doing"))
                .hasMessageContaining("context is lost")
                .hasMessageContaining("restart the process");
    }

    @ParameterizedTest
    @CsvSource({
        "35, driver",
        "100, CUDA_VISIBLE_DEVICES",
        "34, stub",
        "46, busy",
        "802, fabricmanager",
        "803, reboot",
        "999, dmesg",
    })
    void whyThereIsNoDeviceIsToldInOneLine(int code, String remedy) {
        assertThat(CudaErrors.noDevices(code, "cudaErrorX", "words"))
                .startsWith("no GPU can be used: cudaGetDeviceCount answered " + code)
                .contains("cudaErrorX", remedy)
                .doesNotContain("\n");
    }
}
