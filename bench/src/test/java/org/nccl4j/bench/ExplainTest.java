package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.nccl4j.collectives.Backends;

/** {@code bench explain} on the CPU backend. */
final class ExplainTest {

    @TempDir private Path folder;

    private static RunningBench explain(String line) {
        return RunningBench.info("explain " + line, bench -> bench.found = Backends.named("cpu"));
    }

    @Test
    void showsStepsAndBytes() {
        RunningBench run = explain("allreduce --algo ring -g 4 -b 4K");
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.OK);
        assertThat(run.console.err()).isEmpty();
        List<String> lines = run.console.outLines();
        assertThat(lines)
                .startsWith("all-reduce by ring, 4 ranks, 4096 bytes in 4 chunks: 6 steps")
                .contains("sent      6144    6144    6144    6144    6144");
    }

    @Test
    void writesAPicture() throws IOException {
        Path file = folder.resolve("bruck.svg");
        RunningBench run = explain("all_to_all --algo=bruck -g 6 -d int8 -b 600 --svg " + file);
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.OK);
        assertThat(Files.readString(file)).startsWith("<svg ").contains("all-to-all by bruck");
        assertThat(run.console.err()).isEqualToIgnoringNewLines("bench: the picture is in " + file);
        RunningBench nowhere = explain("alltoall --svg " + folder.resolve("none/x.svg"));
        assertThat(nowhere.code).isEqualTo(ExitCode.INTERNAL);
        assertThat(nowhere.console.err()).contains("cannot be written");
    }

    @Test
    void everyCollectiveHasAnAlgorithm() {
        for (String collective :
                List.of(
                        "all_reduce",
                        "reduce_scatter_perf",
                        "allgather",
                        "reduce",
                        "broadcast",
                        "alltoall")) {
            RunningBench run = explain(collective);
            assertThat(run.code).as("%s", run).isEqualTo(ExitCode.OK);
            assertThat(run.console.out()).contains(", 4 ranks, 4096 bytes");
        }
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "allreduce --algo rign | there is no algorithm 'rign', only ring, tree,",
                "allreduce --algo rign | (did you mean ring?)",
                "allreduce --algo direct | has no steps to show, see docs/algorithms.md",
                "alltoall --algo reference | with steps there are pairwise, bruck,",
                "allreduce --algo auto | bench --show-algo tells which it takes;",
                "allreduc | (did you mean all-reduce?)",
                "sendrecv | no algorithm is described for 'sendrecv'",
                "allreduce --algos ring | unknown option --algos. Did you mean --algo?",
                "allreduce --ranks 4 | unknown option --ranks. Did you mean --ngpus?",
                "allreduce reduce | one collective at a time",
                "allreduce -g | -g needs a value",
                "allreduce -g 0 | the number of ranks must be 1 or more",
                "allreduce -g 9999 | 9999 ranks, must be 1 to 256",
                "allreduce -b many | -b many is no size",
                "allreduce -d fp32 | Did you mean float?",
                "--algo ring | name a collective"
            })
    void refusesWithAdvice(String line, String advice) {
        RunningBench run = explain(line);
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(run.console.err()).startsWith("bench: ").contains(advice);
        assertThat(run.console.out()).isEmpty();
    }

    @Test
    void helpListsEveryAlgorithmOfACollective() {
        String help = String.join(" ", Help.explain()).replaceAll(" +", " ");
        for (String collective :
                List.of(
                        "all_reduce",
                        "reduce_scatter",
                        "all_gather",
                        "reduce",
                        "broadcast",
                        "alltoall")) {
            String refusal = explain(collective + " --algo none").console.err();
            String names = refusal.replaceAll("(?s).*, only ([a-z0-9, -]+).*", "$1").strip();
            assertThat(help).contains(" " + collective + " " + names + " ");
        }
    }

    @Test
    void helpIsGivenAndFitsATerminal() {
        RunningBench run = explain("--help");
        assertThat(run.code).isEqualTo(ExitCode.OK);
        assertThat(run.console.outLines())
                .startsWith("USAGE: bench explain <collective> [options]")
                .allMatch(line -> line.length() <= 100);
        List<String> overview = new ArrayList<>(Help.overview());
        assertThat(overview).anyMatch(line -> line.contains("bench explain <collective>"));
    }
}
