package org.nccl4j.bench;

import java.time.Clock;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.stream.Collectors;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.DeviceBuffer;

/**
 * What the threads of a sweep share: where they meet, what each measured, and the work that is done
 * once for all, by the first of them.
 *
 * <p>Thread safety: threads write only entries of their own number; the barrier orders those before
 * the first thread's reads, and what that thread does before theirs.
 */
final class Sweep {

    /** Chooses the data of timed operations; those of checks count from 1. */
    private static final long TIMED_REPETITION = 99;

    final Backend backend;
    final BenchOptions options;
    final BenchOptions.Sweep sizes;
    final List<Series> series;
    final List<BenchRank> ranks;
    final int threads;

    private final AllToAllVTraffic traffic;
    private final BufferData data;
    private final Optional<Corruption> corruption;
    private final RunReport report;
    private final CyclicBarrier barrier;
    private final double[] wallSeconds;
    private final double[] issueSeconds;
    private final double[][] sampleMicros;
    private boolean anyWrong;
    private boolean corrupted;
    private boolean compiled;
    private int row;

    /**
     * @param ranks all ranks, the first thread's first
     * @param traffic for alltoallv; otherwise null
     */
    Sweep(
            Backend backend,
            BenchOptions options,
            List<Series> series,
            List<BenchRank> ranks,
            AllToAllVTraffic traffic,
            BufferData data,
            Optional<Corruption> corruption,
            RunReport report) {
        this.backend = backend;
        this.options = options;
        this.sizes = options.sweep();
        this.series = series;
        this.ranks = ranks;
        this.threads = options.layout().threads();
        this.traffic = traffic;
        this.data = data;
        this.corruption = corruption;
        this.report = report;
        this.barrier = new CyclicBarrier(threads);
        this.wallSeconds = new double[threads];
        this.issueSeconds = new double[threads];
        this.sampleMicros = new double[threads][];
    }

    /** The ranks that a thread drives. */
    List<BenchRank> ranksOf(int thread) {
        int each = ranks.size() / threads;
        return ranks.subList(thread * each, (thread + 1) * each);
    }

    RowPlan plan(Series of, long sizeBytes) {
        ElementType type = of.type();
        if (traffic == null) {
            Shape shape = options.program().shape(sizeBytes, type, ranks.size());
            return new RowPlan(of, sizeBytes, shape, null);
        }
        long[][] bytes = traffic.bytes(sizeBytes, type, ranks.size());
        Shape shape = traffic.shape(bytes, sizeBytes, type, ranks.size());
        return new RowPlan(of, sizeBytes, shape, bytes);
    }

    /**
     * What runs before the first row: the sizes that are small enough to show how fast the code is
     * and, where the sweep goes further, a size that is more than one thread's work. A sweep of
     * large sizes alone has a small one too: of those a thousand operations take no time.
     */
    List<RowPlan> unseenPlans(Series of) {
        long smallBytes = JitWarmup.LARGEST_BYTES / ranks.size();
        List<Long> unseen =
                sizes.warmupSizesBytes()
                        .takeWhile(size -> size <= smallBytes)
                        .boxed()
                        .collect(Collectors.toCollection(ArrayList::new));
        if (sizes.maxBytes() > smallBytes) {
            if (unseen.isEmpty()) {
                unseen.add(smallBytes);
            }
            unseen.add(Math.min(sizes.maxBytes(), JitWarmup.SHARED_BYTES));
        }
        return unseen.stream().map(size -> plan(of, size)).toList();
    }

    /** Waits for all threads. A thread that fails interrupts the others. */
    void meet() throws InterruptedException {
        if (threads == 1) {
            return;
        }
        try {
            barrier.await();
        } catch (BrokenBarrierException broken) {
            // Another thread was interrupted here, and so will this one be.
            InterruptedException interrupted = new InterruptedException("the sweep was given up");
            interrupted.initCause(broken);
            throw interrupted;
        }
    }

    void measured(int thread, double wall, double issue, double[] samples) {
        wallSeconds[thread] = wall;
        issueSeconds[thread] = issue;
        sampleMicros[thread] = samples;
    }

    /** What the first thread's last loop took per operation. Called by that thread alone. */
    double lastSeconds() {
        return wallSeconds[0];
    }

    /** Decides whether the warm-up has come to its end. Called by the first thread alone. */
    void compiled(boolean enough) {
        compiled = enough;
    }

    /** What was decided last. Meaningful to every thread between two meetings. */
    boolean isCompiled() {
        return compiled;
    }

    /** Fills the buffers of all ranks for timed operations. Called by the first thread alone. */
    void fillForTiming(RowPlan plan, Placement placement) throws InterruptedException {
        fill(data(plan, TIMED_REPETITION), plan, placement);
    }

    /** Fills the buffers of all ranks for a check. Called by the first thread alone. */
    void fillForCheck(RowPlan plan, Placement placement, long repetition)
            throws InterruptedException {
        fill(data(plan, repetition), plan, placement);
    }

    private ProgramData data(RowPlan plan, long repetition) {
        return new ProgramData(
                options.program(),
                plan.series(),
                plan.shape(),
                ranks.size(),
                plan.blockCounts(),
                repetition);
    }

    private void fill(ProgramData contents, RowPlan plan, Placement placement)
            throws InterruptedException {
        ElementType type = plan.series().type();
        List<BufferData.Place> zeros = new ArrayList<>();
        List<BufferData.Place> inputs = new ArrayList<>();
        for (BenchRank rank : ranks) {
            OperationRecorder recorder = recorder(List.of(rank));
            Span cleared = new Span(0, plan.shape().recvCount(), Content.ZEROS, 0);
            zeros.add(new BufferData.Place(recorder.cleared(plan, rank), cleared));
            DeviceBuffer sent = recorder.sent(plan, placement, rank, 0);
            for (Span span : contents.sent(rank.rank())) {
                inputs.add(new BufferData.Place(sent, span));
            }
        }
        data.write(zeros, type);
        data.write(inputs, type);
    }

    /**
     * Compares what all ranks received. Called by the first thread alone.
     *
     * @return wrong elements by rank
     */
    long[] wrongElements(RowPlan plan, Placement placement, long repetition)
            throws InterruptedException {
        ElementType type = plan.series().type();
        ProgramData contents = data(plan, repetition);
        List<BufferData.Place> places = new ArrayList<>();
        List<Integer> rankOfPlace = new ArrayList<>();
        for (BenchRank rank : ranks) {
            DeviceBuffer received = recorder(List.of(rank)).received(plan, placement, rank, 0);
            if (corruption.isPresent()) {
                corrupted |=
                        corruption
                                .get()
                                .apply(
                                        row,
                                        placement,
                                        rank.rank(),
                                        received,
                                        type.widthBytes(),
                                        data);
            }
            for (Span span : contents.received(rank.rank(), placement)) {
                places.add(new BufferData.Place(received, span));
                rankOfPlace.add(rank.rank());
            }
        }
        // All ranks in one job, so that all cores and devices have a share of it.
        long[] wrongInPlace = data.countWrong(places, type, contents.toleranceUnits());
        long[] wrong = new long[ranks.size()];
        for (int i = 0; i < wrongInPlace.length; i++) {
            wrong[rankOfPlace.get(i)] += wrongInPlace[i];
        }
        for (int thread = 0; thread < threads; thread++) {
            boolean any = ranksOf(thread).stream().anyMatch(rank -> wrong[rank.rank()] > 0);
            if (any) {
                report.outOfBounds();
            }
        }
        anyWrong = Arrays.stream(wrong).anyMatch(count -> count > 0);
        return wrong;
    }

    /** Whether the fault on purpose came to be. Meaningful when the threads have ended. */
    boolean isCorrupted() {
        return corrupted;
    }

    /** Whether the last check failed. Meaningful to every thread between two meetings. */
    boolean anyWrong() {
        return anyWrong;
    }

    /** What a thread enqueues with. */
    OperationRecorder recorder(List<BenchRank> of) {
        return new OperationRecorder(
                backend, options.program(), of, sizes.maxBytes(), options.work().unalignElements());
    }

    /** Says what is about to run. Called by the first thread alone. */
    void starting(RowPlan plan, Placement placement) {
        report.progress(plan, placement);
    }

    /**
     * The finished cell. Called by the first thread alone, after all have measured.
     *
     * @param wrong the wrong elements, empty where nothing is compared
     */
    Cell cell(RowPlan plan, OptionalLong wrong) {
        BenchOptions.Timing timing = options.timing();
        double seconds = timing.average().reduce(wallSeconds);
        double shown = options.output().cpuTime() ? issueSeconds[0] : seconds;
        Bandwidth bandwidth = options.program().bandwidth(plan.shape(), ranks.size(), seconds);
        if (traffic != null && traffic.printsSummary()) {
            report.summary(
                    traffic.summary(
                            plan.blockBytes(),
                            plan.sizeBytes(),
                            plan.series().type(),
                            ranks.size(),
                            seconds));
        }
        Optional<IterationTimes> iterations = Optional.empty();
        if (timing.perIteration()) {
            List<Double> slowest = new ArrayList<>(Collections.nCopies(timing.iterations(), 0.0));
            for (double[] samples : sampleMicros) {
                for (int i = 0; i < samples.length; i++) {
                    slowest.set(i, Math.max(slowest.get(i), samples[i]));
                }
            }
            iterations =
                    Optional.of(IterationTimes.of(List.of(slowest), timing.perIterationSkip()));
        }
        return new Cell(shown * 1e6, bandwidth, wrong, iterations);
    }

    /** Reports a row. Called by the first thread alone. */
    void finished(RowPlan plan, Cell outOfPlace, Cell inPlace) {
        LocalDateTime now = LocalDateTime.now(Clock.systemDefaultZone());
        Optional<String> algorithm =
                options.output().algorithms()
                        ? Optional.of(algorithm(plan.shape().sizeBytes()))
                        : Optional.empty();
        report.row(new Row(plan.series(), plan.shape(), outOfPlace, inPlace, now, algorithm));
        row++;
    }

    private String algorithm(long sizeBytes) {
        return backend.algorithm(
                options.program().operation(),
                ranks.size(),
                sizeBytes,
                ranks.getFirst().communicator().config());
    }

    /** Says that the program does not run on so many ranks. Called by every thread. */
    void skipped() {
        report.skipped(ranks.size());
    }
}
