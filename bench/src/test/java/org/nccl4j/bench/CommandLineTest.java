package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Options, their defaults, their checks; each with text, stream and exit code. */
final class CommandLineTest {

    private static final BackendFacts CPU = Facts.CPU;

    private final CapturedConsole captured = new CapturedConsole();

    private CommandLine.Outcome parse(Function<String, BackendFacts> backends, String line) {
        List<String> words = line.isEmpty() ? List.of() : Arrays.asList(line.split(" "));
        return CommandLine.parse(words, backends, captured.console());
    }

    private BenchOptions run(BackendFacts facts, String line) {
        CommandLine.Outcome outcome = parse(name -> facts, line);
        assertThat(outcome).as(captured.err()).isInstanceOf(CommandLine.Run.class);
        return ((CommandLine.Run) outcome).options();
    }

    private BenchOptions run(String line) {
        return run(CPU, line);
    }

    private ExitCode exit(String line) {
        CommandLine.Outcome outcome = parse(name -> CPU, line);
        assertThat(outcome).isInstanceOf(CommandLine.Exit.class);
        return ((CommandLine.Exit) outcome).code();
    }

    private void refused(String line, String... errLines) {
        assertThat(exit(line)).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(captured.errLines()).containsExactly(errLines);
        assertThat(captured.out()).isEmpty();
    }

    @Test
    void defaults() {
        BenchOptions options = run("all_reduce");
        assertThat(options)
                .isEqualTo(
                        new BenchOptions(
                                Program.ALL_REDUCE,
                                List.of("all_reduce_perf"),
                                "auto",
                                new BenchOptions.Sweep(32 << 20, 32 << 20, 1 << 20, 2, 1),
                                new BenchOptions.Layout(1, OptionalInt.empty(), false),
                                new BenchOptions.Timing(
                                        20, 1, 1, 2, 0, 0, 0, TimeAverage.MEAN, false, 0),
                                new BenchOptions.Work(
                                        List.of(ElementType.FLOAT),
                                        List.of(RedOp.SUM),
                                        0,
                                        1,
                                        0,
                                        Optional.empty()),
                                new BenchOptions.Output(
                                        false,
                                        false,
                                        false,
                                        false,
                                        Optional.empty(),
                                        Optional.empty()),
                                BenchOptions.Nccl.defaults()));
        assertThat(captured.out() + captured.err()).isEmpty();
    }

    @Test
    void everyOption() {
        BenchOptions options =
                run(
                        Facts.nccl(23007),
                        "reduce -t 2 -g 3 -b 1K -e 1M -i 4K -f 4 -n 5 -m 6 -w 7 -N 8 -p 1 -c 2 -o"
                                + " max -d half -r 1 -z 2 -y 0 -T 9 -G 0 -C 1 -S 1 -J r.json -a 3"
                                + " -R 0 -x -1 -D 0 -M 1 -u 1 -I 1 -K 4 --backend nccl"
                                + " --jit-warmup 0.5 --trace t");
        assertThat(options.program()).isEqualTo(Program.REDUCE);
        assertThat(options.backend()).isEqualTo("nccl");
        assertThat(options.commandLine())
                .startsWith("reduce_perf", "-t", "2")
                .endsWith("--trace", "t");
        assertThat(options.sweep()).isEqualTo(new BenchOptions.Sweep(1024, 1 << 20, 4096, 4, 8));
        assertThat(options.layout()).isEqualTo(new BenchOptions.Layout(2, OptionalInt.of(3), true));
        assertThat(options.timing())
                .isEqualTo(
                        new BenchOptions.Timing(5, 6, 7, 0.5, 2, 9, 0, TimeAverage.MAX, true, 4));
        assertThat(options.work())
                .isEqualTo(
                        new BenchOptions.Work(
                                List.of(ElementType.HALF),
                                List.of(RedOp.MAX),
                                1,
                                2,
                                1,
                                Optional.empty()));
        assertThat(options.output().cpuTime()).isTrue();
        assertThat(options.output().timestamps()).isTrue();
        assertThat(options.output().memory()).isTrue();
        assertThat(options.output().jsonFile()).contains("r.json");
        assertThat(options.output().traceFile()).contains("t");
        assertThat(captured.out() + captured.err()).isEmpty();
    }

    @Test
    void longNamesAreTheSame() {
        String letters =
                "-t 2 -g 3 -b 1 -e 2 -i 4 -f 4 -n 5 -m 6 -w 7 -N 8 -p 1 -c 2 -o max -d half -r 1 -z"
                        + " 2 -y 1 -T 9 -G 0 -C 1 -S 1 -J r.json -a 3 -R 1 -x 1 -D 0 -V 32 -M 1 -u"
                        + " 1 -I 1 -K 4";
        StringBuilder names = new StringBuilder("reduce");
        String[] words = letters.split(" ");
        for (int i = 0; i < words.length; i += 2) {
            char letter = words[i].charAt(1);
            Flag flag =
                    Arrays.stream(Flag.values())
                            .filter(f -> f.letter() == letter)
                            .findFirst()
                            .orElseThrow();
            names.append(" --").append(flag.longName()).append('=').append(words[i + 1]);
        }
        BenchOptions byName = run(Facts.nccl(23007), names.toString());
        BenchOptions byLetter = run(Facts.nccl(23007), "reduce " + letters);
        assertThat(byName.sweep()).isEqualTo(byLetter.sweep());
        assertThat(byName.layout()).isEqualTo(byLetter.layout());
        assertThat(byName.timing()).isEqualTo(byLetter.timing());
        assertThat(byName.work()).isEqualTo(byLetter.work());
        assertThat(byName.output()).isEqualTo(byLetter.output());
    }

    @Test
    void integersAreReadAsCDoes() {
        assertThat(run("all_reduce -n 010").timing().iterations()).isEqualTo(8);
        assertThat(run("all_reduce -n 0x10").timing().iterations()).isEqualTo(16);
        assertThat(run("all_reduce -n 1K").timing().iterations()).isEqualTo(1);
        assertThat(run("all_reduce -f 2.9").sweep().stepFactor()).isEqualTo(2);
    }

    @Test
    void theLastOccurrenceCounts() {
        assertThat(run("all_reduce -n 3 --iters 4 -n5").timing().iterations()).isEqualTo(5);
    }

    @Test
    void theStepIsAFactorOfTwoUnlessOneIsGiven() {
        assertThat(run("all_reduce -b 8 -e 64").sweep().sizesBytes())
                .containsExactly(8L, 16L, 32L, 64L);
        assertThat(run("all_reduce -b 8 -e 64 -i 24").sweep().sizesBytes())
                .containsExactly(8L, 32L, 56L);
        assertThat(run("all_reduce -b 8 -e 64 -i 24").sweep().multiplies()).isFalse();
        assertThat(run("all_reduce -b 8 -e 64 -f 3 -i 24").sweep().sizesBytes())
                .containsExactly(8L, 24L);
        BenchOptions.Sweep factorOfOne = run("all_reduce -f 1").sweep();
        assertThat(factorOfOne.multiplies()).isFalse();
        assertThat(factorOfOne.stepBytes()).isEqualTo(1 << 20);
        assertThat(run("all_reduce -b 0 -e 64 -i 24").sweep().sizesBytes())
                .containsExactly(0L, 24L, 48L);
    }

    @Test
    void warmupAlwaysDoubles() {
        assertThat(run("all_reduce -b 8 -e 64 -i 24").sweep().warmupSizesBytes())
                .containsExactly(8L, 16L, 32L, 64L);
        assertThat(run("all_reduce -b 0 -e 64 -i 24").sweep().warmupSizesBytes())
                .containsExactly(0L, 24L, 48L);
    }

    @Test
    void hugeSizesEndASweep() {
        assertThat(run("all_reduce -b 4e18 -e 9e18").sweep().sizesBytes())
                .containsExactly(4_000_000_000_000_000_000L, 8_000_000_000_000_000_000L);
        assertThat(run("all_reduce -b 8e18 -e 9e18 -i 3e18").sweep().sizesBytes()).hasSize(1);
    }

    @Test
    void devicesPerThread() {
        BenchOptions.Layout unset = run("all_reduce").layout();
        assertThat(unset.gpusPerThread(8, false)).isEqualTo(8);
        assertThat(unset.gpusPerThread(8, true)).isEqualTo(1);
        assertThat(run("all_reduce -t 2").layout().gpusPerThread(8, false)).isEqualTo(1);
        assertThat(run("all_reduce -t 2 -g 3").layout().gpusPerThread(8, true)).isEqualTo(3);
    }

    @Test
    void allAndEveryRoot() {
        BenchOptions.Work work = run("reduce -d all -o all -r all").work();
        assertThat(work.types()).containsExactly(ElementType.values());
        assertThat(work.ops()).containsExactly(RedOp.values());
        assertThat(work.root()).isEqualTo(-1);
        assertThat(run("reduce -r -1").work().root()).isEqualTo(-1);
        assertThat(run("reduce -r 7").work().root()).isEqualTo(7);
    }

    @ParameterizedTest
    @EnumSource(ElementType.class)
    void typesByName(ElementType type) {
        assertThat(run("all_reduce -d " + type.label()).work().types()).containsExactly(type);
    }

    @ParameterizedTest
    @EnumSource(RedOp.class)
    void opsByName(RedOp op) {
        assertThat(run("all_reduce -o " + op.label()).work().ops()).containsExactly(op);
    }

    @ParameterizedTest
    @CsvSource({
        "bf16, bfloat16",
        "fp16, half",
        "float32, float",
        "fp8, f8e4m3",
        "int, int32",
        "char, int8",
        "Float, float",
        "int23, int32",
    })
    void anUnknownTypeIsFloatAndASuggestionIsMade(String word, String suggestion) {
        assertThat(run("all_reduce -d " + word).work().types()).containsExactly(ElementType.FLOAT);
        assertThat(captured.out())
                .isEqualTo("invalid type " + word + ", defaulting to float .. \n");
        assertThat(captured.err()).contains("Did you mean " + suggestion);
    }

    @ParameterizedTest
    @CsvSource({"premulsum, mulsum", "SUM, sum", "mean, avg", "product, prod", "maxx, max"})
    void anUnknownOpIsSumAndASuggestionIsMade(String word, String suggestion) {
        assertThat(run("all_reduce -o " + word).work().ops()).containsExactly(RedOp.SUM);
        assertThat(captured.out()).isEqualTo("invalid op " + word + ", defaulting to sum .. \n");
        assertThat(captured.err()).contains("Did you mean " + suggestion);
    }

    @Test
    void minimumAboveMaximum() {
        refused(
                "all_reduce -b 2M -e 1M",
                "invalid sizes for 'minbytes' and 'maxbytes': 2097152 > 1048576");
    }

    @ParameterizedTest
    @CsvSource({
        "-b 64M, '-e is 32M unless given; give -e as well, 64M or more'",
        "-e 16M, '-b is 32M unless given; give -b as well, 16M or less'"
    })
    void oneEndAloneCanPassTheOther(String sizes, String advice) {
        assertThat(exit("all_reduce " + sizes)).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(captured.errLines()).hasSize(2);
        assertThat(captured.err())
                .startsWith("invalid sizes for 'minbytes' and 'maxbytes': ")
                .endsWith("\nbench: " + advice + "\n");
    }

    /** Suffixes that nccl-tests does not know, signs and words. */
    @ParameterizedTest
    @CsvSource({
        "-b 1T, minbytes",
        "-b -4, minbytes",
        "-b abc, minbytes",
        "-e 8b, maxbytes",
        "-i x, stepBytes",
    })
    void badSizes(String words, String name) {
        assertThat(exit("all_reduce " + words)).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(captured.errLines())
                .first()
                .isEqualTo("invalid size specified for '" + name + "'");
        assertThat(captured.out()).isEmpty();
    }

    @ParameterizedTest
    @CsvSource({
        "-b 9223372036854775807, minbytes",
        "-e 8589934592G, maxbytes",
        "-i 1e30, stepBytes"
    })
    void sizesThatAreTooLarge(String words, String name) {
        assertThat(exit("all_reduce " + words)).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(captured.errLines())
                .containsExactly(
                        "invalid size specified for '" + name + "'",
                        "bench: "
                                + words
                                + " is too large: sizes are below 8589934592G (2^63 bytes)");
    }

    /** Sizes below an element or between two are legal: the rows round down. */
    @Test
    void oddSizesParse() {
        BenchOptions options = run("all_reduce -b 1 -e 64 -f 2 -c 0");
        assertThat(options.sweep().sizesBytes()).containsExactly(1L, 2L, 4L, 8L, 16L, 32L, 64L);
        assertThat(options.work().checkRounds()).isZero();
        assertThat(
                        options.sweep()
                                .sizesBytes()
                                .map(s ->
                                        Program.ALL_REDUCE
                                                .shape(s, ElementType.FLOAT, 2)
                                                .sizeBytes()))
                .containsExactly(0L, 0L, 4L, 8L, 16L, 32L, 64L);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "-t 0 | bench: -t 0: at least 1 thread is needed",
                "-t -2 | bench: -t -2: at least 1 thread is needed",
                "-g 0 | bench: -g 0: at least 1 device per thread is needed",
                "-n 0 | bench: -n 0: at least 1 timed iteration is needed",
                "-m 0 | bench: -m 0: at least 1 operation per iteration is needed",
                "-u -1 | bench: -u -1: buffers can only be shifted forward, by 0 or more",
                "-b 0 | bench: -b 0 times a factor of 2 stays 0 for ever: start at 1 or more, or step with -i",
                "-b 0 -f 3 -i 8 | bench: -b 0 times a factor of 3 stays 0 for ever: start at 1 or more, or step with -i",
                "-i 0 -b 8 | bench: -i 0 repeats 8 bytes for ever: step by 1 or more, multiply with -f, or repeat with -N",
                "-i 0 -f 1 -b 8 | bench: -i 0 repeats 8 bytes for ever: step by 1 or more, multiply with -f, or repeat with -N",
                "-a 4 | bench: -a 4: must be 0 (rank 0), 1 (mean), 2 (min) or 3 (max)",
                "-a -1 | bench: -a -1: must be 0 (rank 0), 1 (mean), 2 (min) or 3 (max)",
                "-n 4294967297 | bench: -n 4294967297: the number does not fit in 32 bits",
            })
    void whatCannotRunIsRefused(String words, String message) {
        refused("all_reduce " + words, message);
    }

    @Test
    void whatLooksOddButRunsIsTaken() {
        assertThat(run("all_reduce -N 0").sweep().endless()).isTrue();
        assertThat(run("all_reduce -N -1").sweep().endless()).isTrue();
        assertThat(run("all_reduce -i 0 -f 2").sweep().multiplies()).isTrue();
        assertThat(run("all_reduce -c -1").work().checkRounds()).isEqualTo(-1);
        assertThat(run("all_reduce -w -1").timing().warmupIterations()).isEqualTo(-1);
        assertThat(run("all_reduce -z 7").timing().blocking()).isEqualTo(7);
        assertThat(captured.err()).isEmpty();
    }

    @Test
    void anUnknownOptionEndsWithTheUsage() {
        assertThat(exit("all_reduce -q")).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(captured.errLines())
                .containsExactly(
                        "all_reduce_perf: invalid option -- 'q'", "bench: invalid option -- 'q'");
        assertThat(captured.outLines()).startsWith("invalid option '?'", "USAGE: all_reduce_perf ");
    }

    @Test
    void anUnknownOptionNamesTheNearest() {
        exit("all_reduce --min-bytes 8");
        assertThat(captured.errLines())
                .containsExactly(
                        "all_reduce_perf: unrecognized option '--min-bytes'",
                        "bench: unrecognized option '--min-bytes'. Did you mean --minbytes?");
    }

    /** As nccl-tests does, but not silently. */
    @Test
    void whatIsNotReadIsSaid() {
        assertThat(run("all_reduce allgather -n 1K -b 8").timing().iterations()).isEqualTo(1);
        assertThat(captured.errLines())
                .containsExactly(
                        "bench: 'allgather' is no option; ignored", "bench: -n 1K is read as 1");
        assertThat(captured.out()).isEmpty();
    }

    @Test
    void whatIsReadAsAnotherNumberIsSaidBeforeItIsRefused() {
        refused(
                "all_reduce -n foo",
                "bench: -n foo is read as 0",
                "bench: -n 0: at least 1 timed iteration is needed");
    }

    @Test
    void anUnknownOptionOfInfoNamesTheNearest() {
        refused(
                "info --jsn",
                "bench: info takes --json, --emulator and --help, not --jsn. Did you mean --json?");
    }

    @Test
    void theFirstErrorWins() {
        assertThat(exit("all_reduce -b x -h")).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(captured.out()).isEmpty();
        assertThat(exit("all_reduce -h -b x")).isEqualTo(ExitCode.OK);
        assertThat(captured.outLines()).startsWith("USAGE: all_reduce_perf ");
    }

    @Test
    void perIterationChecks() {
        assertThat(run("all_reduce -I 2").timing().perIteration()).isFalse();
        assertThat(captured.errLines())
                .containsExactly(
                        "per-iteration timing (-I) only supports 0=off or 1=on. Disabling.");
        BenchOptions.Timing graph =
                run(Facts.nccl(23007), "all_reduce -I 1 -z 3 -G 2 -n 4 -K 4").timing();
        assertThat(graph.perIteration()).isFalse();
        assertThat(graph.blocking()).isZero();
        assertThat(graph.perIterationSkip()).isZero();
        assertThat(captured.errLines().subList(1, 4))
                .containsExactly(
                        "per-iteration timing (-I) is incompatible with CUDA graph mode (-G)."
                                + " Disabling.",
                        "blocking mode (-z 3) is incompatible with CUDA graph mode (-G). Disabling.",
                        "per-iteration skip (-K) must be between 0 and 3. Disabling.");
        assertThat(run("all_reduce -K 1").timing().perIterationSkip()).isZero();
        assertThat(captured.errLines().getLast())
                .isEqualTo(
                        "per-iteration skip (-K) requires per-iteration timing (-I 1). Disabling.");
        assertThat(captured.out()).isEmpty();
    }

    @ParameterizedTest
    @ValueSource(strings = {"-K -1", "-K 20"})
    void skipOutOfRange(String words) {
        assertThat(run("all_reduce -I 1 " + words).timing().perIterationSkip()).isZero();
        assertThat(captured.errLines())
                .containsExactly("per-iteration skip (-K) must be between 0 and 19. Disabling.");
    }

    @ParameterizedTest
    @CsvSource({
        "-D 1, -D (device implementation)",
        "-V 16, -V (device CTA count)",
        "-V 128, -V (device CTA count)",
        "-R 1, -R (buffer registration)",
        "-R 2, -R (buffer registration)",
        "-x 0, -x (CTA policy)",
        "-x 2, -x (CTA policy)",
        "-y 1, -y (default stream)",
        "-G 4, -G (graph launches)",
        "--comm-blocking 0, --comm-blocking (NCCL's blocking mode)",
    })
    void whatHasNoEffectIsIgnoredAloud(String words, String what) {
        BenchOptions options = run("all_reduce " + words);
        assertThat(captured.out()).isEmpty();
        assertThat(captured.errLines())
                .containsExactly("bench: " + what + " has no effect on the cpu backend; ignored");
        BenchOptions plain = run("all_reduce");
        assertThat(options.layout()).isEqualTo(plain.layout());
        assertThat(options.timing()).isEqualTo(plain.timing());
    }

    @ParameterizedTest
    @ValueSource(ints = {-1, 0, 129, 200})
    void aDeviceCtaCountOutOfRangeIsToldWhatCounts(int ctas) {
        run("all_reduce -V " + ctas);
        assertThat(captured.errLines())
                .containsExactly(
                        "device_cta_count (-V) must be positive and less than 128, got "
                                + ctas
                                + ". Using default value 16.",
                        "bench: -V (device CTA count) has no effect on the cpu backend; ignored");
    }

    @Test
    void whatNcclHasTakesEffectThere() {
        BenchOptions options =
                run(Facts.nccl(23007), "all_reduce -R 1 -y 1 -x 1 -G 4 --comm-blocking 0");
        assertThat(options.nccl())
                .isEqualTo(new BenchOptions.Nccl(true, true, OptionalInt.of(1), false));
        assertThat(options.timing().graphLaunches()).isEqualTo(4);
        assertThat(captured.out()).isEmpty();
        assertThat(captured.err()).isEmpty();
        assertThat(run(Facts.nccl(23007), "all_reduce").nccl())
                .isEqualTo(BenchOptions.Nccl.defaults());
        assertThat(run(Facts.nccl(23007), "all_reduce -x -1 -R 0 -y 0").nccl())
                .isEqualTo(BenchOptions.Nccl.defaults());
    }

    @Test
    void aCtaCountWithoutADeviceKernelChangesNothing() {
        run(Facts.nccl(23007), "all_reduce -V 8");
        assertThat(captured.errLines())
                .containsExactly(
                        "bench: -V (device CTA count) has no effect on the nccl backend; ignored");
    }

    /** Library, options, exit code, then what it says, on standard output if it starts with >. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "21805 | -D 0 | 255 | Option -D (device implementation) requires NCCL >= 2.28.0",
                "22707 | -D 1 -R 2 | 255 | Option -D (device implementation) requires NCCL >= 2.28.0",
                "22707 | -V 8 | 255 | Option -V (device CTA count) requires NCCL >= 2.28.0",
                "23007 | -D 1 | 255 | device implementation (-D > 0) requires enabling symmetric"
                        + " memory registration (-R 2)",
                "23007 | -D 1 -R 2 | 5 | bench: -D 1: this version's nccl backend has no device-side"
                        + " kernels, which are CUDA code of nccl-tests; leave the option out",
                "23007 | -R 2 | 5 | bench: -R 2: this version's nccl backend has no symmetric"
                        + " windows; leave the option out",
                "23007 | -x 9 | 255 | bench: -x 9: must be 0 (default), 1 (efficiency) or 2 (zero),"
                        + " or negative for unset",
                "22605 | -R 2 | 0 | >Option -R 2 (symmetric) is not supported before NCCL 2.27."
                        + " Defaulting to local registration",
                "22707 | -x 2 | 0 | >Option -x (cta_policy) 2 is not supported before NCCL 2.28."
                        + " Ignoring",
                "21805 | -x 1 | 0 | bench: -x 1: NCCL 2.18.5 has no CTA policy, which came with"
                        + " 2.27.3; ignored"
            })
    void whatTheLoadedNcclIsTooOldForIsSaidAsNcclTestsDoes(
            int version, String words, int status, String says) {
        CommandLine.Outcome outcome = parse(name -> Facts.nccl(version), "all_reduce " + words);
        boolean onOut = says.startsWith(">");
        assertThat(captured.outLines()).isEqualTo(onOut ? List.of(says.substring(1)) : List.of());
        assertThat(captured.errLines()).isEqualTo(onOut ? List.of() : List.of(says));
        if (status == 0) {
            BenchOptions options = ((CommandLine.Run) outcome).options();
            assertThat(options.nccl().ctaPolicy()).isEmpty();
            assertThat(options.nccl().registersBuffers()).isEqualTo(words.equals("-R 2"));
        } else {
            assertThat(((CommandLine.Exit) outcome).code().status()).isEqualTo(status);
        }
    }

    @ParameterizedTest
    @CsvSource({"-G 4, cannot capture operations in a graph", "-R 1, cannot register buffers"})
    void whatTheNcclBackendLacksIsRefusedAndNeverIgnored(String words, String what) {
        CommandLine.Outcome outcome =
                parse(name -> Facts.nccl(23007, false, false), "all_reduce " + words);
        assertThat(outcome).isEqualTo(new CommandLine.Exit(ExitCode.UNSUPPORTED));
        assertThat(captured.errLines())
                .containsExactly(
                        "bench: "
                                + words
                                + ": this version's nccl backend "
                                + what
                                + "; leave the option out");
    }

    @ParameterizedTest
    @ValueSource(strings = {"--emulator", "--emulator=2.18", "--emul"})
    void theEmulatorIsTheLaunchersBusiness(String word) {
        assertThat(run("all_reduce " + word + " -g 2").layout().gpusPerThread()).hasValue(2);
        assertThat(captured.err()).isEmpty();
    }

    @Test
    void infoIsAReportAndTakesFewOptions() {
        assertThat(parse(name -> CPU, "info")).isEqualTo(new CommandLine.Info(false));
        assertThat(parse(name -> CPU, "info --json --emulator=2.18"))
                .isEqualTo(new CommandLine.Info(true));
        assertThat(captured.out()).isEmpty();
        assertThat(exit("info --help")).isEqualTo(ExitCode.OK);
        assertThat(captured.out()).startsWith("USAGE: bench info [--json]");
        assertThat(exit("info -g 2")).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(captured.errLines())
                .containsExactly("bench: info takes --json, --emulator and --help, not -g");
    }

    @ParameterizedTest
    @ValueSource(strings = {"-R 0", "-x -1", "-y 0", "-G 0", "--comm-blocking 1"})
    void whatAsksForNothingNeedsNoBackend(String words) {
        CommandLine.Outcome outcome =
                parse(
                        name -> {
                            throw new AssertionError("asked for a backend");
                        },
                        "all_reduce " + words);
        assertThat(outcome).isInstanceOf(CommandLine.Run.class);
        assertThat(captured.err()).isEmpty();
    }

    @Test
    void theNamedBackendDecides() {
        List<String> asked = new ArrayList<>();
        parse(
                name -> {
                    asked.add(name);
                    return Facts.nccl(23007);
                },
                "all_reduce -R 1 -x 1 --backend cpu --backend nccl");
        assertThat(asked).containsExactly("nccl");
        assertThatThrownBy(() ->
                        parse(
                                name -> {
                                    throw new IllegalStateException(name + " is not here");
                                },
                                "all_reduce -R 1"))
                .hasMessage("auto is not here");
    }

    @ParameterizedTest
    @CsvSource({
        "all_reduce, 2",
        "all_reduce --jit-warmup 0, 0",
        "all_reduce --jit-warmup 1e-1, 0.1",
        "all_reduce --trace t, 0",
        "all_reduce --jit-warmup 3 --trace t, 3",
    })
    void theJvmWarmsUpUnlessToldOtherwise(String line, double seconds) {
        assertThat(run(line).timing().jitWarmupSeconds()).isEqualTo(seconds);
    }

    @ParameterizedTest
    @ValueSource(strings = {"-1", "1s", "nan", "much"})
    void aWarmUpThatIsNoTimeIsRefused(String value) {
        assertThat(exit("all_reduce --jit-warmup " + value)).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(captured.err())
                .isEqualTo("bench: --jit-warmup takes seconds, 0 or more; got '" + value + "'\n");
    }

    @Test
    void theJsonFileNeedsItsExtension() {
        assertThat(run("all_reduce -J r.JSON").output().jsonFile()).contains("r.JSON");
        assertThat(run("all_reduce -J .json").output().jsonFile()).contains(".json");
        assertThat(captured.err()).isEmpty();
        assertThat(run("all_reduce -J a.json/r").output().jsonFile()).isEmpty();
        assertThat(run("all_reduce -J r.txt").output().jsonFile()).isEmpty();
        assertThat(captured.out()).isEmpty();
        assertThat(captured.errLines().getLast())
                .isEqualTo("bench: -J r.txt: no file is written, its name must end in .json");
    }

    @Test
    void noProgram() {
        assertThat(exit("")).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(captured.err()).contains("Usage: bench <program>", "all_reduce");
        assertThat(captured.out()).isEmpty();
    }

    @ParameterizedTest
    @ValueSource(strings = {"-h", "--help"})
    void overview(String word) {
        assertThat(exit(word)).isEqualTo(ExitCode.OK);
        assertThat(captured.out()).contains("Usage: bench <program>", "hypercube");
        assertThat(captured.err()).isEmpty();
    }

    @ParameterizedTest
    @CsvSource({
        "allreduc, all_reduce",
        "all_redcue_perf, all_reduce",
        "reducescater, reduce_scatter",
        "bcast, broadcast",
        "sendrec, sendrecv",
    })
    void anUnknownProgramNamesTheNearest(String word, String suggestion) {
        assertThat(exit(word)).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(captured.err())
                .startsWith("bench: unknown program '" + word + "'. Did you mean " + suggestion)
                .contains("Programs: all_reduce all_gather")
                .endsWith(". See --help.\n");
        assertThat(captured.out()).isEmpty();
    }

    @Test
    void optionsBeforeTheProgramAreRefused() {
        assertThat(exit("-b 8 all_reduce")).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(captured.err())
                .startsWith("bench: the first word must be a program, before any option; got '-b'");
    }
}
