package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.Backends;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.ObjectMapper;

/** The command as a process: signals, pipes and exit status. */
final class BenchProcessTest {

    @TempDir private Path folder;

    /** What runs the command. */
    private List<String> prefix = List.of();

    private Process process;

    private BufferedReader start(String... arguments) throws IOException {
        ProcessBuilder builder = BenchProcess.of(prefix, List.of(arguments));
        builder.environment().put("NCCL_DEBUG", "INFO");
        builder.redirectError(folder.resolve("stderr").toFile());
        process = builder.start();
        return process.inputReader(StandardCharsets.UTF_8);
    }

    @AfterEach
    void end() {
        if (process != null) {
            process.destroyForcibly();
        }
    }

    private String standardError() throws IOException {
        return Files.readString(folder.resolve("stderr"));
    }

    @Test
    void aSignalPrintsTheFooterAndClosesTheFile() throws Exception {
        Path json = folder.resolve("out.json");
        Path trace = folder.resolve("trace.jsonl");
        BufferedReader out =
                start(
                        "all_reduce",
                        "--backend",
                        "cpu",
                        "-g",
                        "2",
                        "-b",
                        "1K",
                        "-e",
                        "64K",
                        "-N",
                        "0",
                        "-J",
                        json.toString(),
                        "--trace",
                        trace.toString());
        List<String> lines = new ArrayList<>();
        while (lines.stream().filter(line -> line.startsWith(" ")).count() < 10) {
            lines.add(out.readLine());
        }
        // By its handle, because Process.destroy also closes the pipe that the footer comes
        // through.
        assertThat(process.toHandle().destroy()).isTrue();
        out.lines().forEach(lines::add);
        assertThat(process.waitFor(20, TimeUnit.SECONDS)).isTrue();
        assertThat(process.exitValue()).isEqualTo(ExitCode.INTERRUPTED.status());
        assertThat(lines.subList(lines.size() - 4, lines.size()))
                .containsExactly("#", "# Collective test concluded: all_reduce_perf", "#", "");
        ObjectMapper mapper = new ObjectMapper();
        JsonNode file = mapper.readTree(json.toFile());
        assertThat(file.has("end_time")).isTrue();
        long rows = lines.stream().filter(line -> line.startsWith(" ")).count();
        assertThat(file.get("results").size()).isEqualTo((int) rows);
        for (String step : Files.readAllLines(trace)) {
            assertThat(mapper.readTree(step).isObject()).isTrue();
        }
        assertThat(standardError().strip())
                .isEqualTo(
                        "bench: interrupted after "
                                + rows
                                + " rows; the average is of what had run");
    }

    @Test
    void aSignalEndsARunWhoseReaderSleeps() throws Exception {
        start(
                "all_reduce",
                "--backend",
                "cpu",
                "-g",
                "2",
                "-b",
                "8",
                "-e",
                "8",
                "-n",
                "1",
                "-N",
                "0");
        // Nobody reads: rows come until the pipe (64 KiB, less what a row leaves in a page) is
        // full.
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (process.getInputStream().available() < 63_000) {
            assertThat(System.nanoTime()).isLessThan(deadline);
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
        }
        assertThat(process.toHandle().destroy()).isTrue();
        assertThat(process.waitFor(20, TimeUnit.SECONDS)).isTrue();
        assertThat(process.exitValue()).isEqualTo(ExitCode.INTERRUPTED.status());
    }

    /** The file-size limit of the process answers as a full disk does. */
    @Test
    void aFileThatCannotBeWrittenFailsTheRun() throws Exception {
        assumeTrue(Files.exists(Path.of("/bin/bash")), "unsupported: there is no bash");
        Path json = folder.resolve("out.json");
        prefix = List.of("/bin/bash", "-c", "ulimit -f 8; exec \"$@\"", "bash");
        List<String> lines =
                start(
                                "all_reduce",
                                "--backend",
                                "cpu",
                                "-g",
                                "2",
                                "-b",
                                "8",
                                "-e",
                                "8",
                                "-N",
                                "0",
                                "-J",
                                "" + json)
                        .lines()
                        .toList();
        assertThat(process.waitFor(20, TimeUnit.SECONDS)).isTrue();
        assertThat(process.exitValue()).isEqualTo(ExitCode.INTERNAL.status());
        assertThat(json).hasSize(8192);
        assertThat(lines).noneMatch(line -> line.contains("concluded"));
        assertThat(lines.getLast()).contains("Test failure");
        assertThat(standardError())
                .startsWith("bench: -J " + json + ": File too large; ")
                .hasLineCount(1);
    }

    @Test
    void aSignalAtTheStartLeavesNoFileOrAValidOne() throws Exception {
        Path json = folder.resolve("out.json");
        BufferedReader out =
                start(
                        "all_reduce",
                        "--backend",
                        "cpu",
                        "-g",
                        "2",
                        "-N",
                        "0",
                        "-J",
                        json.toString());
        assertThat(out.readLine()).startsWith("# Writing JSON");
        assertThat(process.toHandle().destroy()).isTrue();
        List<String> rest = out.lines().toList();
        assertThat(process.waitFor(20, TimeUnit.SECONDS)).isTrue();
        assertThat(process.exitValue()).isEqualTo(ExitCode.INTERRUPTED.status());
        assertThat(rest).noneMatch(line -> line.contains("failure"));
        assertThat(new ObjectMapper().readTree(json.toFile()).has("start_time")).isTrue();
    }

    @Test
    void aReaderThatLeavesEndsTheRun() throws Exception {
        BufferedReader out =
                start(
                        "all_reduce",
                        "--backend",
                        "cpu",
                        "-g",
                        "2",
                        "-b",
                        "1K",
                        "-e",
                        "2K",
                        "-N",
                        "0");
        assertThat(out.readLine()).startsWith("# nccl-tests version");
        out.close();
        assertThat(process.waitFor(20, TimeUnit.SECONDS)).isTrue();
        assertThat(process.exitValue()).isEqualTo(ExitCode.OUTPUT_CLOSED.status());
        assertThat(standardError()).isEmpty();
    }

    @Test
    void theExitStatusIsTheRuns() throws Exception {
        assertThat(start("all_reduce", "-b", "2M", "-e", "1M").lines()).isEmpty();
        assertThat(process.waitFor(20, TimeUnit.SECONDS)).isTrue();
        assertThat(process.exitValue()).isEqualTo(255);
        assertThat(standardError())
                .isEqualTo("invalid sizes for 'minbytes' and 'maxbytes': 2097152 > 1048576\n");
    }

    @Test
    void ncclWhereItCannotRunIsRefusedInOneMessage() throws Exception {
        assumeTrue(
                Backends.installed().stream()
                        .filter(backend -> backend.name().equals("nccl"))
                        .allMatch(nccl -> nccl.availability() instanceof Availability.Unavailable),
                "unsupported: NCCL runs here");
        assertThat(start("all_reduce", "--backend", "nccl").lines()).isEmpty();
        assertThat(process.waitFor(20, TimeUnit.SECONDS)).isTrue();
        assertThat(process.exitValue()).isEqualTo(ExitCode.UNSUPPORTED.status());
        assertThat(standardError())
                .startsWith("bench: --backend nccl cannot be used here: ")
                .endsWith("--emulator stands in for one)\n");
    }

    @Test
    void infoTellsOfTheRealMachine() throws Exception {
        List<String> lines = start("info").lines().toList();
        assertThat(process.waitFor(30, TimeUnit.SECONDS)).isTrue();
        assertThat(process.exitValue()).isZero();
        assertThat(lines)
                .hasSizeLessThan(80)
                .contains("Backends", "Libraries", "Devices", "Java", "Machine", "Environment")
                .anyMatch(line -> line.matches("  NCCL_DEBUG +INFO"))
                .anyMatch(line -> line.matches("  nccl +(not )?available: .*"))
                .anyMatch(line -> line.matches("  flags +--enable-native-access=ALL-UNNAMED .*"))
                .noneMatch(line -> line.contains("cannot be told"));
        assertThat(standardError()).isEmpty();
    }

    @Test
    void aWholeRunSaysNothingOnStandardError() throws Exception {
        List<String> lines =
                start("allreduce", "--backend", "cpu", "-b", "1K", "-e", "4K").lines().toList();
        assertThat(process.waitFor(20, TimeUnit.SECONDS)).isTrue();
        assertThat(process.exitValue()).isZero();
        assertThat(lines.getLast()).isEmpty();
        assertThat(lines.stream().filter(line -> line.matches("^ +\\d.*"))).hasSize(3);
        assertThat(lines.stream().filter(line -> !line.matches("(#.*|^ +\\d.*|)"))).isEmpty();
        assertThat(standardError()).isEmpty();
    }
}
