package org.nccl4j.bench;

import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;
import java.util.PrimitiveIterator;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Graph;

/**
 * One thread of a sweep: drives its ranks through all rows, in step with the other threads.
 *
 * <p>Thread safety: belongs to the thread that runs it.
 */
final class SweepThread {

    /** What -T 0 waits; an operation's own deadline ends the wait long before. */
    private static final Duration UNLIMITED = Duration.ofDays(365);

    /** Which share of --jit-warmup further types and reductions get. */
    private static final double FURTHER_SERIES = 0.1;

    /** How many operations a loop has in that warm-up: as many as by default in a cell. */
    private static final int LOOP_OPERATIONS = 20;

    private final Sweep sweep;
    private final int number;
    private final Backend backend;
    private final BenchOptions.Timing timing;
    private final int checkRounds;
    private final List<BenchRank> ranks;
    private final List<DeviceStream> streams;
    private final OperationRecorder recorder;
    private final Duration completionTimeout;
    private long repetition;

    SweepThread(Sweep sweep, int number) {
        this.sweep = sweep;
        this.number = number;
        this.backend = sweep.backend;
        this.timing = sweep.options.timing();
        this.checkRounds = sweep.options.work().checkRounds();
        this.ranks = sweep.ranksOf(number);
        this.streams = ranks.stream().map(BenchRank::stream).toList();
        this.recorder = sweep.recorder(ranks);
        this.completionTimeout =
                timing.timeoutSeconds() > 0
                        ? Duration.ofSeconds(timing.timeoutSeconds())
                        : UNLIMITED;
    }

    private boolean isFirst() {
        return number == 0;
    }

    /** Runs the whole sweep. */
    void run() throws InterruptedException {
        if (!sweep.options.program().runsOn(sweep.ranks.size())) {
            sweep.skipped();
            return;
        }
        Series before = null;
        for (Series series : sweep.series) {
            compile(series, before);
            before = series;
            warmUp(series);
            for (int cycle = 0; sweep.sizes.endless() || cycle < sweep.sizes.runCycles(); cycle++) {
                PrimitiveIterator.OfLong sizes = sweep.sizes.sizesBytes().iterator();
                while (sizes.hasNext()) {
                    RowPlan plan = sweep.plan(series, sizes.nextLong());
                    Cell outOfPlace = cell(plan, Placement.OUT_OF_PLACE);
                    Cell inPlace = cell(plan, Placement.IN_PLACE);
                    if (isFirst()) {
                        sweep.finished(plan, outOfPlace, inPlace);
                    }
                }
            }
        }
    }

    /**
     * Runs cells that nobody sees until the JVM has compiled what cells run, for --jit-warmup
     * seconds at most. What the first series had compiled serves all, so others get a fraction of
     * that, and those that differ in the root alone get nothing.
     *
     * @param before the series that has run before, or null
     */
    private void compile(Series series, Series before) throws InterruptedException {
        double seconds = timing.jitWarmupSeconds();
        if (before != null) {
            boolean sameCode = series.type() == before.type() && series.op() == before.op();
            seconds = sameCode ? 0 : seconds * FURTHER_SERIES;
        }
        List<RowPlan> plans = sweep.unseenPlans(series);
        if (seconds == 0 || plans.isEmpty()) {
            return;
        }
        int iterations =
                Math.min(timing.iterations(), Math.max(1, LOOP_OPERATIONS / timing.aggregated()));
        long each = (long) iterations * timing.aggregated();
        Placement[] placements = Placement.values();
        int cells = placements.length * plans.size();
        JitWarmup warmup = new JitWarmup(seconds, cells, JitWarmup.processClock());
        boolean compiled = false;
        for (int turn = 0; !compiled; turn++) {
            int cell = turn % cells;
            RowPlan plan = plans.get(cell / placements.length);
            Placement placement = placements[cell % placements.length];
            prime(plan, placement);
            OperationRecorder.Prepared[] loop = loop(plan, placement, iterations);
            long operations = JitWarmup.operations(plan.sizeBytes(), turn / cells);
            for (long done = 0; done < operations; done += each) {
                measure(loop, iterations);
                if (isFirst()) {
                    warmup.measured(cell, each, sweep.lastSeconds());
                }
            }
            if (isFirst()) {
                sweep.compiled(warmup.isOver());
            }
            sweep.meet();
            compiled = sweep.isCompiled();
        }
    }

    private void warmUp(Series series) throws InterruptedException {
        PrimitiveIterator.OfLong sizes = sweep.sizes.warmupSizesBytes().iterator();
        while (sizes.hasNext()) {
            RowPlan plan = sweep.plan(series, sizes.nextLong());
            List<OperationRecorder.Prepared> operations =
                    recorder.loop(
                            plan,
                            Placement.OUT_OF_PLACE,
                            Math.max(0, timing.warmupIterations()),
                            1);
            for (int i = 0; i < timing.warmupIterations(); i++) {
                enqueue(operations.get(i % operations.size()));
            }
            complete();
        }
    }

    /** One cell; only the first thread's result is complete. */
    private Cell cell(RowPlan plan, Placement placement) throws InterruptedException {
        repetition++;
        if (isFirst()) {
            sweep.starting(plan, placement);
        }
        OperationRecorder.Prepared single = prime(plan, placement);
        measure(loop(plan, placement, timing.iterations()), timing.iterations());
        sweep.meet();
        OptionalLong wrong = check(plan, placement, single);
        return isFirst() ? sweep.cell(plan, wrong) : null;
    }

    /** Fills the buffers and runs one operation, which is returned. */
    private OperationRecorder.Prepared prime(RowPlan plan, Placement placement)
            throws InterruptedException {
        if (isFirst() && checkRounds != 0) {
            sweep.fillForTiming(plan, placement);
        }
        sweep.meet();
        OperationRecorder.Prepared single = recorder.one(plan, placement, 0);
        enqueue(single);
        complete();
        return single;
    }

    private OperationRecorder.Prepared[] loop(RowPlan plan, Placement placement, int iterations) {
        return recorder.loop(plan, placement, iterations, timing.aggregated())
                .toArray(OperationRecorder.Prepared[]::new);
    }

    private void measure(OperationRecorder.Prepared[] loop, int iterations)
            throws InterruptedException {
        double operations = (double) iterations * timing.aggregated();
        if (timing.graphLaunches() > 0) {
            measureGraph(loop, iterations, operations);
            return;
        }
        sweep.meet();
        long wallNanos;
        long issueNanos;
        if (timing.blocking() == 3) {
            wallNanos = runStopped(loop, iterations);
            issueNanos = wallNanos;
        } else {
            long start = System.nanoTime();
            runThrough(loop, iterations);
            issueNanos = System.nanoTime() - start;
            complete();
            wallNanos = System.nanoTime() - start;
        }
        sweep.measured(
                number,
                wallNanos / 1e9 / operations,
                issueNanos / 1e9 / operations,
                timing.perIteration() ? samplesMicros(iterations) : new double[0]);
    }

    private void runThrough(OperationRecorder.Prepared[] loop, int iterations)
            throws InterruptedException {
        mark(0, false);
        for (int i = 0, at = 0; i < iterations; i++) {
            enqueue(loop[at]);
            at = at + 1 == loop.length ? 0 : at + 1;
            mark(i + 1, false);
        }
    }

    /**
     * Each iteration on its own: waits, stops the clock, meets the other threads.
     *
     * @return nanoseconds while the clock ran
     */
    private long runStopped(OperationRecorder.Prepared[] loop, int iterations)
            throws InterruptedException {
        long nanos = 0;
        for (int i = 0, at = 0; i < iterations; i++) {
            long start = System.nanoTime();
            mark(i, false);
            enqueue(loop[at]);
            at = at + 1 == loop.length ? 0 : at + 1;
            mark(i, true);
            complete();
            nanos += System.nanoTime() - start;
            sweep.meet();
        }
        return nanos;
    }

    private void measureGraph(OperationRecorder.Prepared[] loop, int iterations, double operations)
            throws InterruptedException {
        try (Graph graph =
                backend.capture(
                        streams,
                        () -> {
                            for (int i = 0; i < iterations; i++) {
                                loop[i % loop.length].enqueue();
                            }
                        })) {
            sweep.meet();
            long start = System.nanoTime();
            for (int launch = 0; launch < timing.graphLaunches(); launch++) {
                graph.launch();
            }
            long issueNanos = System.nanoTime() - start;
            complete();
            long wallNanos = System.nanoTime() - start;
            sweep.measured(
                    number,
                    wallNanos / 1e9 / operations / timing.graphLaunches(),
                    issueNanos / 1e9 / operations,
                    new double[0]);
        }
    }

    /** Up to -c rounds; ends with the first that finds a wrong element. */
    private OptionalLong check(RowPlan plan, Placement placement, OperationRecorder.Prepared single)
            throws InterruptedException {
        if (checkRounds == 0
                || (placement == Placement.IN_PLACE && !sweep.options.program().checksInPlace())) {
            return OptionalLong.empty();
        }
        long wrong = 0;
        for (int round = 0; round < checkRounds; round++) {
            if (isFirst()) {
                sweep.fillForCheck(plan, placement, repetition);
            }
            sweep.meet();
            enqueue(single);
            complete();
            sweep.meet();
            if (isFirst()) {
                for (long ofRank : sweep.wrongElements(plan, placement, repetition)) {
                    wrong += ofRank;
                }
            }
            sweep.meet();
            if (sweep.anyWrong()) {
                break;
            }
        }
        return OptionalLong.of(wrong);
    }

    /** Issues an operation and does after it what -z asks for. */
    private void enqueue(OperationRecorder.Prepared operation) throws InterruptedException {
        operation.enqueue();
        if (timing.blocking() != 0) {
            complete();
            if (timing.blocking() == 1) {
                sweep.meet();
            }
        }
    }

    private void complete() {
        backend.synchronizeAll(streams, completionTimeout);
    }

    private void mark(int index, boolean stop) {
        if (timing.perIteration()) {
            for (BenchRank rank : ranks) {
                rank.stream().record((stop ? rank.stops() : rank.starts()).get(index));
            }
        }
    }

    /** Per iteration the time of this thread's slowest rank, per operation. */
    private double[] samplesMicros(int iterations) {
        double[] samples = new double[iterations];
        for (int i = 0; i < samples.length; i++) {
            for (BenchRank rank : ranks) {
                DeviceEvent end =
                        timing.blocking() == 3 ? rank.stops().get(i) : rank.starts().get(i + 1);
                Duration elapsed = end.elapsedSince(rank.starts().get(i));
                double micros = elapsed.toNanos() / 1e3 / timing.aggregated();
                samples[i] = Math.max(samples[i], micros);
            }
        }
        return samples;
    }
}
