package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Generated traffic, traffic from a file, and what is wrong with a file. */
final class AllToAllVTrafficTest {

    private static final String SPREAD = "NCCL_TESTS_ALLTOALLV_SPREAD";
    private static final String FILE = "NCCL_TESTS_ALLTOALLV_MATRIX_FILE";
    private static final String SCALE = "NCCL_TESTS_ALLTOALLV_MATRIX_SCALE";

    @TempDir private Path folder;

    private Path matrix(String text) throws IOException {
        return Files.writeString(folder.resolve("matrix"), text);
    }

    private static BenchOptions.Sweep only(long sizeBytes) {
        return new BenchOptions.Sweep(sizeBytes, sizeBytes, 0, 2, 1);
    }

    @ParameterizedTest
    @CsvSource({
        "4, 1024, 1, 1008, 64",
        "3, 1024, 0, 1008, 84",
        "4, 1048576, 0.5, 1048560, 65536",
        "1, 1000, 1, 992, 248",
        "4, 1024, 7, 1008, 64",
        "4, 1024, x, 1008, 64",
    })
    void generated(int ranks, long sizeBytes, String spread, long size, long count) {
        AllToAllVTraffic traffic = AllToAllVTraffic.of(Map.of(SPREAD, spread));
        traffic.check(ranks, only(sizeBytes));
        long[][] bytes = traffic.bytes(sizeBytes, ElementType.FLOAT, ranks);
        Shape shape = traffic.shape(bytes, sizeBytes, ElementType.FLOAT, ranks);
        assertThat(shape.sizeBytes()).isEqualTo(size);
        assertThat(shape.paramCount()).isEqualTo(count);
    }

    @Test
    void withoutSettingsNobodySendsToItself() {
        AllToAllVTraffic traffic = AllToAllVTraffic.of(Map.of());
        assertThat(traffic.bytes(1024, ElementType.FLOAT, 4))
                .isDeepEqualTo(
                        new long[][] {
                            {0, 160, 336, 512},
                            {512, 0, 160, 336},
                            {336, 512, 0, 160},
                            {160, 336, 512, 0}
                        });
        assertThat(traffic.printsSummary()).isFalse();
    }

    @Test
    void bandwidthCountsTheLargestTotal() {
        AllToAllVTraffic traffic = AllToAllVTraffic.of(Map.of());
        long[][] bytes = traffic.bytes(1024, ElementType.FLOAT, 4);
        Shape shape = traffic.shape(bytes, 1024, ElementType.FLOAT, 4);
        Bandwidth bandwidth = Program.ALLTOALLV.bandwidth(shape, 4, 1e-6);
        assertThat(bandwidth.algBwGBps()).isEqualTo(1008 / 1e9 / 1e-6);
        assertThat(bandwidth.busBwGBps()).isEqualTo(1008 / 1e9 / 1e-6 * 0.75);
    }

    @Test
    void matrixMode() throws IOException {
        Path file = matrix("100 200 150\n50 100 75\n300 150 200\n");
        AllToAllVTraffic traffic = AllToAllVTraffic.of(Map.of(FILE, file.toString()));
        long[][] bytes = traffic.bytes(1024, ElementType.FLOAT, 3);
        assertThat(bytes)
                .isDeepEqualTo(new long[][] {{96, 192, 144}, {48, 96, 64}, {288, 144, 192}});
        Shape shape = traffic.shape(bytes, 1024, ElementType.FLOAT, 3);
        assertThat(shape.sizeBytes()).isEqualTo(624);
        assertThat(shape.paramCount()).isZero();
        traffic.check(3, only(624));
        assertThatThrownBy(() -> traffic.check(3, only(512)))
                .isInstanceOfSatisfying(
                        BenchFailure.class,
                        failure -> assertThat(failure.code()).isEqualTo(ExitCode.INTERNAL))
                .hasMessage(
                        "maxBytes (-e) must be at least 624 bytes as required by traffic matrix file "
                                + file
                                + " (got 512). Increase -e.");
        assertThatThrownBy(() -> traffic.check(4, only(1024)))
                .hasMessage(
                        "Invalid alltoallv traffic matrix, requested nranks (4) is larger than"
                                + " matrix size (3) in file "
                                + file
                                + ".");
        assertThatThrownBy(() -> traffic.check(3, new BenchOptions.Sweep(8, 1024, 0, 2, 1)))
                .hasMessage(
                        "-b and -e options must be set to the same value (e.g., -b 32M -e 32M) when"
                                + " using alltoallv traffic matrix mode.");
    }

    @Test
    void theTopLeftCornerAndTheScaleCount() throws IOException {
        Path file = matrix("100 200 150\n\n50 100 75\n300 150 200");
        AllToAllVTraffic traffic = AllToAllVTraffic.of(Map.of(FILE, file.toString(), SCALE, "0.5"));
        assertThat(traffic.bytes(1024, ElementType.FLOAT, 2))
                .isDeepEqualTo(new long[][] {{48, 96}, {16, 48}});
        AllToAllVTraffic negative = AllToAllVTraffic.of(Map.of(FILE, file.toString(), SCALE, "-1"));
        assertThat(negative.bytes(1024, ElementType.FLOAT, 2))
                .isDeepEqualTo(new long[][] {{0, 0}, {0, 0}});
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "'1 2;3' | Invalid alltoallv traffic matrix column count in file @ row 1. Expected 2 columns, got 1.",
                "'1 2;3 x' | Invalid alltoallv traffic matrix value at row 1 col 1 in file @.",
                "'1 -2;3 4' | Invalid alltoallv traffic matrix value at row 0 col 1 in file @. Value must be non-negative.",
                "'1 2;1e30 4' | Invalid alltoallv traffic matrix value at row 1 col 0 in file @. Value overflow (value=1e+30 scale=1).",
                "';' | Invalid alltoallv traffic matrix, file @ is empty.",
                "'1 2' | Invalid alltoallv traffic matrix, file @ must be square (got 1x2).",
            })
    void badFiles(String text, String message) throws IOException {
        Path file = matrix(text.replace(';', '\n'));
        assertThatThrownBy(() -> AllToAllVTraffic.of(Map.of(FILE, file.toString())))
                .isInstanceOf(BenchFailure.class)
                .hasMessage(message.replace("@", file.toString()));
    }

    @Test
    void aFileWithoutEnd() {
        assumeTrue(Files.exists(Path.of("/dev/zero")), "unsupported: there is no /dev/zero");
        assertThatThrownBy(() -> AllToAllVTraffic.of(Map.of(FILE, "/dev/zero")))
                .isInstanceOf(BenchFailure.class)
                .hasMessage(
                        "Invalid alltoallv traffic matrix, file /dev/zero is larger than 16777216"
                                + " bytes.");
    }

    @Test
    void noFile() {
        assertThatThrownBy(() -> AllToAllVTraffic.of(Map.of(FILE, "/no/such/file")))
                .isInstanceOf(BenchFailure.class)
                .hasMessage("Unable to open alltoallv traffic matrix file /no/such/file.")
                .hasCauseInstanceOf(IOException.class);
    }

    @Test
    void summary() throws IOException {
        AllToAllVTraffic generated =
                AllToAllVTraffic.of(Map.of("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY", "1"));
        assertThat(generated.printsSummary()).isTrue();
        long[][] bytes = generated.bytes(1024, ElementType.FLOAT, 2);
        assertThat(generated.summary(bytes, 1024, ElementType.FLOAT, 2, 1e-6))
                .containsExactly(
                        "# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=generated nranks=2"
                                + " total_bytes=1024 spread=1.000 time_usec=1.00",
                        "#   rank=0 send_bytes=1024 recv_bytes=1024 alg_bw=1.02 bus_bw=0.51",
                        "#   rank=1 send_bytes=1024 recv_bytes=1024 alg_bw=1.02 bus_bw=0.51");
        Path file = matrix("0 64\n32 0");
        AllToAllVTraffic matrix = AllToAllVTraffic.of(Map.of(FILE, file.toString()));
        assertThat(
                        matrix.summary(
                                matrix.bytes(64, ElementType.FLOAT, 2),
                                64,
                                ElementType.FLOAT,
                                2,
                                1e-6))
                .containsExactly(
                        "# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=matrix nranks=2 matrix_dim=2"
                                + " scale=1.000 time_usec=1.00",
                        "#   rank=0 send_bytes=64 recv_bytes=32 alg_bw=0.06 bus_bw=0.03",
                        "#   rank=1 send_bytes=32 recv_bytes=64 alg_bw=0.06 bus_bw=0.03");
    }
}
