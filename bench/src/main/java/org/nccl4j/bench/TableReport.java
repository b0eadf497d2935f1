package org.nccl4j.bench;

import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * nccl-tests' table on standard output, to the character. The methods stand in the order of the
 * lines; what {@code -J} prints comes before the first.
 *
 * <p>Thread safety: stateless but for the console, which writes whole lines.
 */
final class TableReport {

    /** The version of nccl-tests whose output this is. */
    private static final String VERSION = "2.19.6";

    /** How a time is shown in a row. */
    private static final DateTimeFormatter TIMESTAMP =
            DateTimeFormatter.ofPattern("uuuu-MM-dd HH:mm:ss", Locale.ROOT);

    private static final int TIME_WIDTH = 7;
    private static final int BANDWIDTH_WIDTH = 6;

    private final Console console;
    private final Program program;
    private final BenchOptions options;

    TableReport(Console console, BenchOptions options) {
        this.console = console;
        this.program = options.program();
        this.options = options;
    }

    /** A local time as the table and the JSON file show it. */
    static String timestamp(LocalDateTime time) {
        return TIMESTAMP.format(time);
    }

    /**
     * Versions, parameters and banners, up to the title of the device list.
     *
     * @param gpusPerThread what {@link BenchOptions.Layout#gpusPerThread(int, boolean)} came to
     */
    void start(BackendFacts facts, int gpusPerThread) {
        BenchOptions.Sweep sweep = options.sweep();
        BenchOptions.Timing timing = options.timing();
        console.out(
                "# nccl-tests version "
                        + VERSION
                        + " nccl-headers="
                        + facts.ncclHeaders()
                        + " nccl-library="
                        + facts.ncclLibrary());
        console.out("# Collective test starting: " + program.executable());
        String step =
                sweep.multiplies()
                        ? sweep.stepFactor() + "(factor)"
                        : sweep.stepBytes() + "(bytes)";
        console.out(
                "# nThread "
                        + options.layout().threads()
                        + " nGpus "
                        + gpusPerThread
                        + " minBytes "
                        + sweep.minBytes()
                        + " maxBytes "
                        + sweep.maxBytes()
                        + " step: "
                        + step
                        + " warmup iters: "
                        + timing.warmupIterations()
                        + " iters: "
                        + timing.iterations()
                        + " agg iters: "
                        + timing.aggregated()
                        + " validation: "
                        + options.work().checkRounds()
                        + " graph: "
                        + timing.graphLaunches()
                        + " unalign: "
                        + options.work().unalignElements());
        banners(timing);
        if (facts.emulated()) {
            console.out("# Emulator: the devices are host memory and no figure here is a GPU's ");
        }
        console.out("#");
        console.out("# Using devices");
    }

    private void banners(BenchOptions.Timing timing) {
        switch (timing.blocking()) {
            case 1 ->
                    console.out(
                            "# Blocking Enabled: wait and barrier after each inner iteration (-m) ");
            case 2 ->
                    console.out(
                            "# Blocking Enabled: wait after each inner iteration (-m), no barrier ");
            case 3 ->
                    console.out(
                            "# Blocking Enabled: wait and barrier after each outer iteration (-n);"
                                    + " time excludes barrier ");
            default -> {}
        }
        if (timing.perIteration()) {
            String skipped =
                    timing.perIterationSkip() > 0
                            ? "; summary skips first " + timing.perIterationSkip() + " iterations"
                            : "";
            console.out(
                    "# Per-Iteration Report: CUDA event timing; i_* uses max over process rows"
                            + skipped
                            + " ");
        }
        if (options.layout().parallelInit()) {
            console.out("# Parallel Init Enabled: threads call into NcclInitRank concurrently ");
        }
    }

    /** The device list: every rank of every process, in rank order. */
    void devices(List<DeviceLine> devices) {
        for (DeviceLine device : devices) {
            console.out(
                    String.format(
                            Locale.ROOT,
                            "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s",
                            device.rank(),
                            device.group(),
                            device.pid(),
                            device.hostname(),
                            device.device(),
                            device.busId(),
                            device.name()));
        }
    }

    /** The column headers. */
    void columns() {
        boolean iterations = options.timing().perIteration();
        boolean timestamps = options.output().timestamps();
        String time = options.output().cpuTime() ? "cputime" : "time";
        console.out("#");
        console.out(
                iterations
                        ? "#"
                                + CNumber.right("out-of-place (+ per-iteration)", 95)
                                + CNumber.right("in-place (+ per-iteration)", 58)
                        : "#"
                                + CNumber.right("out-of-place", 74)
                                + CNumber.right("in-place", 31)
                                + " ".repeat(10));
        console.out(
                header(
                        List.of("size", "count", "type", "redop", "root"),
                        List.of(time, "algbw", "busbw", "#wrong"),
                        iterations ? List.of("i_min", "i_max", "i_p99", "i_cv%") : List.of(),
                        (timestamps ? CNumber.right("timestamp", 19) : "")
                                + (options.output().algorithms() ? " algo" : "")));
        console.out(
                header(
                        List.of("(B)", "(elements)", "", "", ""),
                        List.of("(us)", "(GB/s)", "(GB/s)", ""),
                        iterations ? List.of("(us)", "(us)", "(us)", "(%)") : List.of(),
                        timestamps ? CNumber.right("%Y-%m-%d %H:%M:%S", 19) : ""));
    }

    private static String header(
            List<String> prefix, List<String> cell, List<String> iterations, String last) {
        StringBuilder placement = new StringBuilder();
        placement.append("  ").append(CNumber.right(cell.get(0), TIME_WIDTH));
        for (String title : cell.subList(1, cell.size())) {
            placement.append("  ").append(CNumber.right(title, BANDWIDTH_WIDTH));
        }
        for (String title : iterations) {
            placement.append("  ").append(CNumber.right(title, TIME_WIDTH));
        }
        return "# "
                + CNumber.right(prefix.get(0), 10)
                + "  "
                + CNumber.right(prefix.get(1), 12)
                + "  "
                + CNumber.right(prefix.get(2), 8)
                + "  "
                + CNumber.right(prefix.get(3), 6)
                + "  "
                + CNumber.right(prefix.get(4), 6)
                + placement
                + placement
                + " "
                + last;
    }

    /** The line of a program that cannot run on so many ranks; once per thread. */
    void skipped(int ranks) {
        console.out("nRanks " + ranks + " is not a power of 2, skipping");
    }

    /** One row. */
    void row(Row row) {
        StringBuilder line = new StringBuilder(140);
        line.append(CNumber.right(Long.toString(row.shape().sizeBytes()), 12))
                .append("  ")
                .append(CNumber.right(Long.toString(row.shape().paramCount()), 12))
                .append("  ")
                .append(CNumber.right(row.series().type().label(), 8))
                .append("  ")
                .append(CNumber.right(row.series().redop(), 6))
                .append("  ")
                .append(CNumber.right(Integer.toString(row.series().root()), 6));
        cell(line, row.outOfPlace());
        cell(line, row.inPlace());
        if (options.output().timestamps()) {
            line.append(CNumber.right(timestamp(row.finishedAt()), 21));
        }
        row.algorithm().ifPresent(name -> line.append("  ").append(name));
        console.out(line.toString());
    }

    private static void cell(StringBuilder line, Cell cell) {
        time(line, cell.micros());
        line.append("  ").append(CNumber.shrinking(cell.bandwidth().algBwGBps(), BANDWIDTH_WIDTH));
        line.append("  ").append(CNumber.shrinking(cell.bandwidth().busBwGBps(), BANDWIDTH_WIDTH));
        OptionalLong wrong = cell.wrongElements();
        // One character less than a number takes: what follows moves left, as in nccl-tests.
        line.append(
                wrong.isPresent()
                        ? "  " + CNumber.right(CNumber.general((double) wrong.getAsLong()), 6)
                        : "    N/A");
        cell.iterations()
                .ifPresent(times -> {
                    time(line, times.minMicros());
                    time(line, times.maxMicros());
                    time(line, times.p99Micros());
                    time(line, times.cvPercent());
                });
    }

    private static void time(StringBuilder line, double value) {
        line.append("  ").append(CNumber.shrinking(value, TIME_WIDTH));
    }

    /**
     * The end of a run that was not stopped by a failure.
     *
     * @param memory what -M reports
     * @param lastError the backend's last error text, if it has one
     */
    void footer(Summary summary, Optional<MemoryUsage> memory, Optional<String> lastError) {
        console.out(
                "# Out of bounds values : "
                        + summary.outOfBounds()
                        + (summary.allCorrect() ? " OK" : " FAILED"));
        String verdict =
                summary.expectedBusBwGBps().isEmpty() ? "" : summary.fastEnough() ? "OK" : "FAILED";
        console.out(
                "# Avg bus bandwidth    : "
                        + CNumber.general(summary.meanBusBwGBps())
                        + " "
                        + verdict);
        console.out("#");
        console.out("# Collective test concluded: " + program.executable());
        memory.ifPresent(usage ->
                console.out(
                        "# GPU memory usage     : Initialization "
                                + MemoryUsage.amount(usage.initializationBytes())
                                + " | User-Allocated "
                                + MemoryUsage.amount(usage.userAllocatedBytes())
                                + " | Collective "
                                + MemoryUsage.amount(usage.collectiveBytes())
                                + " | Total  "
                                + MemoryUsage.amount(usage.totalBytes())));
        console.out("#");
        console.out(lastError.map(text -> "# error: " + text).orElse(""));
    }
}
