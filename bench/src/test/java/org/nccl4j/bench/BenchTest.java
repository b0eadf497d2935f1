package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.LibraryUnavailableException;
import org.nccl4j.collectives.LoadedLibrary;
import org.nccl4j.collectives.NcclOption;
import org.nccl4j.collectives.NcclOptions;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.ObjectMapper;

/** The whole command on the CPU backend. */
final class BenchTest {

    private static final int WRONG_OUT_OF_PLACE = -5;
    private static final int WRONG_IN_PLACE = -1;

    @TempDir private Path folder;

    private static List<String> fromEnd(RunningBench run, int index) {
        return run.rows().stream().map(row -> row[row.length + index]).toList();
    }

    private static void assertVerified(RunningBench run) {
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.OK);
        assertThat(run.console.out()).contains("# Out of bounds values : 0 OK\n");
        assertThat(fromEnd(run, WRONG_OUT_OF_PLACE)).as("%s", run).containsOnly("0");
        assertThat(fromEnd(run, WRONG_IN_PLACE)).as("%s", run).isSubsetOf("0", "N/A");
    }

    @ParameterizedTest
    @EnumSource(Program.class)
    void everyTypeOpAndRootIsRight(Program program) {
        for (int ranks : program == Program.HYPERCUBE ? new int[] {1, 2, 4} : new int[] {2, 3}) {
            RunningBench run =
                    RunningBench.run(
                            program.label()
                                    + " -g "
                                    + ranks
                                    + " -b 100 -e 1000 -f 9 -n 2 -d all -o all -r all");
            assertVerified(run);
            int types = ElementType.values().length;
            int ops = program.loopsOverOps() ? RedOp.values().length : 1;
            int roots = program.hasRoot() ? ranks : 1;
            assertThat(run.rows()).hasSize(types * ops * roots * 2);
            String inPlace = program.checksInPlace() ? "0" : "N/A";
            assertThat(fromEnd(run, WRONG_IN_PLACE)).containsOnly(inPlace);
        }
    }

    /** With data in several shares, whose ends are nowhere near those of ranks or vectors. */
    @ParameterizedTest
    @CsvSource({
        "reduce_scatter, 5", "reduce_scatter, 7", "allreduce, 5", "allreduce, 7",
        "alltoall, 5", "alltoall, 7", "reduce, 5", "reduce, 7"
    })
    void everyTypeAndOpIsRightAmongManyOddRanks(String program, int ranks) {
        assertVerified(
                RunningBench.run(
                        program
                                + " -g "
                                + ranks
                                + " -b 5000 -e 65000 -f 13 -n 2 -d all -o all --algo direct"));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "-t 3",
                "-t 2 -g 2",
                "-g 1",
                "-g 4 -u 3",
                "-g 4 -u 1 -d half",
                "-g 2 -m 3",
                "-t 2 -m 3 -z 1",
                "-t 2 -z 1",
                "-t 2 -z 2",
                "-t 2 -g 2 -z 3",
                "-g 2 -z 7",
                "-g 2 -c 3",
                "-g 2 -w 0",
                "-g 2 -w 5 -m 2",
                "-g 2 -C 1",
                "-t 2 -a 0",
                "-t 2 -a 2",
                "-t 2 -a 3",
                "-t 2 -g 2 -p 1",
                "-g 2 -M 1",
                "-g 2 -T 30",
                "-g 2 -y 1 -R 1 -x 1 -D 1 -V 8 -G 2"
            })
    void everyWayToRunIsRight(String options) {
        for (String program : List.of("all_reduce", "reduce_scatter", "alltoallv", "hypercube")) {
            int ranks = options.contains("-t 3") ? 3 : 2;
            RunningBench run = RunningBench.run(program + " -b 64 -e 4K -f 4 -n 4 " + options);
            if (program.equals("hypercube") && ranks == 3) {
                assertThat(run.rows()).isEmpty();
                assertThat(run.console.outLines().stream().filter(l -> l.startsWith("nRanks")))
                        .hasSize(3)
                        .containsOnly("nRanks 3 is not a power of 2, skipping");
                assertThat(run.console.out()).contains("# Avg bus bandwidth    : -nan \n");
                assertThat(run.code).isEqualTo(ExitCode.OK);
            } else {
                assertVerified(run);
                assertThat(run.rows()).hasSize(4);
            }
        }
    }

    @ParameterizedTest
    @EnumSource(Program.class)
    void memoryThatJavaCannotReadIsVerifiedAsWell(Program program) {
        OpaqueBackend opaque = new OpaqueBackend(Backends.named("cpu"));
        RunningBench run =
                RunningBench.run(
                        program.label() + " -g 4 -b 1K -e 4M -f 64 -n 2 -c 2 -u 1",
                        bench -> bench.found = opaque);
        assertVerified(run);
        assertThat(run.rows()).hasSize(3);
        assertThat(opaque.pinnedBytes).hasValue(0);
        assertThat(opaque.openStreams).hasValue(0);
    }

    @Test
    void ncclsVersionsDevicesAndSettingsAreShownAndUsed() {
        OpaqueBackend opaque = new OpaqueBackend(Backends.named("cpu"));
        opaque.abilities = all -> all.withRegistration(false);
        Path file = folder.resolve("out.json");
        RunningBench run =
                RunningBench.run(
                        "sendrecv --backend nccl -g 2 -b 1K -e 1K -n 2 -x 1 --comm-blocking 0 -J "
                                + file,
                        bench -> bench.found = opaque);
        assertVerified(run);
        assertThat(run.console.err()).isEmpty();
        assertThat(run.console.out())
                .contains("# nccl-tests version 2.19.6 nccl-headers=23007 nccl-library=23007\n")
                .contains(" device  0 [0000:01:00] Double 0\n")
                .contains(" device  1 [0000:02:00] Double 1\n")
                .doesNotContain("mulator");
        JsonNode json = new ObjectMapper().readTree(file.toFile());
        assertThat(json.get("nccl_version").asInt()).isEqualTo(23007);
        assertThat(json.has("emulator")).isFalse();
        assertThat(json.get("config").get("devices").get(1).get("device_hex").asString())
                .isEqualTo("0000:02:00");
        assertThat(opaque.config.blocking()).isFalse();
        assertThat(opaque.config.nccl().values())
                .isEqualTo(
                        Map.of(
                                NcclOption.CTA_POLICY,
                                1,
                                NcclOption.NVLINK_CENTRIC_SCHED,
                                1,
                                NcclOption.MAX_P2P_PEERS,
                                2));
    }

    @Test
    void anOldNcclIsNotAskedForWhatItLacks() {
        OpaqueBackend opaque = new OpaqueBackend(Backends.named("cpu"));
        opaque.libraries = List.of(new LoadedLibrary("NCCL", "2.18.5", 21805, "/opt/libnccl.so.2"));
        RunningBench run =
                RunningBench.run(
                        "sendrecv --backend nccl -g 2 -b 1K -e 1K -n 2",
                        bench -> bench.found = opaque);
        assertVerified(run);
        assertThat(run.console.out()).contains(" nccl-headers=23007 nccl-library=21805\n");
        assertThat(opaque.config.blocking()).isTrue();
        assertThat(opaque.config.nccl()).isEqualTo(NcclOptions.none());
    }

    @Test
    void theEmulatorIsNeverTakenForAGpu() {
        OpaqueBackend opaque = new OpaqueBackend(Backends.named("cpu"));
        opaque.deviceName = "Emulated GPU (host memory)";
        Path file = folder.resolve("out.json");
        RunningBench run =
                RunningBench.run(
                        "all_reduce --backend nccl --emulator -g 2 -b 1K -e 1K -n 2 -J " + file,
                        bench -> bench.found = opaque);
        assertVerified(run);
        assertThat(run.console.errLines())
                .containsExactly(
                        "bench: this is the emulator and not a GPU: results are checked as always,"
                                + " times mean nothing");
        assertThat(run.console.out())
                .contains(
                        "# Emulator: the devices are host memory and no figure here is a GPU's \n")
                .contains("] Emulated GPU (host memory)\n");
        JsonNode json = new ObjectMapper().readTree(file.toFile());
        assertThat(json.get("emulator").asString()).isEqualTo("true");
    }

    @Test
    void theDefaultStreamAndRegisteredBuffersAreUsedWhereNcclHasThem() {
        OpaqueBackend opaque = new OpaqueBackend(Backends.named("cpu"));
        opaque.abilities = all -> all.withRegistration(true);
        RunningBench run =
                RunningBench.run(
                        "all_reduce --backend nccl -g 2 -b 1K -e 1K -n 2 -y 1 -R 1",
                        bench -> bench.found = opaque);
        assertVerified(run);
        assertThat(run.console.err()).isEmpty();
        assertThat(opaque.wrappedStreams).containsExactly(0L, 0L);
        assertThat(opaque.registered).hasValue(4);
        assertThat(opaque.openRegistrations).hasValue(0);
    }

    @Test
    void whyAutoDoesNotTakeNcclIsOneLine() {
        AbsentBackend absent =
                new AbsentBackend(
                        List.of("NCCL cannot be loaded: no such file; install it", "no GPU"),
                        new LibraryUnavailableException("gone"));
        RunningBench run =
                RunningBench.run(
                        "all_reduce -g 2 -b 1K -e 1K -n 2",
                        bench -> bench.installed = List.of(bench.backend, absent));
        assertVerified(run);
        assertThat(run.console.errLines())
                .containsExactly(
                        "bench: --backend auto takes cpu, not nccl: NCCL cannot be loaded: no such"
                                + " file (bench/bench info tells more)");
        RunningBench named =
                RunningBench.run(
                        "all_reduce --backend cpu -g 2 -b 1K -e 1K -n 2",
                        bench -> bench.installed = List.of(bench.backend, absent));
        assertThat(named.console.err()).isEmpty();
    }

    @Test
    void aBackendThatCannotBeUsedIsRefusedWithItsReasons() {
        AbsentBackend absent =
                new AbsentBackend(
                        List.of("NCCL cannot be loaded: no such file", "no GPU"),
                        new LibraryUnavailableException("gone"));
        Backend cpu = Backends.named("cpu");
        assertThatThrownBy(() -> Bench.backend("nccl", List.of(cpu, absent)))
                .isInstanceOf(LibraryUnavailableException.class)
                .hasMessage(
                        "--backend nccl cannot be used here: NCCL cannot be loaded: no such file\n"
                                + "  no GPU\n"
                                + "  (bench/bench info tells more; --backend cpu needs no GPU, and"
                                + " --emulator stands in for one)");
        assertThatThrownBy(() -> Bench.backend("nccl", List.of(cpu)))
                .isInstanceOf(LibraryUnavailableException.class)
                .hasMessage(
                        "--backend nccl: this bench has cpu and no other backend; name one of these,"
                                + " or leave the option out");
        assertThat(Bench.backend("cpu", List.of(cpu, absent))).isSameAs(cpu);
    }

    @ParameterizedTest
    @CsvSource({
        "all_reduce, 4096 1024 float sum -1",
        "all_gather, 4096 256 float none -1",
        "broadcast, 4096 1024 float none 2",
        "reduce_scatter, 4096 256 float sum -1",
        "reduce, 4096 1024 float sum 2",
        "alltoall, 4096 256 float none -1",
        "alltoallv, 4080 256 float none -1",
        "scatter, 4096 256 float none 2",
        "gather, 4096 256 float none 2",
        "sendrecv, 4096 1024 float sum -1",
        "hypercube, 4096 256 float -1"
    })
    void theRowBeginsWithWhatTheProgramMoves(String program, String prefix) {
        RunningBench run = RunningBench.run(program + " -g 4 -b 4K -e 4K -n 1 -r 2");
        String row = String.join(" ", run.rows().getFirst());
        assertThat(row).startsWith(prefix + " ");
    }

    @Test
    void chunkedSizesAreRoundedDown() {
        RunningBench gather = RunningBench.run("all_gather -g 3 -b 8 -e 4K -f 2 -n 1");
        assertThat(gather.column(0))
                .containsExactly("0", "0", "0", "48", "96", "240", "480", "1008", "2016", "4080");
        assertThat(gather.column(1))
                .containsExactly("0", "0", "0", "4", "8", "20", "40", "84", "168", "340");
        assertVerified(gather);
        RunningBench wide = RunningBench.run("reduce_scatter -g 3 -b 1000 -e 1000 -d double -n 1");
        assertThat(wide.rows().getFirst()).startsWith("960", "40");
    }

    @Test
    void oddSizesAreRoundedDownAndUncheckedCellsSayNA() {
        RunningBench run = RunningBench.run("all_reduce -g 2 -b 1 -e 64 -f 2 -c 0 -n 1");
        assertThat(run.code).isEqualTo(ExitCode.OK);
        assertThat(run.column(0)).containsExactly("0", "0", "4", "8", "16", "32", "64");
        assertThat(fromEnd(run, WRONG_OUT_OF_PLACE)).containsOnly("N/A");
        assertThat(fromEnd(run, WRONG_IN_PLACE)).containsOnly("N/A");
    }

    @Test
    void oneRankHasNoBusBandwidth() {
        RunningBench run = RunningBench.run("all_reduce -g 1 -b 1K -e 4K -n 2");
        assertVerified(run);
        assertThat(run.column(7)).containsOnly("0.00");
        assertThat(run.console.out()).contains("# Avg bus bandwidth    : 0 \n");
        assertThat(run.console.err()).contains("with one rank no data crosses a link");
    }

    @Test
    void theOutputBeginsAndEndsAsNcclTestsDoes() {
        RunningBench run = RunningBench.run("allreduce -b 1K -e 2K -g 2 -n 1");
        List<String> lines = run.console.outLines();
        assertThat(lines.subList(0, 5))
                .containsExactly(
                        "# nccl-tests version 2.19.6 nccl-headers=0 nccl-library=0",
                        "# Collective test starting: all_reduce_perf",
                        "# nThread 1 nGpus 2 minBytes 1024 maxBytes 2048 step: 2(factor) warmup"
                                + " iters: 1 iters: 1 agg iters: 1 validation: 1 graph: 0 unalign: 0",
                        "#",
                        "# Using devices");
        assertThat(lines.get(5))
                .matches("#  Rank  0 Group  0 Pid +\\d+ on +\\S+ device  0 \\[0000:00:00] .+");
        assertThat(lines.get(6))
                .matches("#  Rank  1 Group  0 Pid +\\d+ on +\\S+ device  1 \\[0000:00:00] .+");
        assertThat(lines.get(7)).isEqualTo("#");
        assertThat(lines.subList(lines.size() - 6, lines.size()))
                .element(0)
                .isEqualTo("# Out of bounds values : 0 OK");
        assertThat(lines.subList(lines.size() - 4, lines.size()))
                .containsExactly("#", "# Collective test concluded: all_reduce_perf", "#", "");
        assertThat(run.console.err()).isEmpty();
    }

    @Test
    void withoutDevicesGivenAllAreUsedUnlessThreadsOrALauncherDivideThem() {
        int all = Math.max(2, Runtime.getRuntime().availableProcessors());
        String line = "all_reduce -b 64 -e 64 -n 1";
        assertThat(RunningBench.run(line).console.out()).contains(" nGpus " + all + " ");
        assertThat(RunningBench.run(line + " -t 2").console.out()).contains(" nGpus 1 ");
        RunningBench launched =
                RunningBench.run(line, bench -> bench.environment.put("PMI_SIZE", "2"));
        assertThat(launched.console.out()).contains(" nGpus 1 ");
        assertThat(launched.console.err()).contains("PMI_SIZE is set");
    }

    @Test
    void devicesStartWhereTheEnvironmentSays() {
        RunningBench run =
                RunningBench.run(
                        "all_reduce -b 64 -e 64 -g 2 -n 1",
                        bench -> bench.environment.put("NCCL_TESTS_DEVICE", "3"));
        assertVerified(run);
        assertThat(run.console.out()).contains(" device  3 [").contains(" device  4 [");
    }

    @ParameterizedTest
    @ValueSource(strings = {"-5", "-2147483648", "2147483648"})
    void aFirstDeviceThatCannotBeIsRefusedByName(String ordinal) {
        RunningBench run =
                RunningBench.run(
                        "all_reduce -b 64 -e 64 -g 2 -n 1",
                        bench -> bench.environment.put("NCCL_TESTS_DEVICE", ordinal));
        assertThat(run.code).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(run.console.out()).isEmpty();
        assertThat(run.console.errLines())
                .containsExactly(
                        "bench: NCCL_TESTS_DEVICE="
                                + ordinal
                                + ": must be the ordinal of the first device, 0 or more; -1 is as"
                                + " unset");
    }

    @Test
    void moreDevicesThanThereAreEndTheRun() {
        Path json = folder.resolve("few.json");
        RunningBench run =
                RunningBench.run(
                        "all_reduce -g 20 -t 100 -J " + json,
                        bench -> bench.environment.put("NCCL_TESTS_DEVICE", "7"));
        assertThat(run.code).isEqualTo(ExitCode.UNSUPPORTED);
        assertThat(run.console.errLines())
                .containsSequence(
                        "Invalid number of GPUs: 2007 requested but only 1024 were found.",
                        "Please check the number of processes and GPUs per process.");
        assertThat(run.console.out()).endsWith("# Using devices\n");
        assertThat(read(json).has("version")).isTrue();
    }

    @Test
    void whatDoesNotFitIsRefusedBeforeTheTable() {
        RunningBench run = RunningBench.run("all_reduce -g 2 -b 1K -e 2000G");
        assertThat(run.code).isEqualTo(ExitCode.UNSUPPORTED);
        assertThat(run.console.err())
                .containsPattern(
                        "-e 2147483648000 needs 4294967296000 bytes on each of 2 devices .* \\d+ are"
                                + " free there, .* the largest that fits is -e \\d+[GMK]?");
        assertThat(run.console.out()).doesNotContain("out-of-place");
        assertThat(run.console.outLines().getLast()).startsWith("#  Rank  1 ");
    }

    /** Without --jit-warmup, whose operations are not counted beforehand. */
    @Test
    void operationsAreCountedAndRotateThroughTheBuffers() {
        RunningBench run =
                RunningBench.run("all_reduce -g 2 -b 8 -e 64 -i 24 -n 3 -m 2 -w 2 -c 2 -N 2");
        assertVerified(run);
        assertThat(run.rows()).hasSize(6);
        List<WatchedBackend.Call> first =
                run.backend.calls.stream().filter(call -> call.rank() == 0).toList();
        assertThat(first).hasSize(116);
        assertThat(run.backend.calls).hasSize(232);
        long base = first.getFirst().sendAddress();
        List<Long> offsets = first.stream().map(call -> call.sendAddress() - base).toList();
        // Warm-up: two operations at each of 8, 16, 32 and 64 bytes.
        assertThat(offsets.subList(0, 8)).containsExactly(0L, 8L, 0L, 16L, 0L, 32L, 0L, 0L);
        // The row of 8 bytes: priming, three iterations of two, two checks.
        assertThat(offsets.subList(8, 17)).containsExactly(0L, 0L, 8L, 16L, 24L, 32L, 40L, 0L, 0L);
        // Groups: one operation of both ranks, or two.
        assertThat(run.backend.groupSizes).containsOnly(2, 4);
        assertThat(run.backend.groupSizes.stream().filter(size -> size == 4)).hasSize(36);
    }

    @Test
    void cellsRunUnseenBeforeTheFirstRowOfEachReduction() {
        String line = "reduce -t 2 -b 8 -e 64 -i 24 -n 3 -m 2 -w 2 -c 2 -N 2 -o all -r all";
        RunningBench without = RunningBench.run(line);
        RunningBench run =
                RunningBench.run(
                        line + " --jit-warmup 0.2",
                        bench -> bench.properties.put("nccl4j.bench.corrupt", "0:0:0:0"));
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.FAILED);
        // Only the row that was made wrong is: nothing is printed or counted before it.
        assertThat(run.console.out()).contains("# Out of bounds values : 1 FAILED\n");
        assertThat(run.rows()).hasSameSizeAs(without.rows());
        assertThat(fromEnd(run, WRONG_OUT_OF_PLACE)).startsWith("1").containsOnlyOnce("1");
        assertThat(run.backend.calls.size()).isGreaterThan(2 * without.backend.calls.size());
    }

    @Test
    void aLargeSizeAloneIsPrecededByASmallAndASharedOne() {
        String line = "all_reduce -g 2 -b 4M -e 4M -d int8 -c 0";
        RunningBench without = RunningBench.run(line);
        RunningBench run = RunningBench.run(line + " --jit-warmup 0.2");
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.OK);
        assertThat(run.rows()).hasSameSizeAs(without.rows());
        // Operations of a loop follow one another in the buffers, where there is room.
        assertThat(strides(without)).doesNotContain(128L << 10, 1L << 20);
        assertThat(strides(run)).contains(128L << 10, 1L << 20);
    }

    /** By how much what rank 0 sends lies behind what it sent before. */
    private static List<Long> strides(RunningBench run) {
        List<Long> sent =
                run.backend.calls.stream()
                        .filter(call -> call.rank() == 0)
                        .map(call -> call.sendAddress())
                        .toList();
        return IntStream.range(1, sent.size())
                .mapToObj(i -> sent.get(i) - sent.get(i - 1))
                .toList();
    }

    @ParameterizedTest
    @ValueSource(strings = {"-I 1", "-z 1", "-z 3", "-c -1", "-c 0", "-G 2", "-u 1", "-n 1"})
    void everyWayToRunCanRunUnseen(String options) {
        RunningBench run =
                RunningBench.run(
                        "all_reduce -t 2 -b 64 -e 128 -n 30 --jit-warmup 0.05 " + options,
                        bench -> bench.backend.captures = true);
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.OK);
        assertThat(run.rows()).hasSize(2);
    }

    @Test
    void longRotationsStartOver() {
        RunningBench run = RunningBench.run("all_reduce -g 2 -b 8 -e 8 -n 1 -c 0");
        OperationRecorder recorder =
                new OperationRecorder(run.backend, Program.ALL_REDUCE, List.of(), 1L << 40, 0);
        Series series = new Series(ElementType.FLOAT, RedOp.SUM, -1, "sum");
        Shape shape = Program.ALL_REDUCE.shape(8, ElementType.FLOAT, 2);
        RowPlan plan = new RowPlan(series, 8, shape, null);
        assertThat(recorder.loop(plan, Placement.OUT_OF_PLACE, 1_000_000, 1)).hasSize(4096);
        assertThat(recorder.loop(plan, Placement.OUT_OF_PLACE, 1_000_000, 3)).hasSize(4096);
        assertThat(recorder.loop(plan, Placement.OUT_OF_PLACE, 1_000_000, 4)).hasSize(1024);
        assertThat(recorder.loop(plan, Placement.OUT_OF_PLACE, 20, 1)).hasSize(20);
    }

    @ParameterizedTest
    @CsvSource({"0, 1", "1, 6", "2, 6", "9, 6", "3, 10"})
    void blockingModesWaitAsOften(int blocking, int waitsPerLoop) {
        RunningBench run =
                RunningBench.run("all_reduce -g 2 -b 64 -e 64 -n 5 -w 0 -c 0 -z " + blocking);
        // -z waits after the priming operation as well; 3 waits twice per iteration.
        int priming = blocking == 0 ? 1 : 2;
        int warmUp = 1;
        assertThat(run.backend.waits.get()).isEqualTo(warmUp + 2 * (priming + waitsPerLoop));
        long banners =
                run.console.outLines().stream()
                        .filter(line -> line.startsWith("# Blocking Enabled: "))
                        .count();
        assertThat(banners).isEqualTo(blocking >= 1 && blocking <= 3 ? 1 : 0);
    }

    @Test
    void theIssueTimeIsShownBesideBandwidthsOfTheWallTime() {
        RunningBench run =
                RunningBench.run(
                        "all_reduce -g 2 -b 64K -e 64K -n 1 -w 0 -c 0 -C 1",
                        bench -> bench.backend.slowness = Duration.ofMillis(200));
        assertThat(run.console.out()).contains(" cputime ");
        String[] row = run.rows().getFirst();
        // 200 ms of waiting: at most 65536 B / 200 ms = 0.0003 GB/s.
        assertThat(Double.parseDouble(row[6])).isEqualTo(0);
        assertThat(Double.parseDouble(row[5])).isLessThan(200_000);
    }

    @Test
    void iterationsAreTimedByEvents() {
        Path json = folder.resolve("iterations.json");
        RunningBench run =
                RunningBench.run("all_reduce -t 2 -g 2 -b 4K -e 4K -n 6 -I 1 -K 2 -J " + json);
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.OK);
        assertThat(run.rows().getFirst()).hasSize(21);
        assertThat(run.console.out())
                .contains(
                        "# Per-Iteration Report: CUDA event timing; i_* uses max over process rows;"
                                + " summary skips first 2 iterations \n");
        JsonNode cell = read(json).get("results").get(0).get("in_place_per_iter");
        assertThat(cell.get("times_us").size()).isEqualTo(6);
        assertThat(cell.get("skipped_iterations").asInt()).isEqualTo(2);
        for (JsonNode sample : cell.get("times_us")) {
            assertThat(sample.asDouble()).isPositive();
        }
        RunningBench stopped = RunningBench.run("all_reduce -g 2 -b 4K -e 4K -n 6 -I 1 -z 3");
        assertThat(stopped.rows().getFirst()).as("%s", stopped).hasSize(21);
        assertThat(stopped.code).isEqualTo(ExitCode.OK);
    }

    @Test
    void aGraphIsLaunchedWhereTheBackendCaptures() {
        RunningBench run =
                RunningBench.run(
                        "all_reduce -g 2 -b 64 -e 64 -n 5 -w 0 -G 3",
                        bench -> bench.backend.captures = true);
        assertVerified(run);
        assertThat(run.backend.launches.get()).isEqualTo(6);
        // Two ranks, two cells: priming, 3 launches of 5, check.
        assertThat(run.backend.calls).hasSize(2 * 2 * (1 + 15 + 1));
    }

    @ParameterizedTest
    @CsvSource({"0:0:1:3, 1, 0", "0:1:0:0, 0, 1", "1:0:0:511, 0, 0"})
    void oneWrongElementFailsTheRun(String fault, String outOfPlace, String inPlace) {
        RunningBench run =
                RunningBench.run(
                        "all_reduce -g 2 -b 1K -e 2K -n 2",
                        bench -> bench.properties.put("nccl4j.bench.corrupt", fault));
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.FAILED);
        String[] row = run.rows().getFirst();
        assertThat(row[8]).isEqualTo(outOfPlace);
        assertThat(row[12]).isEqualTo(inPlace);
        List<String> lines = run.console.outLines();
        assertThat(run.console.out()).contains("# Out of bounds values : 1 FAILED\n");
        assertThat(lines.getLast()).matches(" \\.\\. \\S+ pid \\d+: Test failure \\w+\\.java:\\d+");
        assertThat(lines.get(lines.size() - 2)).isEmpty();
    }

    @ParameterizedTest
    @EnumSource(Program.class)
    void oneWrongElementIsFoundInEveryProgram(Program program) {
        for (boolean opaque : new boolean[] {false, true}) {
            RunningBench run =
                    RunningBench.run(
                            program.label() + " -g 4 -b 4K -e 4K -n 1 -c 2 -d bfloat16",
                            bench -> {
                                bench.properties.put("nccl4j.bench.corrupt", "0:0:0:5");
                                if (opaque) {
                                    bench.found = new OpaqueBackend(Backends.named("cpu"));
                                }
                            });
            assertThat(run.code).as("%s", run).isEqualTo(ExitCode.FAILED);
            assertThat(fromEnd(run, WRONG_OUT_OF_PLACE)).containsExactly("1");
        }
    }

    @Test
    void whatANonRootRankMustNotTouchIsChecked() {
        for (String program : List.of("reduce", "gather")) {
            for (int cell = 0; cell < 2; cell++) {
                String fault = "0:" + cell + ":1:9";
                RunningBench run =
                        RunningBench.run(
                                program + " -g 3 -b 4K -e 4K -n 1 -r 2",
                                bench -> bench.properties.put("nccl4j.bench.corrupt", fault));
                assertThat(run.console.out()).contains("# Out of bounds values : 1 FAILED\n");
            }
        }
    }

    @Test
    void aFaultThatIsNoneIsRefused() {
        RunningBench run =
                RunningBench.run(
                        "all_reduce -g 2",
                        bench -> bench.properties.put("nccl4j.bench.corrupt", "everything"));
        assertThat(run.code).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(run.console.err()).contains("expected row:cell:rank:element");
    }

    @ParameterizedTest
    @ValueSource(strings = {"0:1:0:9999999999", "0:0:0:256", "1:0:0:0", "0:0:2:0"})
    void aFaultThatNeverComesFailsTheRun(String fault) {
        RunningBench run =
                RunningBench.run(
                        "all_reduce -g 2 -b 1K -e 1K -n 1",
                        bench -> bench.properties.put("nccl4j.bench.corrupt", fault));
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(run.console.err())
                .startsWith("bench: nccl4j.bench.corrupt=" + fault + " changed nothing")
                .hasLineCount(1);
        assertThat(run.console.out()).doesNotContain("concluded");
    }

    @Test
    void checksThatCompareNothingShowZero() {
        RunningBench run =
                RunningBench.run(
                        "all_reduce -g 2 -b 1K -e 1K -n 2 -c -1",
                        bench -> bench.properties.put("nccl4j.bench.corrupt", "0:0:0:0"));
        assertVerified(run);
    }

    @ParameterizedTest
    @CsvSource({"1000, FAILED, FAILED", "0.0000001, OK, OK", "-1, '', OK"})
    void theMinimumBandwidthDecides(String minimum, String verdict, ExitCode code) {
        RunningBench run =
                RunningBench.run(
                        "all_reduce -g 2 -b 64K -e 64K -n 2",
                        bench -> bench.environment.put("NCCL_TESTS_MIN_BW", minimum));
        assertThat(run.code).as("%s", run).isEqualTo(code);
        assertThat(run.console.out())
                .containsPattern("# Avg bus bandwidth    : [-+.e0-9]+ " + verdict + "\n");
    }

    @Test
    void theAverageIsOverAllCells() {
        Path json = folder.resolve("average.json");
        RunningBench run = RunningBench.run("alltoall -g 2 -b 8 -e 64K -f 8 -n 2 -J " + json);
        JsonNode file = read(json);
        List<Double> cells = new ArrayList<>();
        for (JsonNode row : file.get("results")) {
            cells.add(row.get("out_of_place").get("bus_bw").asDouble());
            cells.add(row.get("in_place").get("bus_bw").asDouble());
            assertThat(row.get("in_place").get("nwrong").isNull()).isTrue();
        }
        assertThat(cells).hasSize(2 * run.rows().size());
        double mean = cells.stream().mapToDouble(Double::doubleValue).average().orElseThrow();
        double shown = file.get("average_bus_bandwidth").get("bandwidth").asDouble();
        assertThat(shown).isCloseTo(mean, org.assertj.core.data.Offset.offset(2e-6));
    }

    @Test
    void aTimeoutEndsTheRun() {
        Path json = folder.resolve("timeout.json");
        RunningBench run =
                RunningBench.run(
                        "all_reduce -g 2 -b 1K -e 1K -T 1 -J " + json,
                        bench -> bench.backend.absent = communicator -> communicator.rank() == 1);
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.TIMEOUT);
        List<String> lines = run.console.outLines();
        assertThat(lines.get(lines.size() - 2))
                .matches("\\S+: Test timeout \\(1s\\) \\w+\\.java:\\d+");
        assertThat(lines.getLast()).matches(" \\.\\. \\S+ pid \\d+: Test failure \\w+\\.java:\\d+");
        assertThat(run.console.out()).doesNotContain("Out of bounds");
        assertThat(run.console.errLines()).hasSize(2);
        assertThat(run.console.errLines().getLast())
                .isEqualTo("bench: raise -T 1 if it is only slow");
        JsonNode file = read(json);
        assertThat(file.get("results").size()).isZero();
        assertThat(file.has("end_time")).isFalse();
    }

    @Test
    void aTimeoutOfOneThreadEndsAll() {
        RunningBench run =
                RunningBench.run(
                        "all_reduce -t 3 -b 1K -e 1K -T 1",
                        bench -> bench.backend.absent = communicator -> communicator.rank() == 1);
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.TIMEOUT);
    }

    @Test
    void aRefusedOperationEndsTheRun() {
        RunningBench run = RunningBench.run("broadcast -g 2 -b 1K -e 1K -r 5");
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.BACKEND);
        List<String> lines = run.console.outLines();
        assertThat(lines.get(lines.size() - 2))
                .matches("\\S+: Test cpu failure \\w+\\.java:\\d+ '.*root.*5.*'");
        assertThat(run.console.err()).contains("root");
    }

    @Test
    void generatedTrafficOfAllToAllV() {
        RunningBench spread = RunningBench.run("alltoallv -g 4 -b 1K -e 1K -n 1");
        assertThat(spread.rows().getFirst()).startsWith("1008", "64", "float", "none", "-1");
        assertVerified(spread);
        RunningBench even =
                RunningBench.run(
                        "alltoallv -g 3 -b 1K -e 1K -n 1",
                        bench -> bench.environment.put("NCCL_TESTS_ALLTOALLV_SPREAD", "0"));
        assertThat(even.rows().getFirst()).startsWith("1008", "84");
        assertVerified(even);
        RunningBench half =
                RunningBench.run(
                        "alltoallv -g 4 -b 1M -e 1M -n 1",
                        bench -> {
                            bench.environment.put("NCCL_TESTS_ALLTOALLV_SPREAD", "0.5");
                            bench.environment.put("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY", "1");
                        });
        assertThat(half.rows().getFirst()).startsWith("1048560", "65536");
        assertVerified(half);
        List<String> lines = half.console.outLines();
        int row =
                IntStream.range(0, lines.size())
                        .filter(i -> lines.get(i).matches("^ +\\d.*"))
                        .findFirst()
                        .orElseThrow();
        assertThat(lines.subList(row - 10, row))
                .filteredOn(line ->
                        line.startsWith(
                                "# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=generated nranks=4"))
                .hasSize(2);
    }

    @Test
    void trafficOfAllToAllVFromAFile() throws IOException {
        Path matrix = folder.resolve("matrix.txt");
        Files.writeString(matrix, "100 200 150\n50 100 75\n300 150 200\n");
        String line = "alltoallv -g 3 -b 1K -e 1K -n 1";
        RunningBench run =
                RunningBench.run(
                        line,
                        bench ->
                                bench.environment.put(
                                        "NCCL_TESTS_ALLTOALLV_MATRIX_FILE", matrix.toString()));
        assertVerified(run);
        assertThat(run.rows().getFirst()).startsWith("624", "0");
        RunningBench small =
                RunningBench.run(
                        "alltoallv -g 3 -b 512 -e 512 -n 1",
                        bench ->
                                bench.environment.put(
                                        "NCCL_TESTS_ALLTOALLV_MATRIX_FILE", matrix.toString()));
        assertThat(small.code).isEqualTo(ExitCode.INTERNAL);
        assertThat(small.console.out())
                .contains(
                        "maxBytes (-e) must be at least 624 bytes as required by traffic matrix file "
                                + matrix
                                + " (got 512). Increase -e.\n");
        assertThat(small.console.outLines().getLast()).startsWith(" .. ");
        RunningBench missing =
                RunningBench.run(
                        line,
                        bench ->
                                bench.environment.put(
                                        "NCCL_TESTS_ALLTOALLV_MATRIX_FILE", "/no/such/file"));
        assertThat(missing.code).isEqualTo(ExitCode.INTERNAL);
        assertThat(missing.console.out())
                .contains("Unable to open alltoallv traffic matrix file /no/such/file.\n");
    }

    @Test
    void theFileOfAWholeRunIsComplete() {
        Path json = folder.resolve("whole.json");
        RunningBench run = RunningBench.run("reduce -g 3 -b 1K -e 4K -n 2 -r 1 -J " + json);
        assertThat(run.console.outLines().getFirst()).isEqualTo("# Writing JSON output to " + json);
        JsonNode file = read(json);
        assertThat(file.get("results").size()).isEqualTo(3);
        assertThat(file.get("config").get("devices").size()).isEqualTo(3);
        assertThat(file.get("out_of_bounds").get("okay").asString()).isEqualTo("true");
        assertThat(file.has("end_time")).isTrue();
    }

    @Test
    void aTraceHoldsTheStepsOfEveryOperation() throws IOException {
        Path trace = folder.resolve("trace.jsonl");
        RunningBench run =
                RunningBench.run("all_reduce -g 2 -b 64 -e 64 -n 1 -w 0 --trace " + trace);
        assertVerified(run);
        List<String> lines = Files.readAllLines(trace);
        assertThat(lines).isNotEmpty();
        ObjectMapper mapper = new ObjectMapper();
        for (String line : lines) {
            assertThat(mapper.readTree(line).isObject()).isTrue();
        }
    }

    @Test
    void aTraceThatCannotBeWrittenFailsTheRun() {
        Path trace = folder.resolve("no").resolve("such").resolve("folder.jsonl");
        RunningBench run = RunningBench.run("all_reduce -g 2 -b 64 -e 64 -n 1 --trace " + trace);
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.UNSUPPORTED);
        assertThat(run.console.err()).contains(trace.toString());
    }

    /** Lines are buffered, so the device's answer comes when the ranks leave. */
    @Test
    void aTraceThatCannotBeWrittenToItsEndFailsTheRun() {
        assumeTrue(Files.exists(Path.of("/dev/full")), "unsupported: there is no /dev/full");
        RunningBench run = RunningBench.run("all_reduce -g 2 -b 64 -e 64 -n 1 --trace /dev/full");
        assertThat(run.rows()).hasSize(1);
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.UNSUPPORTED);
        assertThat(run.console.out()).doesNotContain("OK").doesNotContain("concluded");
        assertThat(run.console.err()).contains("/dev/full is incomplete");
    }

    @ParameterizedTest
    @CsvSource({
        "Java heap space, out of memory (Java heap space), -Xmx",
        "unable to create native thread: possibly out of memory, another thread, ulimit -u"
    })
    void aLackOfMemoryOrThreadsIsOneLine(String message, String what, String remedy) {
        OutOfMemoryError lack = new OutOfMemoryError(message);
        for (Throwable thrown : List.of(lack, new IllegalStateException("in a thread", lack))) {
            CapturedConsole captured = new CapturedConsole();
            Bench bench =
                    new Bench(
                            captured.console(),
                            Map.of(),
                            name -> null,
                            name -> {
                                switch (thrown) {
                                    case Error error -> throw error;
                                    case RuntimeException failed -> throw failed;
                                    default -> throw new AssertionError(thrown);
                                }
                            },
                            List::of);
            assertThat(bench.run(List.of("all_reduce"))).isEqualTo(ExitCode.INTERNAL);
            assertThat(captured.err()).startsWith("bench: ").contains(what, remedy);
            assertThat(captured.err().lines()).hasSize(1);
            assertThat(captured.out()).isEmpty();
        }
    }

    @Test
    void timestampsEndTheRows() {
        RunningBench run = RunningBench.run("all_reduce -g 2 -b 64 -e 64 -n 1 -S 1");
        List<String> rows =
                run.console.outLines().stream().filter(l -> l.matches("^ +\\d.*")).toList();
        assertThat(rows.getFirst()).matches(".* {2}\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d");
    }

    @Test
    void anEndlessRunEndsWithItsFooterWhenInterrupted() throws Exception {
        Path json = folder.resolve("endless.json");
        RunningBench running = RunningBench.idle();
        CountDownLatch rows = new CountDownLatch(20);
        Console console = counting(running.console, rows);
        Bench bench = running.bench(console);
        CompletableFuture<ExitCode> code =
                CompletableFuture.supplyAsync(() ->
                        bench.run(
                                List.of(
                                        "all_reduce",
                                        "-t",
                                        "2",
                                        "-b",
                                        "64",
                                        "-e",
                                        "1M",
                                        "-n",
                                        "2",
                                        "-N",
                                        "0",
                                        "-J",
                                        json.toString())));
        assertThat(rows.await(30, TimeUnit.SECONDS)).as("%s", running).isTrue();
        assertThat(bench.interrupt()).isTrue();
        assertThat(code.get(20, TimeUnit.SECONDS)).isEqualTo(ExitCode.INTERRUPTED);
        assertThat(bench.interrupt()).as("twice").isFalse();
        List<String> lines = running.console.outLines();
        assertThat(lines.subList(lines.size() - 4, lines.size()))
                .containsExactly("#", "# Collective test concluded: all_reduce_perf", "#", "");
        JsonNode file = read(json);
        assertThat(file.get("results").size()).isEqualTo(running.rows().size());
        assertThat(file.has("end_time")).isTrue();
    }

    @Test
    void aLargeOperationCanBeInterrupted() throws Exception {
        RunningBench running = RunningBench.idle();
        CountDownLatch header = new CountDownLatch(10);
        Bench bench = running.bench(counting(running.console, header));
        CompletableFuture<ExitCode> code =
                CompletableFuture.supplyAsync(() ->
                        bench.run(
                                List.of(
                                        "all_reduce",
                                        "-g",
                                        "2",
                                        "-b",
                                        "64M",
                                        "-e",
                                        "64M",
                                        "-n",
                                        "100000",
                                        "-c",
                                        "0")));
        assertThat(header.await(30, TimeUnit.SECONDS)).as("%s", running).isTrue();
        assertThat(bench.interrupt()).isTrue();
        assertThat(running.console.out()).contains("# Avg bus bandwidth    : -nan \n");
        assertThat(running.console.err())
                .contains("bench: interrupted after 0 rows; the average is of what had run");
        assertThat(code.get(20, TimeUnit.SECONDS)).isEqualTo(ExitCode.INTERRUPTED);
    }

    @Test
    void aReaderThatLeavesEndsTheRunQuietly() {
        CapturedConsole captured = new CapturedConsole();
        assertThat(withOutputThatBreaks("Broken pipe", captured)).isEqualTo(ExitCode.OUTPUT_CLOSED);
        assertThat(captured.err()).isEmpty();
    }

    @Test
    void aFullDiskEndsTheRunAloud() {
        CapturedConsole captured = new CapturedConsole();
        assertThat(withOutputThatBreaks("No space left on device", captured))
                .isEqualTo(ExitCode.INTERNAL);
        assertThat(captured.err())
                .isEqualTo(
                        "bench: standard output cannot be written, the rest of the table is lost:"
                                + " No space left on device\n");
    }

    /** An endless run whose standard output fails behind its header. */
    private static ExitCode withOutputThatBreaks(String reason, CapturedConsole captured) {
        OutputStream breaking =
                new OutputStream() {
                    private int lines;

                    @Override
                    public void write(int b) throws IOException {
                        lines += b == '\n' ? 1 : 0;
                        if (lines > 12) {
                            throw new IOException(reason);
                        }
                    }
                };
        Console console = new Console(breaking, captured.errStream());
        return RunningBench.idle()
                .bench(console)
                .run(List.of("all_reduce", "-g", "2", "-b", "64", "-e", "64", "-N", "0"));
    }

    private static Console counting(CapturedConsole captured, CountDownLatch lines) {
        OutputStream out =
                new OutputStream() {
                    @Override
                    public void write(int b) {
                        if (b == '\n') {
                            lines.countDown();
                        }
                        captured.write(b);
                    }
                };
        return new Console(
                new PrintStream(out, false, StandardCharsets.UTF_8), captured.errStream());
    }

    private static JsonNode read(Path json) {
        return new ObjectMapper().readTree(json.toFile());
    }
}
