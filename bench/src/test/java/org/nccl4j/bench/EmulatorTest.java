package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.ObjectMapper;

/**
 * The command over NCCL's backend on the emulator, which {@code bench/bench --emulator} builds in
 * the same folder. It shows that the whole way works, and nothing about the speed of a GPU.
 */
@Timeout(180)
final class EmulatorTest {

    private static final int NO_COMPILER = 3;

    private static Path libraries;

    @TempDir private Path folder;

    /** What a run printed. */
    private record Output(int status, List<String> out, List<String> err) {
        List<String> rows() {
            return out.stream().filter(line -> line.matches("^ +\\d.*")).toList();
        }
    }

    @BeforeAll
    @Timeout(180)
    static void build() throws Exception {
        Path script = Path.of("..", "hardware-tests", "emulator", "build.sh").toRealPath();
        libraries = Path.of("target", "emulator").toAbsolutePath();
        Path log = Files.createTempFile("emulator-build", ".log");
        try {
            Process process =
                    new ProcessBuilder(script.toString(), libraries.toString())
                            .redirectErrorStream(true)
                            .redirectOutput(log.toFile())
                            .start();
            assertThat(process.waitFor(170, TimeUnit.SECONDS)).isTrue();
            String said = Files.readString(log).strip();
            assumeTrue(process.exitValue() != NO_COMPILER, () -> "unsupported: " + said);
            assertThat(process.exitValue()).as(said).isZero();
        } finally {
            Files.delete(log);
        }
    }

    private Output run(String version, String line) throws IOException, InterruptedException {
        Path out = folder.resolve("out");
        Path err = folder.resolve("err");
        Path misuse = folder.resolve("misuse");
        ProcessBuilder builder =
                BenchProcess.of(List.of(), new ArrayList<>(List.of(line.split(" "))));
        builder.environment().keySet().removeIf(name -> name.startsWith("NCCL"));
        builder.environment().put("NCCL4J_LIBRARY_PATH", libraries.resolve(version).toString());
        builder.environment().put("NCCL4J_EMULATOR_MISUSE_FILE", misuse.toString());
        Process process = builder.redirectOutput(out.toFile()).redirectError(err.toFile()).start();
        try {
            assertThat(process.waitFor(90, TimeUnit.SECONDS)).as(line).isTrue();
        } finally {
            process.destroyForcibly();
        }
        assertThat(misuse).as("misuse of CUDA or NCCL").doesNotExist();
        return new Output(process.exitValue(), Files.readAllLines(out), Files.readAllLines(err));
    }

    @ParameterizedTest
    @CsvSource({
        "2.30, allreduce -g 8 -b 1K -e 1M -n 2, 11, 23007",
        "2.30, alltoallv -t 2 -g 2 -b 4K -e 256K -f 8 -n 2 -c 2 --comm-blocking 0, 3, 23007",
        "2.30, hypercube -g 4 -b 4K -e 4K -n 2 -y 1 -I 1, 1, 23007",
        "2.18, reduce_scatter -g 3 -b 4K -e 4K -n 2 -o all -p 1, 6, 21805"
    })
    void everyRowIsVerified(String version, String words, int rows, int code) throws Exception {
        Path file = folder.resolve("out.json");
        Output output =
                run(version, words + " --backend nccl --emulator --jit-warmup 0.1 -J " + file);
        assertThat(output.status()).as("%s", output).isZero();
        assertThat(output.err())
                .containsExactly(
                        "bench: this is the emulator and not a GPU: results are checked as always,"
                                + " times mean nothing");
        assertThat(output.out())
                .contains(
                        "# nccl-tests version 2.19.6 nccl-headers=23007 nccl-library=" + code,
                        "# Out of bounds values : 0 OK")
                .anyMatch(line -> line.startsWith("# Emulator: "))
                .anyMatch(line -> line.matches("#  Rank  0 .* nccl4j emulator device 0"));
        assertThat(output.rows()).hasSize(rows);
        JsonNode json = new ObjectMapper().readTree(file.toFile());
        assertThat(json.get("nccl_version").asInt()).isEqualTo(code);
        assertThat(json.get("emulator").asString()).isEqualTo("true");
        for (JsonNode row : json.get("results")) {
            assertThat(row.get("out_of_place").get("nwrong").asDouble()).isZero();
        }
    }

    @Test
    void infoNamesTheLibrariesAndDevices() throws Exception {
        Output output = run("2.18", "info");
        assertThat(output.status()).isZero();
        assertThat(output.out())
                .hasSizeLessThan(80)
                .anyMatch(line -> line.matches("  nccl +available: NCCL 2\\.18\\.5.*"))
                .anyMatch(line -> line.matches("  nccl +NCCL 2\\.18\\.5 \\(21805\\) /.*2\\.18/.*"))
                .anyMatch(line -> line.contains("nccl4j emulator device 7, "))
                .noneMatch(line -> line.contains("cannot be told"));
        assertThat(output.err()).isEmpty();
    }
}
