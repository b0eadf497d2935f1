package org.nccl4j.cpu;

import static java.util.Comparator.comparingDouble;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.function.DoubleConsumer;
import java.util.function.ToDoubleFunction;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.cpu.schedule.ScheduleAlgorithm;

/**
 * Measures this machine: runs operations by the direct engine and by several schedules, in rounds
 * that go through all of them, and finds the rates that predict their medians.
 *
 * <p>Thread safety: one thread.
 */
final class Calibrator {
    private static final List<Integer> RANKS = List.of(2, 4, 8);
    private static final List<Long> SIZES_BYTES =
            List.of(1L << 10, 8L << 10, 32L << 10, 128L << 10, 1L << 20, 4L << 20, 32L << 20);

    /** The most that all ranks' inputs are together. */
    private static final long LARGEST_BYTES = 128 << 20;

    /** A full buffer of each rank fits this share of its device's free memory, twice. */
    private static final int MEMORY_SHARE = 8;

    private static final int WARMUP_ROUNDS = 3;
    private static final long WARMUP_NANOS = 25_000_000;
    static final int ROUNDS = 5;

    /** How long the operations of one time take together, unless one alone takes longer. */
    private static final long SAMPLE_NANOS = 3_000_000;

    /** By this factor a chosen schedule may have been measured slower than the direct engine. */
    static final double SLOWER = 1.1;

    /** Rates that miss half of the times by more may be those of a machine that was busy. */
    static final double DOUBTFUL_MEDIAN_ERROR = 0.25;

    /** Rates that miss half of the times by more predict nothing. */
    static final double MOST_MEDIAN_ERROR = 0.5;

    private static final Duration DEADLINE = Duration.ofMinutes(1);

    /** An engine and what it is measured with. */
    private record Subject(Engine engine, ScheduleAlgorithm algorithm, List<OperationKind> kinds) {}

    /**
     * What an operation took.
     *
     * @param algorithm null for the direct engine
     * @param bytes of the full buffer
     */
    record Timing(
            OperationKind kind, int ranks, long bytes, ScheduleAlgorithm algorithm, double micros) {
        private boolean isSameOperation(Timing other) {
            return kind == other.kind && ranks == other.ranks && bytes == other.bytes;
        }

        private RatesFit.Sample sample(int cores) {
            Topology topology = new Topology(ranks, cores);
            Amounts amounts =
                    algorithm == null
                            ? Amounts.ofDirect(kind, topology, bytes)
                            : new ScheduleAmounts(
                                            algorithm.schedule(
                                                    ScheduleEngine.collective(kind), ranks))
                                    .of(kind, topology, bytes);
            return new RatesFit.Sample(amounts, micros);
        }
    }

    /** One kind of operation of one size by one engine, ready to be issued, with its times. */
    private record Point(
            OperationKind kind,
            int ranks,
            long bytes,
            ScheduleAlgorithm algorithm,
            RecordedGroup group,
            CpuBackend backend,
            List<DeviceStream> streams,
            List<Double> micros) {
        Timing timing() {
            micros.sort(null);
            return new Timing(kind, ranks, bytes, algorithm, micros.get(micros.size() / 2));
        }
    }

    private final CpuDevices devices;
    private final int cores;
    private final List<Integer> ranks;
    private final List<Long> sizesBytes;
    private final DoubleConsumer progress;
    private final List<Timing> timings = new ArrayList<>();

    /**
     * A calibrator.
     *
     * @param cores how many threads make progress at a time at most
     * @param progress told now and then what share is done
     */
    Calibrator(CpuDevices devices, int cores, DoubleConsumer progress) {
        this(devices, cores, RANKS, SIZES_BYTES, progress);
    }

    /** A calibrator for other numbers of ranks, and other sizes. */
    Calibrator(
            CpuDevices devices,
            int cores,
            List<Integer> ranks,
            List<Long> sizesBytes,
            DoubleConsumer progress) {
        this.devices = devices;
        this.cores = cores;
        this.ranks = ranks;
        this.sizesBytes = sizesBytes;
        this.progress = progress;
    }

    /** What was found. */
    record Result(CostModel model, RatesFit direct, RatesFit schedules, String times, int cores) {

        /** Of the worse of the two fits: half of its predictions miss by more. */
        double medianError() {
            return Math.max(direct.medianError(), schedules.medianError());
        }

        private static final String RATES = "  %-12s %-7s %9s %10s  %s";

        /** Rates and choices as tables, with what they mean. */
        String text() {
            StringBuilder text = new StringBuilder();
            text.append(
                    """
                    Rates, from which the time of an operation is predicted: each times how often or how much,
                    added up (docs/algorithms.md, "The choice"). us is microseconds, MiB 1048576 bytes.
                    "direct" is the engine that sees all buffers, "schedules" are ring, tree and so on.

                    """);
            line(text, RATES, "rate", "unit", "direct", "schedules", "what it is");
            rate(text, "fixed", "us", Rates::fixedMicros, "an operation, whatever it does");
            rate(text, "handover", "us", Rates::handoverMicros, "waking other threads, if it does");
            rate(text, "rank", "us", Rates::rankMicros, "a rank");
            rate(text, "alpha", "us", Rates::alphaMicros, "a step: the latency of a message");
            rate(
                    text,
                    "beta",
                    "us/MiB",
                    Rates::betaMicrosPerMiB,
                    "moving data: its inverse is the bandwidth");
            rate(
                    text,
                    "gamma",
                    "us/MiB",
                    Rates::gammaMicrosPerMiB,
                    "combining data, as by a sum, beyond moving it");
            rate(
                    text,
                    "spill",
                    "us/MiB",
                    Rates::spillMicrosPerMiB,
                    "more than beta, for what does not fit the inner cache");
            rate(
                    text,
                    "memory",
                    "us/MiB",
                    Rates::memoryMicrosPerMiB,
                    "more than beta and spill, for what does not fit the outer cache");
            rate(
                    text,
                    "inner cache",
                    "MiB",
                    Rates::innerCacheMiB,
                    "its size, as the times suggest");
            rate(text, "outer cache", "MiB", Rates::outerCacheMiB, "likewise");
            line(
                    text,
                    RATES,
                    "error",
                    "%",
                    percent(direct.medianError()),
                    percent(schedules.medianError()),
                    "by which predictions miss the times below, in the median");
            line(
                    text,
                    RATES,
                    "",
                    "%",
                    percent(direct.worstError()),
                    percent(schedules.worstError()),
                    "and at worst");
            line(
                    text,
                    RATES,
                    "threshold",
                    "",
                    "",
                    decimal(model.threshold()),
                    "of direct's time is the most that a schedule may be predicted to take to be chosen");
            text.append(
                    """

                    Times in us, measured/predicted, by bytes of the full buffer:

                    """);
            text.append(times);
            text.append(
                    """

                    Choice of --algo auto, by bytes of the full buffer ("1K direct, 1M ring": direct from 1 KiB on,
                    ring from 1 MiB on):

                    """);
            line(text, "%-14s %5s  %s", "operation", "ranks", "from each size on");
            for (OperationKind kind : OperationKind.values()) {
                if (ScheduleEngine.collective(kind) != null
                        && kind != OperationKind.ALL_GATHER_V
                        && kind != OperationKind.REDUCE_SCATTER_V) {
                    for (int ranks : new int[] {2, 4, 8, 16}) {
                        line(text, "%-14s %5d  %s", kind.operation(), ranks, choices(kind, ranks));
                    }
                }
            }
            return text.toString();
        }

        private void rate(
                StringBuilder text,
                String name,
                String unit,
                ToDoubleFunction<Rates> rate,
                String meaning) {
            line(
                    text,
                    RATES,
                    name,
                    unit,
                    decimal(rate.applyAsDouble(direct.rates())),
                    decimal(rate.applyAsDouble(schedules.rates())),
                    meaning);
        }

        private static String percent(double share) {
            return String.format(Locale.ROOT, "%.0f", 100 * share);
        }

        private static String decimal(double value) {
            return String.format(Locale.ROOT, "%.2f", value);
        }

        private String choices(OperationKind kind, int ranks) {
            CostModel.Predictions predictions = model.predictions(kind, new Topology(ranks, cores));
            StringBuilder choices = new StringBuilder();
            String last = "";
            for (long bytes = 1 << 10; bytes <= 1 << 30; bytes *= 2) {
                String name = predictions.best(bytes).name();
                if (!name.equals(last)) {
                    choices.append(last.isEmpty() ? "" : ", ")
                            .append(size(bytes))
                            .append(' ')
                            .append(name);
                    last = name;
                }
            }
            return choices.toString();
        }

        private static String size(long bytes) {
            return bytes >= 1 << 30
                    ? (bytes >> 30) + "G"
                    : bytes >= 1 << 20 ? (bytes >> 20) + "M" : (bytes >> 10) + "K";
        }

        private static void line(StringBuilder text, String format, Object... values) {
            text.append(String.format(Locale.ROOT, format, values).stripTrailing()).append('\n');
        }
    }

    Result measure() {
        for (int i = 0; i < ranks.size(); i++) {
            measure(ranks.get(i), (double) i / ranks.size());
        }
        return result(timings, cores);
    }

    /** What follows from measured times, each series of sizes together. */
    static Result result(List<Timing> timings, int cores) {
        RatesFit direct = fit(timings, cores, true);
        RatesFit schedules = fit(timings, cores, false);
        CostModel fitted = new CostModel(CostModel.THREADS, direct.rates(), schedules.rates());
        return new Result(
                new CostModel(
                        fitted.transport(),
                        fitted.direct(),
                        fitted.schedules(),
                        threshold(fitted, timings, cores)),
                direct,
                schedules,
                times(timings, fitted, cores),
                cores);
    }

    private static RatesFit fit(List<Timing> timings, int cores, boolean direct) {
        return RatesFit.of(
                timings.stream()
                        .filter(timing -> (timing.algorithm == null) == direct)
                        .map(timing -> timing.sample(cores))
                        .toList());
    }

    /**
     * The threshold by which no schedule is chosen that was measured slower than the direct engine.
     * A lower one makes the choice the direct engine or leaves it as it is, so that one pass is
     * enough.
     */
    private static double threshold(CostModel model, List<Timing> timings, int cores) {
        double threshold = model.threshold();
        for (Timing direct : timings) {
            if (direct.algorithm != null) {
                continue;
            }
            CostModel.Predictions predictions =
                    model.predictions(direct.kind, new Topology(direct.ranks, cores));
            CostModel.Prediction best = predictions.best(direct.bytes);
            if (best.algorithm() == null) {
                continue;
            }
            List<Timing> others =
                    timings.stream()
                            .filter(each -> each.algorithm != null && each.isSameOperation(direct))
                            .toList();
            // For one that was not measured the fastest of those that were has to stand.
            double micros =
                    others.stream()
                            .filter(each -> each.algorithm == best.algorithm())
                            .findFirst()
                            .or(() -> others.stream().min(comparingDouble(Timing::micros)))
                            .map(Timing::micros)
                            .orElse(0.0);
            if (micros > SLOWER * direct.micros) {
                double predicted = predictions.all(direct.bytes).getFirst().micros();
                threshold = Math.min(threshold, best.micros() / predicted);
            }
        }
        return threshold;
    }

    /** A line per series of sizes: each time, and what is predicted. */
    private static String times(List<Timing> timings, CostModel model, int cores) {
        StringBuilder text = new StringBuilder();
        StringBuilder sizes = new StringBuilder();
        timings.stream()
                .map(Timing::bytes)
                .distinct()
                .forEach(bytes ->
                        sizes.append(String.format(Locale.ROOT, "%15s ", Result.size(bytes))));
        Result.line(text, "%-16s %-11s %5s %s", "algorithm", "operation", "ranks", sizes);
        String last = "";
        for (Timing timing : timings) {
            String series =
                    String.format(
                            Locale.ROOT,
                            "%-16s %-11s %5d",
                            timing.algorithm == null
                                    ? EngineSetting.DIRECT
                                    : timing.algorithm.title(),
                            timing.kind.operation(),
                            timing.ranks);
            if (!series.equals(last)) {
                text.append(last.isEmpty() ? "" : "\n").append(series);
                last = series;
            }
            Rates rates = timing.algorithm == null ? model.direct() : model.schedules();
            text.append(
                    String.format(
                            Locale.ROOT,
                            " %15s",
                            number(timing.micros)
                                    + "/"
                                    + number(rates.micros(timing.sample(cores).amounts()))));
        }
        return text.append('\n').toString();
    }

    private static String number(double micros) {
        return String.format(Locale.ROOT, micros < 100 ? "%.1f" : "%.0f", micros);
    }

    private static List<Subject> subjects() {
        List<Subject> subjects = new ArrayList<>();
        subjects.add(
                new Subject(
                        new DirectEngine(),
                        null,
                        List.of(
                                OperationKind.ALL_REDUCE,
                                OperationKind.ALL_GATHER,
                                OperationKind.BROADCAST,
                                OperationKind.ALL_TO_ALL)));
        subjects.add(
                schedule(
                        ScheduleAlgorithm.RING,
                        OperationKind.ALL_REDUCE,
                        OperationKind.ALL_GATHER));
        subjects.add(
                schedule(
                        ScheduleAlgorithm.TREE, OperationKind.ALL_REDUCE, OperationKind.BROADCAST));
        subjects.add(schedule(ScheduleAlgorithm.HALVING_DOUBLING, OperationKind.ALL_REDUCE));
        subjects.add(schedule(ScheduleAlgorithm.ONE_SHOT, OperationKind.ALL_REDUCE));
        subjects.add(schedule(ScheduleAlgorithm.TWO_SHOT, OperationKind.ALL_REDUCE));
        subjects.add(schedule(ScheduleAlgorithm.PAIRWISE, OperationKind.ALL_TO_ALL));
        return subjects;
    }

    private static Subject schedule(ScheduleAlgorithm algorithm, OperationKind... kinds) {
        return new Subject(new ScheduleEngine(List.of(algorithm)), algorithm, Arrays.asList(kinds));
    }

    private void measure(int n, double done) {
        List<AutoCloseable> opened = new ArrayList<>();
        try {
            long largest = LARGEST_BYTES / n;
            for (int rank = 0; rank < n; rank++) {
                long free = devices.device(rank).memory().freeBytes();
                largest = Math.min(largest, free / MEMORY_SHARE);
            }
            List<DeviceBuffer> sends = new ArrayList<>();
            List<DeviceBuffer> recvs = new ArrayList<>();
            List<DeviceStream> streams = new ArrayList<>();
            for (int rank = 0; rank < n; rank++) {
                CpuDevice device = devices.device(rank);
                sends.add(opened(opened, device.allocate(largest)));
                recvs.add(opened(opened, device.allocate(largest)));
                streams.add(opened(opened, device.createStream()));
                streams.get(rank).fill(sends.get(rank), (byte) 0);
                streams.get(rank).fill(recvs.get(rank), (byte) 0);
            }
            List<Point> points = new ArrayList<>();
            for (Subject subject : subjects()) {
                CpuBackend backend = new CpuBackend(subject.engine, devices);
                List<Communicator> communicators =
                        backend.createLocal(
                                n, CommunicatorConfig.defaults().withOperationTimeout(DEADLINE));
                opened.add(() -> backend.closeAll(communicators));
                for (OperationKind kind : subject.kinds) {
                    for (long bytes : sizesBytes) {
                        if (bytes <= largest) {
                            points.add(
                                    new Point(
                                            kind,
                                            n,
                                            bytes,
                                            subject.algorithm,
                                            group(
                                                    backend,
                                                    communicators,
                                                    kind,
                                                    bytes,
                                                    sends,
                                                    recvs,
                                                    streams),
                                            backend,
                                            streams,
                                            new ArrayList<>()));
                        }
                    }
                }
            }
            run(points, done);
        } finally {
            close(opened);
        }
    }

    private static <T extends AutoCloseable> T opened(List<AutoCloseable> opened, T resource) {
        opened.add(resource);
        return resource;
    }

    /** Closes all of them, the last first, and only then throws what a close has thrown. */
    static void close(List<AutoCloseable> opened) {
        RuntimeException failure = null;
        for (AutoCloseable each : opened.reversed()) {
            try {
                each.close();
            } catch (Exception e) {
                RuntimeException found =
                        e instanceof RuntimeException unchecked
                                ? unchecked
                                : new IllegalStateException("nothing here throws that", e);
                if (failure == null) {
                    failure = found;
                } else {
                    failure.addSuppressed(found);
                }
            }
        }
        if (failure != null) {
            throw failure;
        }
    }

    private static RecordedGroup group(
            CpuBackend backend,
            List<Communicator> communicators,
            OperationKind kind,
            long bytes,
            List<DeviceBuffer> sends,
            List<DeviceBuffer> recvs,
            List<DeviceStream> streams) {
        int ranks = communicators.size();
        long elements = bytes / Float.BYTES;
        DataType type = DataType.FLOAT32;
        return backend.record(group -> {
            for (Communicator rank : communicators) {
                Operations on = group.on(rank);
                DeviceBuffer send = sends.get(rank.rank());
                DeviceBuffer recv = recvs.get(rank.rank());
                DeviceStream stream = streams.get(rank.rank());
                switch (kind) {
                    case ALL_REDUCE ->
                            on.allReduce(send, recv, elements, type, ReduceOp.SUM, stream);
                    case ALL_GATHER -> on.allGather(send, recv, elements / ranks, type, stream);
                    case BROADCAST -> on.broadcast(send, recv, elements, type, 0, stream);
                    case ALL_TO_ALL -> on.allToAll(send, recv, elements / ranks, type, stream);
                    default -> throw new IllegalArgumentException("not measured: " + kind);
                }
            }
        });
    }

    private void run(List<Point> points, double done) {
        int rounds = WARMUP_ROUNDS + ROUNDS;
        int[] operations = new int[points.size()];
        for (int round = 0; round < rounds; round++) {
            for (int i = 0; i < operations.length; i++) {
                progress.accept(
                        done + (round + (double) i / operations.length) / rounds / ranks.size());
                Point point = points.get(i);
                if (round < WARMUP_ROUNDS) {
                    double micros = warmUp(point);
                    operations[i] = (int) Math.clamp(SAMPLE_NANOS / 1e3 / micros, 1, 1000);
                } else {
                    point.micros.add(micros(point, operations[i]));
                }
            }
        }
        points.forEach(point -> timings.add(point.timing()));
    }

    /** Runs it until the JVM has had some time to compile. */
    private static double warmUp(Point point) {
        long start = System.nanoTime();
        double micros = micros(point, 1);
        while (System.nanoTime() - start < WARMUP_NANOS) {
            micros = micros(point, 10);
        }
        return micros;
    }

    private static double micros(Point point, int operations) {
        long start = System.nanoTime();
        for (int i = 0; i < operations; i++) {
            point.group.issue();
        }
        point.backend.synchronizeAll(point.streams, DEADLINE);
        return Math.max(1, System.nanoTime() - start) / 1e3 / operations;
    }
}
