package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.ObjectMapper;

/** {@code --algo} and {@code --show-algo} on the CPU backend. */
final class AlgorithmOptionTest {

    @TempDir private Path folder;

    @ParameterizedTest
    @CsvSource({
        "all_reduce, tree, tree",
        "all_reduce, direct, direct",
        "all_reduce, reference, reference",
        "alltoall, 'bruck,tree', bruck",
        "reduce, 'bruck,tree', tree",
        // What an algorithm cannot do, and hypercube's sends and receives.
        "sendrecv, tree, reference",
        "gather, tree, reference",
        "hypercube, direct, direct"
    })
    void whatWasAskedForRunsAndIsNamed(String program, String given, String ran) {
        RunningBench run =
                RunningBench.run(
                        program + " -g 2 -b 1K -e 2K -n 2 --show-algo --algo " + given.strip());
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.OK);
        assertThat(run.rows())
                .hasSize(2)
                .allSatisfy(row -> assertThat(row[row.length - 1]).isEqualTo(ran));
        assertThat(run.console.outLines())
                .anyMatch(line -> line.startsWith("#") && line.endsWith(" #wrong  algo"));
    }

    @Test
    void theLastColumnStandsBehindTheTimestampAndInTheFile() throws IOException {
        Path file = folder.resolve("r.json");
        RunningBench run =
                RunningBench.run(
                        "all_reduce -g 2 -b 1K -e 1K -n 2 -S 1 --show-algo=1 --algo two-shot -J "
                                + file);
        assertThat(run.console.outLines())
                .anyMatch(line -> line.matches(" +1024 .* \\d\\d:\\d\\d:\\d\\d  two-shot"));
        JsonNode row = new ObjectMapper().readTree(file.toFile()).get("results").get(0);
        assertThat(row.get("algorithm").asString()).isEqualTo("two-shot");
    }

    @Test
    void theTableIsUnchangedUnlessAskedFor() throws IOException {
        Path file = folder.resolve("r.json");
        RunningBench run =
                RunningBench.run("all_reduce -g 2 -b 1K -e 1K -n 2 --show-algo=0 -J " + file);
        assertThat(run.rows().getFirst()).hasSize(13);
        JsonNode row = new ObjectMapper().readTree(file.toFile()).get("results").get(0);
        assertThat(row.has("algorithm")).isFalse();
    }

    @ParameterizedTest
    @CsvSource({
        "all_reduce, bruck, 'bench: bruck does not do all-reduce; reference runs it'",
        "sendrecv, 'ring,bruck', 'bench: ring,bruck does not do sendrecv; reference runs it'"
    })
    void whatAnAlgorithmCannotDoIsSaidToBeRunByAnother(String program, String given, String line) {
        RunningBench run = RunningBench.run(program + " -g 2 -b 1K -e 1K -n 2 --algo " + given);
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.OK);
        assertThat(run.console.err().lines()).contains(line);
    }

    @ParameterizedTest
    @CsvSource({"auto", "direct", "reference", "'tree, bruck'"})
    void whatRunsAsNamedIsSilent(String given) {
        RunningBench run =
                RunningBench.run(
                        "all_reduce -g 2 -b 1K -e 1K -n 2 --algo=" + given.replace(" ", ""));
        assertThat(run.console.err()).doesNotContain("does not do");
    }

    @Test
    void aNameThatDoesNotExistIsRefusedBeforeTheTable() {
        RunningBench run = RunningBench.run("all_reduce -g 2 --algo halving-dubling");
        assertThat(run.code).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(run.console.out()).isEmpty();
        assertThat(run.console.err())
                .startsWith("bench: --algo: algorithm 'halving-dubling': there is no algorithm")
                .contains("(did you mean halving-doubling?)");
    }

    @Test
    void anAlgorithmThatIsNamedTwiceIsRefusedBeforeTheTable() {
        RunningBench run = RunningBench.run("all_reduce -g 2 --algo ring,ring");
        assertThat(run.code).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(run.console.out()).isEmpty();
        assertThat(run.console.err())
                .isEqualToIgnoringNewLines(
                        "bench: --algo: algorithm 'ring,ring': 'ring' is named twice: name it once");
    }

    @ParameterizedTest
    @CsvSource({"--algo ring, --algo", "--show-algo, --show-algo"})
    void ncclChoosesItself(String option, String named) {
        CapturedConsole captured = new CapturedConsole();
        CommandLine.Outcome outcome =
                CommandLine.parse(
                        List.of(("all_reduce " + option).split(" ")),
                        name -> Facts.nccl(23007),
                        captured.console());
        assertThat(outcome).isEqualTo(new CommandLine.Exit(ExitCode.UNSUPPORTED));
        assertThat(captured.err())
                .startsWith("bench: " + named + ": NCCL chooses its algorithms itself");
    }
}
