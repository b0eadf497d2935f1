package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The table to the character; in the expected texts a {@code $} ends each line. */
final class TableReportTest {

    private static final BackendFacts CPU = Facts.CPU;
    private static final BackendFacts NCCL =
            new BackendFacts("nccl", 22707, 23007, "2.30.7", true, true, false);
    private static final OptionalLong NOT_CHECKED = OptionalLong.empty();
    private static final OptionalLong CORRECT = OptionalLong.of(0);

    private final CapturedConsole captured = new CapturedConsole();

    private BenchOptions options(String line) {
        CapturedConsole parsing = new CapturedConsole();
        CommandLine.Outcome outcome =
                CommandLine.parse(Arrays.asList(line.split(" ")), name -> NCCL, parsing.console());
        assertThat(outcome).as(parsing.err()).isInstanceOf(CommandLine.Run.class);
        return ((CommandLine.Run) outcome).options();
    }

    private TableReport table(String line) {
        return new TableReport(captured.console(), options(line));
    }

    private String printed() {
        return captured.out().lines().map(line -> line + "$\n").collect(Collectors.joining());
    }

    @Test
    void startOnTheCpu() {
        table("allreduce -b 1K -e 1G").start(CPU, 2);
        assertThat(printed())
                .isEqualTo(
                        """
                        # nccl-tests version 2.19.6 nccl-headers=0 nccl-library=0$
                        # Collective test starting: all_reduce_perf$
                        # nThread 1 nGpus 2 minBytes 1024 maxBytes 1073741824 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0$
                        #$
                        # Using devices$
                        """);
    }

    @Test
    void startWithEveryBanner() {
        table("reduce -i 1M -z 1 -I 1 -K 2 -p 1 -u 3 -w 5 -n 7 -m 2 -c 0 -t 4").start(NCCL, 1);
        assertThat(printed())
                .isEqualTo(
                        """
                        # nccl-tests version 2.19.6 nccl-headers=22707 nccl-library=23007$
                        # Collective test starting: reduce_perf$
                        # nThread 4 nGpus 1 minBytes 33554432 maxBytes 33554432 step: 1048576(bytes) warmup iters: 5 iters: 7 agg iters: 2 validation: 0 graph: 0 unalign: 3$
                        # Blocking Enabled: wait and barrier after each inner iteration (-m) $
                        # Per-Iteration Report: CUDA event timing; i_* uses max over process rows; summary skips first 2 iterations $
                        # Parallel Init Enabled: threads call into NcclInitRank concurrently $
                        #$
                        # Using devices$
                        """);
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "-z 2 | '# Blocking Enabled: wait after each inner iteration (-m), no barrier '",
                "-z 3 | '# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes barrier '",
                "-I 1 | '# Per-Iteration Report: CUDA event timing; i_* uses max over process rows '",
            })
    void banners(String words, String banner) {
        table("all_reduce " + words).start(CPU, 1);
        assertThat(captured.outLines()).contains(banner).hasSize(6);
    }

    @Test
    void otherBlockingModesHaveNoBanner() {
        table("all_reduce -z 4").start(CPU, 1);
        assertThat(captured.outLines()).hasSize(5);
    }

    @Test
    void aGraphIsNamed() {
        table("all_reduce -G 3").start(NCCL, 1);
        assertThat(captured.out()).contains(" graph: 3 unalign: 0\n");
    }

    @Test
    void devices() {
        TableReport table = table("all_reduce");
        table.devices(
                List.of(
                        new DeviceLine(
                                0, 0, 4711, "node1", 0, "0000:1b:00", "NVIDIA H100 80GB HBM3"),
                        new DeviceLine(
                                127, 10, 1234567, "a-long-hostname", 15, "0000:00:00", "A CPU")));
        assertThat(printed())
                .isEqualTo(
                        """
                        #  Rank  0 Group  0 Pid   4711 on      node1 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3$
                        #  Rank 127 Group 10 Pid 1234567 on a-long-hostname device 15 [0000:00:00] A CPU$
                        """);
    }

    @Test
    void headerAndRows() {
        TableReport table = table("all_reduce");
        table.columns();
        table.row(Rows.allReduce(8, 10.532, 10.471, 0, 0));
        table.row(Rows.allReduce(1048576, 31.07, 30.925, 0, 0));
        table.row(Rows.allReduce(33554432, 412.784, 411.902, 0, 0));
        table.row(Rows.allReduce(1073741824, 9987.314, 10012.87, 0, 0));
        table.row(Rows.allReduce(8589934592L, 79012.45, 79120.08, 0, 0));
        table.row(Rows.allReduce(17179869184L, 158023.9, 1234567.4, 0, 0));
        table.row(Rows.allReduce(1024, 12, 12, 3, 1234567));
        assertThat(printed())
                .isEqualTo(
                        """
                        #$
                        #                                                              out-of-place                       in-place          $
                        #       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong $
                        #        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         $
                                   8             2     float     sum      -1    10.53    0.00    0.00       0    10.47    0.00    0.00       0$
                             1048576        262144     float     sum      -1    31.07   33.75   59.06       0    30.93   33.91   59.34       0$
                            33554432       8388608     float     sum      -1   412.78   81.29  142.25       0   411.90   81.46  142.56       0$
                          1073741824     268435456     float     sum      -1  9987.31  107.51  188.14       0  10012.9  107.24  187.66       0$
                          8589934592    2147483648     float     sum      -1  79012.4  108.72  190.25       0  79120.1  108.57  189.99       0$
                         17179869184    4294967296     float     sum      -1   158024  108.72  190.25       0  1234567   13.92   24.35       0$
                                1024           256     float     sum      -1    12.00    0.09    0.15       3    12.00    0.09    0.15  1.23457e+06$
                        """);
    }

    @Test
    void rowsOfOtherPrograms() {
        TableReport table = table("sendrecv");
        table.row(
                Rows.row(
                        Program.SENDRECV,
                        Rows.floatSum(),
                        1 << 20,
                        2,
                        55.5,
                        CORRECT,
                        54.25,
                        NOT_CHECKED));
        Series none = new Series(ElementType.FLOAT, RedOp.SUM, -1, "none");
        table.row(Rows.row(Program.ALL_GATHER, none, 1 << 20, 3, 55.5, CORRECT, 54.25, CORRECT));
        Series root = new Series(ElementType.BFLOAT16, RedOp.SUM, 2, "none");
        table.row(Rows.row(Program.BROADCAST, root, 8192, 3, 7.5, CORRECT, 7.25, CORRECT));
        Series empty = new Series(ElementType.FLOAT, RedOp.SUM, -1, "");
        table.row(Rows.row(Program.HYPERCUBE, empty, 8192, 4, 5, CORRECT, 5, CORRECT));
        assertThat(printed())
                .isEqualTo(
                        """
                             1048576        262144     float     sum      -1    55.50   18.89   18.89       0    54.25   19.33   19.33    N/A$
                             1048560         87380     float    none      -1    55.50   18.89   12.60       0    54.25   19.33   12.89       0$
                                8192          4096  bfloat16    none       2     7.50    1.09    1.09       0     7.25    1.13    1.13       0$
                                8192           512     float              -1     5.00    1.23    1.23       0     5.00    1.23    1.23       0$
                        """);
    }

    @Test
    void anUncheckedRowIsTwoCharactersShorter() {
        TableReport table = table("all_reduce -c 0");
        Series series = Rows.floatSum();
        table.row(Rows.row(Program.ALL_REDUCE, series, 8, 2, 10, NOT_CHECKED, 10, NOT_CHECKED));
        table.row(Rows.row(Program.ALL_REDUCE, series, 8, 2, 10, CORRECT, 10, CORRECT));
        List<String> lines = captured.outLines();
        assertThat(lines.get(0)).hasSize(lines.get(1).length() - 2).endsWith("    N/A");
    }

    @Test
    void timestamps() {
        TableReport table = table("all_reduce -S 1");
        table.columns();
        table.row(Rows.allReduce(8, 10.532, 10.471, 0, 0));
        assertThat(printed())
                .isEqualTo(
                        """
                        #$
                        #                                                              out-of-place                       in-place          $
                        #       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong           timestamp$
                        #        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)           %Y-%m-%d %H:%M:%S$
                                   8             2     float     sum      -1    10.53    0.00    0.00       0    10.47    0.00    0.00       0  2026-01-31 09:05:07$
                        """);
    }

    @Test
    void cpuTime() {
        table("all_reduce -C 1").columns();
        assertThat(captured.outLines().get(2))
                .isEqualTo(
                        "#       size         count      type   redop    root  cputime   algbw   busbw"
                                + "  #wrong  cputime   algbw   busbw  #wrong ");
    }

    private static IterationTimes summary(double min, double max, double p99, double cv) {
        return new IterationTimes(0, min, max, 0, 0, 0, p99, 0, cv, List.of(), List.of());
    }

    @Test
    void perIteration() {
        TableReport table = table("all_reduce -I 1");
        table.columns();
        table.row(
                Rows.with(
                        Rows.allReduce(1048576, 31.07, 30.925, 0, 0),
                        summary(29.9, 44.2, 44.2, 9.87),
                        summary(29.8, 33.1, 33.1, 2.5)));
        assertThat(printed())
                .isEqualTo(
                        """
                        #$
                        #                                                                 out-of-place (+ per-iteration)                                in-place (+ per-iteration)$
                        #       size         count      type   redop    root     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv% $
                        #        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)     (us)     (us)      (%)     (us)  (GB/s)  (GB/s)             (us)     (us)     (us)      (%) $
                             1048576        262144     float     sum      -1    31.07   33.75   59.06       0    29.90    44.20    44.20     9.87    30.93   33.91   59.34       0    29.80    33.10    33.10     2.50$
                        """);
    }

    @Test
    void footer() {
        table("all_reduce")
                .footer(
                        new Summary(0, 98.1553, OptionalDouble.empty()),
                        Optional.empty(),
                        Optional.empty());
        assertThat(printed())
                .isEqualTo(
                        """
                        # Out of bounds values : 0 OK$
                        # Avg bus bandwidth    : 98.1553 $
                        #$
                        # Collective test concluded: all_reduce_perf$
                        #$
                        $
                        """);
        assertThat(captured.out()).endsWith("#\n\n");
    }

    @Test
    void footerOfAFailedRun() {
        table("all_reduce -M 1")
                .footer(
                        new Summary(4, 8, OptionalDouble.of(1000)),
                        Optional.of(new MemoryUsage(100663296, 1342177280, 0)),
                        Optional.of("unhandled system error"));
        assertThat(printed())
                .isEqualTo(
                        """
                        # Out of bounds values : 4 FAILED$
                        # Avg bus bandwidth    : 8 FAILED$
                        #$
                        # Collective test concluded: all_reduce_perf$
                        # GPU memory usage     : Initialization 96.0 MB | User-Allocated 1.25 GB | Collective 0.00 B | Total  1.34 GB$
                        #$
                        # error: unhandled system error$
                        """);
    }

    @Test
    void footerWithAMinimumAndWithoutRows() {
        TableReport table = table("hypercube");
        table.skipped(6);
        table.footer(
                new Summary(0, 8, OptionalDouble.of(0.0001)), Optional.empty(), Optional.empty());
        table.footer(
                new Summary(0, 0.0 / 0.0, OptionalDouble.empty()),
                Optional.empty(),
                Optional.empty());
        assertThat(captured.outLines())
                .contains(
                        "nRanks 6 is not a power of 2, skipping",
                        "# Avg bus bandwidth    : 8 OK",
                        "# Avg bus bandwidth    : -nan ");
    }

    @Test
    void failures() {
        FailureReport report = new FailureReport(captured.console(), "node1.example.org", 4711);
        StackTraceElement at =
                new StackTraceElement("org.nccl4j.bench.Sweep", "run", "Sweep.java", 123);
        report.failed("NCCL", "internal error / no error text", at);
        report.timedOut(5, at);
        report.where(at);
        assertThat(printed())
                .isEqualTo(
                        """
                        node1: Test NCCL failure Sweep.java:123 'internal error / no error text'$
                         .. node1 pid 4711: Test failure Sweep.java:123$
                        node1: Test timeout (5s) Sweep.java:123$
                         .. node1 pid 4711: Test failure Sweep.java:123$
                         .. node1 pid 4711: Test failure Sweep.java:123$
                        """);
        report.tooFewDevices(8, 2);
        assertThat(captured.errLines())
                .containsExactly(
                        "Invalid number of GPUs: 8 requested but only 2 were found.",
                        "Please check the number of processes and GPUs per process.");
    }

    @Test
    void aClosedStandardOutputEndsTheRun() {
        OutputStream closed =
                new OutputStream() {
                    @Override
                    public void write(int b) throws IOException {
                        throw new IOException("Broken pipe");
                    }
                };
        Console console =
                new Console(closed, new PrintStream(closed, false, StandardCharsets.UTF_8));
        TableReport table = new TableReport(console, options("all_reduce"));
        assertThatThrownBy(table::columns).isInstanceOf(UncheckedIOException.class);
        console.err("a note that nobody can read any more");
    }
}
