package org.nccl4j.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.nccl4j.collectives.CollectiveException.Recovery;
import org.nccl4j.collectives.NativeCallException;

final class NcclErrorsTest {
    @ParameterizedTest
    @CsvSource({
        "1, ncclUnhandledCudaError, RECREATE_COMMUNICATOR, CUDA",
        "2, ncclSystemError, RECREATE_COMMUNICATOR, NCCL_SOCKET_IFNAME",
        "3, ncclInternalError, RECREATE_COMMUNICATOR, NCCL_DEBUG=INFO",
        "4, ncclInvalidArgument, CORRECT_THE_CALL, communicator stays good",
        "5, ncclInvalidUsage, RECREATE_COMMUNICATOR, two ranks on one GPU",
        "6, ncclRemoteError, RECREATE_COMMUNICATOR, peer",
        "8, ncclTimeout, RECREATE_COMMUNICATOR, time limit",
    })
    void aCodeIsNamedAndExplained(int code, String name, Recovery recovery, String hint) {
        NativeCallException e =
                NcclErrors.exception(
                        "ncclAllReduce",
                        code,
                        "some words",
                        "a warning",
                        "allReduce #3 of communicator 'world' on rank 1/4");

        assertThat(e.code()).isEqualTo(code);
        assertThat(e.function()).isEqualTo("ncclAllReduce");
        assertThat(e.lastErrorText()).isEqualTo("a warning");
        assertThat(e.recovery()).isEqualTo(recovery);
        assertThat(e)
                .hasMessageStartingWith(
                        "allReduce #3 of communicator 'world' on rank 1/4: ncclAllReduce answered "
                                + code
                                + " ("
                                + name
                                + ": some words)")
                .hasMessageContaining("\"a warning\"")
                .hasMessageContaining(hint);
    }

    @Test
    void aCodeOfANewerLibraryIsKept() {
        NativeCallException e = NcclErrors.exception("ncclSend", 23, "", "", "send");

        assertThat(e.code()).isEqualTo(23);
        assertThat(e.recovery()).isEqualTo(Recovery.RECREATE_COMMUNICATOR);
        assertThat(e)
                .hasMessageContaining("23 (a code that this version of nccl4j does not know)")
                .hasMessageNotContaining("last warning");
    }
}
