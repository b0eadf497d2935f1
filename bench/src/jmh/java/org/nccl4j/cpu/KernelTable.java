package org.nccl4j.cpu;

import java.io.IOException;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import org.nccl4j.bench.JmhWords;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.CommandLineOptions;
import org.openjdk.jmh.runner.options.OptionsBuilder;

/**
 * Runs {@link KernelBenchmark} and prints what is read and written per second, all buffers
 * together: the median of all iterations, with the lowest and the highest, the ratio of the medians
 * of Java and C, and the bytes that a call allocates.
 */
public final class KernelTable {
    private static final String ROW = "%-10s %-6s %5s %9s %22s %22s %22s %6s %6s%n";

    private KernelTable() {}

    /**
     * Runs it.
     *
     * @param arguments JMH's options
     */
    public static void main(String[] arguments) throws RunnerException, IOException {
        CommandLineOptions options = JmhWords.parse("bench/jmh kernels", arguments);
        Collection<RunResult> results =
                new Runner(
                                new OptionsBuilder()
                                        .parent(options)
                                        .include(KernelBenchmark.class.getName())
                                        .addProfiler(GCProfiler.class)
                                        .build())
                        .run();
        Map<String, Map<String, RunResult>> rows = new LinkedHashMap<>();
        for (RunResult result : results) {
            rows.computeIfAbsent(row(result), key -> new LinkedHashMap<>())
                    .put(result.getPrimaryResult().getLabel(), result);
        }
        System.out.println();
        System.out.printf(
                ROW,
                "type",
                "op",
                "ranks",
                "bytes",
                "best GB/s",
                "plain GB/s",
                "C GB/s",
                "best/C",
                "B/op");
        for (Map<String, RunResult> row : rows.values()) {
            RunResult best = row.get("best");
            double[] inJava = rates(best);
            double[] inC = rates(row.get("inC"));
            System.out.printf(
                    ROW,
                    best.getParams().getParam("type"),
                    best.getParams().getParam("reduction"),
                    best.getParams().getParam("ranks"),
                    best.getParams().getParam("sizeBytes"),
                    spread(inJava),
                    spread(rates(row.get("plain"))),
                    spread(inC),
                    inC.length == 0 ? "" : text(median(inJava) / median(inC), 2),
                    text(best.getSecondaryResults().get("gc.alloc.rate.norm").getScore(), 1));
        }
    }

    private static String row(RunResult result) {
        return result.getParams().getParamsKeys().stream()
                .map(result.getParams()::getParam)
                .toList()
                .toString();
    }

    /** Bytes per nanosecond of each iteration, in order of size; none if it was not run. */
    private static double[] rates(RunResult result) {
        if (result == null) {
            return new double[0];
        }
        double bytes =
                2.0
                        * Integer.parseInt(result.getParams().getParam("ranks"))
                        * Integer.parseInt(result.getParams().getParam("sizeBytes"));
        return result.getBenchmarkResults().stream()
                .flatMap(fork -> fork.getIterationResults().stream())
                .mapToDouble(iteration -> bytes / iteration.getPrimaryResult().getScore())
                .sorted()
                .toArray();
    }

    private static double median(double[] sorted) {
        return sorted[sorted.length / 2];
    }

    private static String spread(double[] sorted) {
        if (sorted.length == 0) {
            return "";
        }
        return text(median(sorted), 1)
                + " ("
                + text(sorted[0], 1)
                + "-"
                + text(sorted[sorted.length - 1], 1)
                + ")";
    }

    private static String text(double value, int digits) {
        return String.format(Locale.ROOT, "%." + digits + "f", value);
    }
}
