package org.nccl4j.cpu;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.ToDoubleFunction;
import org.nccl4j.bench.JmhWords;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.BenchmarkResult;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.results.format.ResultFormatFactory;
import org.openjdk.jmh.results.format.ResultFormatType;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.ChainedOptionsBuilder;
import org.openjdk.jmh.runner.options.CommandLineOptions;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.VerboseMode;

/**
 * Runs {@link KernelBenchmark} and prints what is read and written per second, all buffers
 * together, and the ratio of Java and C. In each of JMH's forks, here called rounds, Java and C of
 * one row run one after the other, in JVMs of their own, so that what slows the machine for a while
 * slows both: a ratio is one of the same round. Shown are medians of the rounds, with the lowest
 * and the highest, and the bytes that a call allocates.
 */
public final class KernelTable {
    private static final String ROW = "%-10s %-6s %5s %9s %22s %22s %22s %18s %6s%n";
    private static final List<String> COLUMNS = List.of("type", "reduction", "ranks", "sizeBytes");
    private static final int ROUNDS = 5;
    private static final String COMMAND = "bench/jmh kernels";

    private final CommandLineOptions options;
    private final int rounds;

    /** By row, then by method: what each round gave. */
    private final Map<List<String>, Map<String, List<RunResult>>> rows = new LinkedHashMap<>();

    private KernelTable(CommandLineOptions options) {
        this.options = options;
        rounds = options.getForkCount().orElse(ROUNDS);
    }

    /**
     * Runs it; ends the process with 1 if a JVM fails or the results cannot be written, and with 2
     * if the options are wrong.
     *
     * @param arguments JMH's options
     */
    public static void main(String[] arguments) throws IOException, RunnerException {
        CommandLineOptions options = JmhWords.parse(COMMAND, arguments);
        if (options.shouldList() || options.shouldListWithParams()) {
            Runner runner = new Runner(only(options).build());
            if (options.shouldListWithParams()) {
                runner.listWithParams(options);
            } else {
                runner.list();
            }
            return;
        }
        KernelTable table = new KernelTable(options);
        if (table.rounds < 1) {
            System.err.println(COMMAND + ": -f 0: there must be a round");
            System.exit(2);
        }
        boolean complete = false;
        try {
            table.run();
            complete = true;
        } catch (RunnerException failure) {
            progress("");
            System.err.println(COMMAND + ": " + reason(failure));
        }
        // What has been measured before a failure took minutes.
        table.print();
        if (!table.writeResults() || !complete) {
            System.exit(1);
        }
    }

    /** Of what JMH wraps, the exception that tells. */
    private static String reason(Throwable failure) {
        Throwable told = failure;
        while (true) {
            Throwable inner = told.getCause();
            if (inner == null && told.getSuppressed().length > 0) {
                inner = told.getSuppressed()[0];
            }
            if (inner == null) {
                return told.toString();
            }
            told = inner;
        }
    }

    private void run() throws RunnerException {
        List<List<String>> wanted = List.of(List.of());
        for (String column : COLUMNS) {
            Collection<String> values = values(column);
            wanted =
                    wanted.stream()
                            .flatMap(row -> values.stream().map(value -> with(row, value)))
                            .toList();
        }
        for (int round = 0; round < rounds; round++) {
            for (int i = 0; i < wanted.size(); i++) {
                List<String> row = wanted.get(i);
                progress(
                        "kernels: round %d of %d, row %d of %d: %s"
                                .formatted(
                                        round + 1,
                                        rounds,
                                        i + 1,
                                        wanted.size(),
                                        String.join(" ", row)));
                for (RunResult result : measure(row)) {
                    rows.computeIfAbsent(row, key -> new LinkedHashMap<>())
                            .computeIfAbsent(
                                    result.getPrimaryResult().getLabel(), key -> new ArrayList<>())
                            .add(result);
                }
            }
        }
        progress("");
    }

    private Collection<String> values(String column) {
        try {
            Param known = KernelBenchmark.class.getField(column).getAnnotation(Param.class);
            return options.getParameter(column).orElse(List.of(known.value()));
        } catch (NoSuchFieldException absent) {
            throw new IllegalStateException(absent);
        }
    }

    private static List<String> with(List<String> row, String value) {
        List<String> longer = new ArrayList<>(row);
        longer.add(value);
        return longer;
    }

    private Collection<RunResult> measure(List<String> row) throws RunnerException {
        ChainedOptionsBuilder one = only(options);
        one.addProfiler(GCProfiler.class)
                .verbosity(options.verbosity().orElse(VerboseMode.SILENT))
                .shouldFailOnError(true)
                .forks(1);
        for (int i = 0; i < COLUMNS.size(); i++) {
            one.param(COLUMNS.get(i), row.get(i));
        }
        return new Runner(one.build()).run();
    }

    private static ChainedOptionsBuilder only(CommandLineOptions options) {
        return new OptionsBuilder().parent(options).include(KernelBenchmark.class.getName());
    }

    /** Rewrites the line that says how far it is, if that is a terminal. */
    private static void progress(String line) {
        if (System.console() != null && System.console().isTerminal()) {
            System.err.print("\r\u001b[K" + line);
        }
    }

    private void print() {
        if (rows.isEmpty()) {
            return;
        }
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
        rows.forEach((row, methods) -> {
            double[] best = rates(methods.get("best"));
            double[] inC = rates(methods.get("inC"));
            System.out.printf(
                    ROW,
                    row.get(0),
                    row.get(1),
                    row.get(2),
                    row.get(3),
                    spread(best, 1),
                    spread(rates(methods.get("plain")), 1),
                    spread(inC, 1),
                    spread(ratios(best, inC), 2),
                    best.length == 0 ? "" : text(median(allocated(methods.get("best"))), 1));
        });
    }

    /**
     * With JMH's {@code -rf} or {@code -rff}: writes every round, as JMH itself would.
     *
     * @return whether that file, if one was asked for, is complete
     */
    private boolean writeResults() {
        if (!options.getResult().hasValue() && !options.getResultFormat().hasValue()) {
            return true;
        }
        List<RunResult> all =
                rows.values().stream()
                        .flatMap(methods -> methods.values().stream())
                        .flatMap(List::stream)
                        .toList();
        ResultFormatType format = options.getResultFormat().orElse(ResultFormatType.CSV);
        String file =
                options.getResult().orElse("jmh-result." + format.name().toLowerCase(Locale.ROOT));
        try (PrintStream out = new PrintStream(file, StandardCharsets.UTF_8)) {
            ResultFormatFactory.getInstance(format, out).writeOut(all);
            if (!out.checkError()) {
                return true;
            }
            System.err.println(COMMAND + ": " + file + " cannot be written completely");
        } catch (IOException failure) {
            System.err.println(COMMAND + ": " + file + " cannot be written: " + failure);
        }
        return false;
    }

    /** Bytes per nanosecond in each round, the median of its iterations; none if it was not run. */
    private static double[] rates(List<RunResult> found) {
        return each(
                found,
                result -> {
                    double bytes =
                            2.0
                                    * Integer.parseInt(result.getParams().getParam("ranks"))
                                    * Integer.parseInt(result.getParams().getParam("sizeBytes"));
                    return median(
                            result.getBenchmarkResults().stream()
                                    .map(BenchmarkResult::getIterationResults)
                                    .flatMap(Collection::stream)
                                    .mapToDouble(i -> bytes / i.getPrimaryResult().getScore())
                                    .toArray());
                });
    }

    private static double[] allocated(List<RunResult> found) {
        return each(
                found, result -> result.getSecondaryResults().get("gc.alloc.rate.norm").getScore());
    }

    private static double[] each(List<RunResult> found, ToDoubleFunction<RunResult> value) {
        return found == null ? new double[0] : found.stream().mapToDouble(value).toArray();
    }

    private static double[] ratios(double[] over, double[] under) {
        double[] ratios = new double[Math.min(over.length, under.length)];
        Arrays.setAll(ratios, round -> over[round] / under[round]);
        return ratios;
    }

    private static double median(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return (sorted[(sorted.length - 1) / 2] + sorted[sorted.length / 2]) / 2;
    }

    private static String spread(double[] values, int digits) {
        if (values.length == 0) {
            return "";
        }
        return "%s (%s-%s)"
                .formatted(
                        text(median(values), digits),
                        text(Arrays.stream(values).min().getAsDouble(), digits),
                        text(Arrays.stream(values).max().getAsDouble(), digits));
    }

    private static String text(double value, int digits) {
        return String.format(Locale.ROOT, "%." + digits + "f", value);
    }
}
