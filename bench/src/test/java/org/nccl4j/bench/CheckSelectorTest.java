package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.DataType;

/**
 * {@code bench/check-selector} in a small tree whose {@code bench/bench} is a script that measures
 * nothing: each algorithm takes what the test says.
 */
@Timeout(120)
final class CheckSelectorTest {

    /** Two sizes, two algorithms beside auto, two rounds. */
    private static final String[] SMALL = {
        "-e", "4K", "-f", "4", "--rounds", "2", "--algorithms", "direct,ring"
    };

    /**
     * Notes each call; hangs at the one whose number is in a file; else writes a row per size, with
     * the microseconds that the environment has for the algorithm.
     */
    private static final String BENCH =
            """
            #!/bin/sh
            here=$(dirname "$0")
            all=$*
            while [ $# -gt 0 ]; do
                case $1 in
                --algo) algo=$2 ;;
                -J) out=$2 ;;
                esac
                shift
            done
            echo "$algo $all" >>"$here/calls"
            [ "$(wc -l <"$here/calls")" != "$HANG_AT" ] || exec sleep 100
            eval "time=\\${US_$algo-10}"
            [ "$time" != fails ] || { echo "bench: no memory" >&2; exit 3; }
            row() {
                printf '{"size":%s,"algorithm":"%s","out_of_place":{"time":%s},"in_place":{"time":99}}' \
                    "$1" "$([ "$algo" = auto ] && echo direct || echo "$algo")" "$time"
            }
            printf '{"results":[%s,%s]}' "$(row 1024)" "$(row 4096)" >"$out"
            """;

    @TempDir private Path folder;

    private PythonScript scripts;
    private Path tree;
    private Path csv;

    @BeforeEach
    void plant() throws Exception {
        scripts = new PythonScript(folder);
        tree = folder.resolve("tree");
        csv = tree.resolve("bench/target/check-selector.csv");
        Path checkout = Path.of("").toAbsolutePath().getParent();
        List<String> files = new ArrayList<>(List.of(".mvn/jdk25.sh", "bench/check-selector"));
        try (Stream<Path> modules = Files.list(checkout.resolve("bench/peers"))) {
            modules.map(Path::getFileName)
                    .map(Path::toString)
                    .filter(name -> name.endsWith(".py"))
                    .forEach(name -> files.add("bench/peers/" + name));
        }
        for (String file : files) {
            Path copy = tree.resolve(file);
            Files.createDirectories(copy.getParent());
            Files.copy(checkout.resolve(file), copy);
        }
        Path bench = Files.writeString(tree.resolve("bench/bench"), BENCH);
        Files.setPosixFilePermissions(bench, PosixFilePermissions.fromString("rwxr-xr-x"));
    }

    private PythonScript.Result run(Map<String, String> environment, String... arguments)
            throws Exception {
        return scripts.run(environment, tree.resolve("bench/check-selector"), arguments);
    }

    private static String[] small(String... more) {
        return Stream.concat(Stream.of(SMALL), Stream.of(more)).toArray(String[]::new);
    }

    /** The algorithms that were run, in order. */
    private List<String> calls() throws IOException {
        Path calls = tree.resolve("bench/calls");
        return Files.exists(calls)
                ? Files.readAllLines(calls).stream().map(line -> line.split(" ")[0]).toList()
                : List.of();
    }

    @Test
    void theChoiceIsComparedInAlternatingRounds() throws Exception {
        PythonScript.Result ok = run(Map.of("US_ring", "20"), small());
        assertThat(ok.status()).as("%s", ok).isZero();
        assertThat(ok.out())
                .contains("   1K direct              10.00 us  direct 1.00  ring 2.00\n")
                .contains("   4K direct              10.00 us  direct 1.00  ring 2.00\n")
                .contains("OK: ");
        assertThat(calls()).containsExactly("auto", "direct", "ring", "ring", "direct", "auto");
        assertThat(Files.readAllLines(tree.resolve("bench/calls")).getFirst())
                .startsWith(
                        "auto all_reduce --backend cpu -g 2 -b 1024 -e 4096 -f 4 -n 20 --jit-warmup 2");
        PythonScript.Result failed = run(Map.of("US_ring", "5"), small());
        assertThat(failed.status()).isEqualTo(1);
        assertThat(failed.out())
                .contains("FAILED 4K: ring is 2.00 times as fast as direct, which auto chooses");
        assertThat(Path.of(csv + ".before")).exists();
        // Its column was measured, too.
        assertThat(run(Map.of("US_ring", "5"), small("--cell", "in")).out()).contains("99.00 us");
    }

    /** The choice under its own name is the same code: what it is off by, noise can do. */
    @ParameterizedTest
    @CsvSource({"12, 0.83", "8, 1.25"})
    void whereTheControlIsOffNothingIsDecided(String control, String ratio) throws Exception {
        PythonScript.Result noisy = run(Map.of("US_direct", control, "US_ring", "20"), small());
        assertThat(noisy.status()).as("%s", noisy).isEqualTo(3);
        assertThat(noisy.out())
                .contains("undecided 1K: direct by its own name is " + ratio + " times as fast")
                .doesNotContain("OK", "FAILED");
        noisy = run(Map.of("US_direct", control, "US_ring", "5"), small());
        assertThat(noisy.status()).as("%s", noisy).isEqualTo(3);
        assertThat(noisy.out())
                .contains("undecided 4K: ring is 2.00 times as fast as direct")
                .doesNotContain("OK", "FAILED");
        assertThat(run(Map.of("US_direct", "10.5", "US_ring", "20"), small()).status()).isZero();
    }

    /** Killed with no time to say or to tidy up anything. */
    @Test
    void whatWasMeasuredBeforeAKillIsKeptAndNotMeasuredAgain() throws Exception {
        ProcessBuilder killed =
                scripts.builder(
                        Map.of("HANG_AT", "4"), tree.resolve("bench/check-selector"), small());
        Process process =
                killed.redirectOutput(ProcessBuilder.Redirect.DISCARD)
                        .redirectError(ProcessBuilder.Redirect.DISCARD)
                        .start();
        try {
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (calls().size() < 4) {
                assertThat(System.nanoTime()).isLessThan(deadline);
                LockSupport.parkNanos(Duration.ofMillis(10).toNanos());
            }
        } finally {
            process.destroyForcibly();
        }
        assertThat(process.waitFor(20, TimeUnit.SECONDS)).isTrue();
        // A header of two facts and the columns, and two sizes of three runs.
        List<String> rows = Files.readAllLines(csv);
        assertThat(rows).hasSize(3 + 6).last().asString().contains(",ring,4096,10,ring,");
        // As if it had been killed amid the second row of the third run.
        String torn = Files.readString(csv);
        Files.writeString(csv, torn.substring(0, torn.length() - 30));
        Files.delete(tree.resolve("bench/calls"));

        PythonScript.Result resumed = run(Map.of(), small("--resume"));
        assertThat(resumed.status()).as("%s", resumed).isZero();
        assertThat(calls()).containsExactly("ring", "ring", "direct", "auto");
        assertThat(Files.readAllLines(csv))
                .containsAll(rows.subList(0, 8))
                .hasSize(3 + 12 + 1)
                .allMatch(row -> row.startsWith("#") || row.split(",").length == 10);

        // All is there; other options are other runs.
        Files.delete(tree.resolve("bench/calls"));
        assertThat(run(Map.of(), small("--resume")).out()).isEqualTo(resumed.out());
        assertThat(calls()).isEmpty();
        assertThat(run(Map.of(), small("--resume", "-g", "4")).status()).isZero();
        assertThat(calls()).hasSize(6);
    }

    @Test
    void aRunThatFailsIsShownAndTheOthersAreKept() throws Exception {
        PythonScript.Result failed = run(Map.of("US_direct", "fails"), small());
        assertThat(failed.status()).isEqualTo(1);
        assertThat(failed.out()).isEmpty();
        assertThat(failed.err())
                .contains("--algo direct", "ended with 3:\nbench: no memory\n")
                .contains("check-selector: 1 of 6 runs are in " + csv + "; go on with --resume");
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = ';',
            value = {
                "alreduce; there is no alreduce; did you mean all_reduce?",
                "allreduce --algorithms direct,rign; there is no rign; did you mean ring?",
                "all_reduce_perf --algorithms Two_Shot; there is no Two_Shot; did you mean two-shot?",
                "alltoall --algorithms ring; there is no ring; there are: direct, reference, pairwise",
                "allgather --algorithms ring,ring; ring is there twice; --algorithms of all_gather",
                "allreduce --algorithms ,; it is empty; there are: direct",
                "allreduce -b 1X; 1X is no size; 64K",
                "allreduce -b 4K -e 1K; sizes must grow; -b",
                "allreduce --rounds 1; --rounds 1: one round has no spread; give 2 or more"
            })
    void whatDoesNotExistIsRefusedBeforeAnythingIsMeasured(String line, String why, String advice)
            throws Exception {
        PythonScript.Result refused = run(Map.of(), line.split(" "));
        assertThat(refused.status()).isEqualTo(2);
        assertThat(refused.out()).isEmpty();
        assertThat(refused.err()).contains("check-selector: error: ", why, advice);
        assertThat(calls()).isEmpty();
        assertThat(csv).doesNotExist();
    }

    @Test
    void aFileOfSomethingElseIsLeftAlone() throws Exception {
        Path other = Files.writeString(folder.resolve("other.csv"), "a,b\n1,2\n");
        PythonScript.Result refused = run(Map.of(), "--resume", "--csv", other.toString());
        assertThat(refused.status()).isEqualTo(2);
        assertThat(refused.err()).contains("its columns are a,b, not program,");
        assertThat(other).hasContent("a,b\n1,2\n");
    }

    /** The script has a list of its own, so that it need not start a JVM to refuse a name. */
    @ParameterizedTest
    @CsvSource({"all_reduce", "reduce_scatter", "all_gather", "reduce", "broadcast", "alltoall"})
    void itKnowsTheAlgorithmsThatThereAre(String collective) throws Exception {
        Backend cpu = Backends.named("cpu");
        String refusal =
                catchThrowable(() ->
                                cpu.explain(
                                        collective, Optional.of("qqqq"), 4, DataType.FLOAT32, 4096))
                        .getMessage();
        assertThat(refusal).contains("only ");
        assertThat(run(Map.of(), collective, "--algorithms", "qqqq").err())
                .contains(
                        "there are: direct, reference, "
                                + refusal.substring(refusal.indexOf("only ") + "only ".length()));
    }
}
