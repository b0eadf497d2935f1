package org.nccl4j.bench;

import java.util.Collection;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.CommandLineOptionException;
import org.openjdk.jmh.runner.options.CommandLineOptions;
import org.openjdk.jmh.runner.options.OptionsBuilder;

/** Runs {@link CallCostBenchmark} and prints what a call costs more than the same call in C. */
public final class CallCost {
    private CallCost() {}

    /**
     * Runs it.
     *
     * @param arguments JMH's options
     */
    public static void main(String[] arguments) throws RunnerException, CommandLineOptionException {
        Collection<RunResult> results =
                new Runner(
                                new OptionsBuilder()
                                        .parent(new CommandLineOptions(arguments))
                                        .include(CallCostBenchmark.class.getName())
                                        .addProfiler(GCProfiler.class)
                                        .build())
                        .run();
        Map<String, RunResult> byName = new TreeMap<>();
        for (RunResult result : results) {
            byName.put(result.getPrimaryResult().getLabel(), result);
        }
        System.out.printf(
                Locale.ROOT,
                "%n%-26s %9s %19s %9s %8s%n",
                "call",
                "median ns",
                "(10th..90th pct.)",
                "minus C",
                "B/op");
        byName.forEach((name, result) -> {
            double[] scores = scores(result);
            RunResult inC = byName.get(name.replaceFirst("(In|By)[A-Z].*", "InC"));
            System.out.printf(
                    Locale.ROOT,
                    "%-26s %9.1f %19s %9.1f %8.2f%n",
                    name,
                    quantile(scores, 0.5),
                    String.format(
                            Locale.ROOT,
                            "(%.1f..%.1f)",
                            quantile(scores, 0.1),
                            quantile(scores, 0.9)),
                    quantile(scores, 0.5) - quantile(scores(inC), 0.5),
                    result.getSecondaryResults().get("gc.alloc.rate.norm").getScore());
        });
    }

    /** Of every measured iteration of every fork, in order of size. */
    private static double[] scores(RunResult result) {
        return result.getBenchmarkResults().stream()
                .flatMap(fork -> fork.getIterationResults().stream())
                .mapToDouble(iteration -> iteration.getPrimaryResult().getScore())
                .sorted()
                .toArray();
    }

    private static double quantile(double[] sorted, double share) {
        double place = share * (sorted.length - 1);
        int below = (int) place;
        double above = sorted[Math.min(below + 1, sorted.length - 1)];
        return sorted[below] + (place - below) * (above - sorted[below]);
    }
}
