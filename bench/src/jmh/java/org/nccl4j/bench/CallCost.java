package org.nccl4j.bench;

import java.io.IOException;
import java.util.Collection;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.IterationResult;
import org.openjdk.jmh.results.Result;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.CommandLineOptions;
import org.openjdk.jmh.runner.options.OptionsBuilder;

/**
 * Runs {@link CallCostBenchmark} and prints what a call costs more than the same call in C, in time
 * that passed and in the processor's time, and what it allocates. All are medians of all iterations
 * of all forks; times have the tenth and the ninetieth percentile beside them.
 */
public final class CallCost {
    private static final String ROW = "%-26s %25s %25s %9s %8s%n";

    private CallCost() {}

    /**
     * Runs it.
     *
     * @param arguments JMH's options
     */
    public static void main(String[] arguments) throws RunnerException, IOException {
        CommandLineOptions options = JmhWords.parse("bench/jmh call-cost", arguments);
        Collection<RunResult> results =
                new Runner(
                                new OptionsBuilder()
                                        .parent(options)
                                        .include(CallCostBenchmark.class.getName())
                                        .addProfiler(GCProfiler.class)
                                        .addProfiler(CpuTimeProfiler.class)
                                        .build())
                        .run();
        Map<String, RunResult> byName = new TreeMap<>();
        for (RunResult result : results) {
            byName.put(result.getPrimaryResult().getLabel(), result);
        }
        System.out.println();
        System.out.printf(ROW, "call", "ns", "cpu ns", "minus C", "B/op");
        byName.forEach((name, result) -> {
            double[] time = scores(result, IterationResult::getPrimaryResult);
            double[] cpu = cpu(result);
            double[] cpuInC = cpu(byName.get(name.replaceFirst("(In|By)[A-Z].*", "InC")));
            System.out.printf(
                    ROW,
                    name,
                    spread(time),
                    spread(cpu),
                    text(quantile(cpu, 0.5) - quantile(cpuInC, 0.5)),
                    String.format(Locale.ROOT, "%.2f", quantile(allocated(result), 0.5)));
        });
    }

    private static double[] allocated(RunResult result) {
        return scores(
                result, iteration -> iteration.getSecondaryResults().get("gc.alloc.rate.norm"));
    }

    private static double[] cpu(RunResult result) {
        return scores(
                result, iteration -> iteration.getSecondaryResults().get(CpuTimeProfiler.LABEL));
    }

    /** Of every measured iteration of every fork, in order of size. */
    private static double[] scores(RunResult result, Function<IterationResult, Result<?>> which) {
        return result.getBenchmarkResults().stream()
                .flatMap(fork -> fork.getIterationResults().stream())
                .mapToDouble(iteration -> which.apply(iteration).getScore())
                .sorted()
                .toArray();
    }

    private static String spread(double[] sorted) {
        return text(quantile(sorted, 0.5))
                + " ("
                + text(quantile(sorted, 0.1))
                + "-"
                + text(quantile(sorted, 0.9))
                + ")";
    }

    private static String text(double nanos) {
        return String.format(Locale.ROOT, "%.1f", nanos);
    }

    private static double quantile(double[] sorted, double share) {
        double place = share * (sorted.length - 1);
        int below = (int) place;
        double above = sorted[Math.min(below + 1, sorted.length - 1)];
        return sorted[below] + (place - below) * (above - sorted[below]);
    }
}
