package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The usage keeps nccl-tests' shape and order; what is ours is all there. */
final class HelpTest {

    @ParameterizedTest
    @EnumSource(Program.class)
    void usage(Program program) {
        List<String> lines = Help.usage(program);
        assertThat(lines.getFirst()).isEqualTo("USAGE: " + program.label() + "_perf ");
        List<String> options = lines.subList(1, 33);
        String order =
                options.stream().map(line -> line.substring(3, 4)).collect(Collectors.joining(" "));
        assertThat(order)
                .isEqualTo("t g b e i f n m w N p c o d r z y T G C S J a R x D V M u I K h");
        assertThat(options.subList(0, 31))
                .allMatch(line -> line.matches("\t\\[-[a-zA-Z],--[a-z_]+ <[^>]+>] "));
        assertThat(options.getLast()).isEqualTo("\t[-h,--help] ");
        assertThat(lines.get(33)).isEmpty();
    }

    @Test
    void deviationsLegendAndExitCodesAreExplained() {
        List<String> lines = Help.usage(Program.ALL_REDUCE);
        String text = String.join("\n", lines);
        assertThat(text)
                .contains(
                        "--backend",
                        "--trace",
                        "--jit-warmup",
                        "-f 2",
                        "-r all",
                        "#wrong",
                        "algbw",
                        "busbw")
                .contains("bench all_reduce -b 1K -e 1G -g 2");
        for (ExitCode code : ExitCode.values()) {
            assertThat(lines).anyMatch(line -> line.matches(" +" + code.status() + "  \\w.*"));
        }
    }

    @Test
    void alltoallvExplainsItsEnvironment() {
        assertThat(String.join("\n", Help.usage(Program.ALLTOALLV)))
                .contains("NCCL_TESTS_ALLTOALLV_SPREAD", "_MATRIX_FILE", "NCCL_TESTS_MIN_BW");
        assertThat(String.join("\n", Help.usage(Program.ALL_REDUCE))).doesNotContain("_SPREAD");
    }

    @Test
    void overviewListsEveryProgram() {
        String text = String.join("\n", Help.overview());
        for (Program program : Program.values()) {
            assertThat(text).contains("\n  " + program.label() + " ");
        }
    }

    @Test
    void commandsNameTheLauncherAndKeepTheirColumns() {
        List<String> called = Help.called("bench/bench", Help.overview());
        assertThat(called)
                .contains(
                        "Usage: bench/bench <program> [options]  options of a program: bench/bench"
                                + " <program> --help",
                        "  bench/bench allreduce -b 1K -e 1G       1 KiB to 1 GiB, doubling, all devices",
                        "       bench/bench calibrate         measures this machine for the choice of"
                                + " algorithms")
                .allMatch(line -> line.length() <= 100)
                .noneMatch(line -> line.matches(" +bench [a-z].*"));
        List<String> usage = Help.called("bench/bench", Help.usage(Program.ALLTOALLV));
        assertThat(usage.subList(33, usage.size()))
                .noneMatch(line -> line.matches("  bench [a-z].*"))
                .allMatch(line -> line.length() <= 100);
        assertThat(Help.called("bench", Help.overview())).isEqualTo(Help.overview());
    }

    /** What is shown can be pasted: no launcher within a launcher. */
    @ParameterizedTest
    @ValueSource(strings = {"bench/bench", "/opt/nccl4j/bench/bench", "bench"})
    void noHelpNamesTheLauncherTwice(String launcher) {
        List<List<String>> texts =
                new ArrayList<>(
                        List.of(Help.overview(), Help.info(), Help.explain(), Help.calibrate()));
        Stream.of(Program.values()).map(Help::usage).forEach(texts::add);
        for (List<String> text : texts) {
            assertThat(text).noneMatch(line -> line.contains("bench/bench"));
            assertThat(Help.called(launcher, text))
                    .noneMatch(line -> line.contains("bench/bench/bench"))
                    .noneMatch(line -> line.contains(launcher + "/" + launcher))
                    .noneMatch(line -> line.contains(launcher + " " + launcher));
            assertThat(Help.called(launcher, Help.called(launcher, text)))
                    .isEqualTo(Help.called(launcher, text));
        }
    }

    @Test
    void linesFitATerminal() {
        assertThat(Help.overview()).allMatch(line -> line.length() <= 100);
        List<String> usage = Help.usage(Program.ALLTOALLV);
        assertThat(usage.subList(33, usage.size())).allMatch(line -> line.length() <= 100);
    }
}
