package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * {@code bench/peers/compare} and {@code growth} as far as they need no peer and measure nothing.
 */
final class PeersComparisonTest {

    private static final Path SCRIPTS = Path.of("peers").toAbsolutePath();
    private static final Path ROUNDS = Path.of("src/test/resources/org/nccl4j/bench/peers.csv");

    @TempDir private Path folder;

    private PythonScript scripts;

    @BeforeEach
    void findPython() throws Exception {
        scripts = new PythonScript(folder);
    }

    private PythonScript.Result run(String script, String... arguments) throws Exception {
        return scripts.run(Map.of(), SCRIPTS.resolve(script), arguments);
    }

    /** However narrow the terminal, a value that somebody may copy is on one line. */
    @ParameterizedTest
    @CsvSource({
        "peers/compare, openmpi-keep",
        "peers/growth, double-tree",
        "check-selector, --csv"
    })
    void helpHasExamplesAndNeedsNothing(String script, String word) throws Exception {
        for (int columns = 40; columns <= 120; columns += 8) {
            PythonScript.Result help =
                    scripts.run(
                            Map.of("COLUMNS", Integer.toString(columns)),
                            SCRIPTS.resolveSibling(script),
                            "--help");
            assertThat(help.status()).isZero();
            assertThat(help.out().lines())
                    .contains("examples:")
                    .anyMatch(line -> line.contains("bench/" + script))
                    .anyMatch(line -> line.contains(word))
                    .noneMatch(line -> line.endsWith("-"));
            assertThat(help.err()).isEmpty();
        }
    }

    @Test
    void anOptionThatDoesNotExistIsAnsweredWithThoseThatDo() throws Exception {
        PythonScript.Result refused = run("compare", "--op", "allreduce,gatherall");
        assertThat(refused.status()).isEqualTo(2);
        assertThat(refused.out()).isEmpty();
        assertThat(refused.err())
                .contains("there is no gatherall", "allreduce", "sendrecv")
                .contains("did you mean allgather?");
    }

    @ParameterizedTest
    @CsvSource({
        "peers/compare, --opp, --op",
        "peers/growth, --byts=1M, --bytes",
        "check-selector, --qick, --quick"
    })
    void aMistypedOptionIsAnsweredWithTheNearest(String script, String typed, String meant)
            throws Exception {
        PythonScript.Result refused =
                scripts.run(Map.of(), SCRIPTS.resolveSibling(script), "--rounds", "3", typed);
        assertThat(refused.status()).isEqualTo(2);
        assertThat(refused.err())
                .endsWith(
                        "error: unrecognized arguments: "
                                + typed
                                + " (did you mean "
                                + meant
                                + "?)\n");
        assertThat(scripts.run(Map.of(), SCRIPTS.resolveSibling(script), "--xx").err())
                .endsWith("error: unrecognized arguments: --xx\n");
    }

    @ParameterizedTest
    @ValueSource(strings = {"peers/compare", "peers/growth", "check-selector"})
    void aLinkRunsTheScriptThatItLeadsTo(String script) throws Exception {
        Path link =
                Files.createSymbolicLink(
                        folder.resolve("link"), SCRIPTS.resolveSibling(script).toAbsolutePath());
        PythonScript.Result help = scripts.run(Map.of(), link, "--help");
        Files.delete(link);
        assertThat(help.status()).as("%s", help).isZero();
        assertThat(help.out()).startsWith("usage: bench/" + script);
    }

    /**
     * {@code compare} with programs that measure nothing: three cells of one round, and a signal at
     * a turn.
     */
    private PythonScript.Result pretend(int signalledTurn, String signal, String... more)
            throws Exception {
        Path driver =
                Files.writeString(
                        folder.resolve("driver.py"),
                        """
                        import importlib.machinery, importlib.util, os, signal, sys
                        sys.dont_write_bytecode = True
                        # Whoever starts the build in the background may have it ignored.
                        signal.signal(signal.SIGINT, signal.default_int_handler)
                        path, turn, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
                        loader = importlib.machinery.SourceFileLoader("compare", path)
                        compare = importlib.util.module_from_spec(
                            importlib.util.spec_from_loader("compare", loader))
                        loader.exec_module(compare)
                        sys.argv = ["compare", *sys.argv[4:]]
                        turns = [0]

                        class Program:
                            def __init__(self, series):
                                self.series = series

                            def turn(self):
                                turns[0] += 1
                                if turns[0] == turn:
                                    os.kill(os.getpid(), getattr(signal, name))
                                return [(self.series, 10.0)], 0

                            def close(self):
                                pass

                            kill = close

                        programs = compare.programs
                        programs.missing = lambda kinds: {}
                        programs.build = lambda kinds, say: None
                        programs.facts = lambda kinds: {}
                        programs.start = lambda folder, series, *rest: Program(series)
                        try:
                            sys.exit(compare.main())
                        except compare.Terminated:
                            sys.exit(143)
                        except KeyboardInterrupt:
                            sys.exit(130)
                        """);
        List<String> words =
                new ArrayList<>(
                        List.of(
                                SCRIPTS.resolve("compare").toString(),
                                Integer.toString(signalledTurn),
                                signal,
                                "--op=allreduce",
                                "--ranks=2",
                                "--sizes=1K,2K,4K",
                                "--peers=none",
                                "--variants=none",
                                "--rounds=1",
                                "--csv=" + folder.resolve("pretended.csv")));
        words.addAll(List.of(more));
        return scripts.run(Map.of(), driver, words.toArray(String[]::new));
    }

    @Test
    void whereThereIsNoTerminalEachCellIsALine() throws Exception {
        PythonScript.Result result = pretend(0, "SIGTERM");
        assertThat(result.status()).as("%s", result).isZero();
        assertThat(result.err().lines())
                .containsExactly(
                        "compare: 1 of 3 cells done, about 1 min left",
                        "compare: 2 of 3 cells done, about 1 min left",
                        "compare: 3 of 3 cells done");
    }

    /** Ours and the bound take a turn per cell, so the third turn is in the second cell. */
    @ParameterizedTest
    @CsvSource({"SIGTERM, 143", "SIGINT, 130"})
    void anInterruptedComparisonSaysHowToGoOn(String signal, int status) throws Exception {
        PythonScript.Result result = pretend(3, signal);
        assertThat(result.status()).as("%s", result).isEqualTo(status);
        assertThat(result.out()).isEmpty();
        assertThat(result.err().lines())
                .containsExactly(
                        "compare: 1 of 3 cells done, about 1 min left",
                        "compare: interrupted; --resume goes on");
        assertThat(pretend(0, signal, "--resume").err().lines())
                .containsExactly(
                        "compare: 2 of 3 cells done, about 1 min left",
                        "compare: 3 of 3 cells done");
    }

    /** The file has what each row below says; times of a row are of one round after the other. */
    @Test
    void recordedRoundsGiveVerdicts() throws Exception {
        Path markdown = folder.resolve("table.md");
        Path svg = folder.resolve("plot.svg");
        PythonScript.Result result =
                run(
                        "compare",
                        "--report",
                        ROUNDS.toString(),
                        "--markdown",
                        markdown.toString(),
                        "--svg",
                        svg.toString());
        assertThat(result.err()).isEmpty();
        assertThat(result.status()).isZero();
        assertThat(Files.readAllLines(markdown))
                // The median of 25/10, 30/20, 20/10, 30/10, 21/10; bfloat16 against the same peer.
                .anyMatch(row ->
                        row.startsWith("| 64K | 10.0 (10.0-20.0) | 25.0 | 100 |")
                                && row.contains("| 2.10 (1.50-3.00) openmpi-keep | 2.00 | yes |")
                                && row.contains("| 8.00 (8.00-8.00) | 16.0 |")
                                && row.contains("| 0.800 (0.400-0.800) | yes |")
                                && row.endsWith("| 1.00 (0.833-1.25) openmpi-keep | yes |"))
                // No ratio is asked of a broadcast of 1 KiB, but a share of the bound is.
                .anyMatch(row ->
                        row.startsWith("| 1K |")
                                && row.contains("| 0.200 (0.200-0.200) mpich-keep |  |  |")
                                && row.contains("| 0.400 (0.400-0.400) | **no** |"))
                // Below the peer, but as near as the bound can come to it.
                .anyMatch(row ->
                        row.startsWith("| 256M |")
                                && row.contains("| failed |")
                                && row.contains(
                                        "| 0.952 (0.952-0.952) gloo | 0.900 (bound) | yes |"))
                // Faster than the peer, but not by a fifth.
                .anyMatch(row -> row.contains("| 1.10 (1.10-1.10) openmpi-keep | 1.20 | **no** |"));
        assertThat(result.out())
                .contains("# machine: a machine, 2 cores", "commit abc123")
                .contains("ratios met: 3 of 4; share of the bound met: 2 of 4")
                .contains("failed: sendrecv, 2 ranks, 256M: mpj: ended with status 0");
        assertThat(Files.readString(svg))
                .startsWith("<svg")
                .contains("polyline")
                .endsWith("</svg>\n");
    }

    @Test
    void aFileOfSomethingElseIsRefused() throws Exception {
        Path other = Files.writeString(folder.resolve("other.csv"), "a,b\n1,2\n");
        PythonScript.Result refused = run("compare", "--report", other.toString());
        assertThat(refused.status()).isEqualTo(2);
        assertThat(refused.err()).contains("other.csv cannot be read as rows of compare");
    }

    /** A line that was torn when the machine went down is none. */
    @Test
    void rowsWithoutAnEndAreLeftOut() throws Exception {
        String whole = Files.readString(ROUNDS);
        Path torn =
                Files.writeString(folder.resolve("torn.csv"), whole + "allreduce,2,65536,r.9,nc");
        assertThat(run("compare", "--report", torn.toString()))
                .isEqualTo(run("compare", "--report", ROUNDS.toString()));
    }

    /** Nothing is installed unless asked for. */
    @Test
    void missingPackagesAreNamed() throws Exception {
        Path empty = Files.createDirectory(folder.resolve("empty"));
        PythonScript.Result refused =
                scripts.run(
                        Map.of("PATH", empty.toString()),
                        SCRIPTS.resolve("compare"),
                        "--peers",
                        "openmpi-keep");
        assertThat(refused.status()).isEqualTo(2);
        assertThat(refused.out()).isEmpty();
        assertThat(refused.err())
                .contains(
                        "openmpi is not installed; Debian has it in gcc libopenmpi-dev openmpi-bin")
                .contains("apt-get install -y --no-install-recommends", "--install", "--peers");
    }
}
