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
        for (Series series : sweep.series) {
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
            if (checkRounds != 0) {
                sweep.fillForTiming(plan, placement);
            }
        }
        sweep.meet();
        OperationRecorder.Prepared single = recorder.one(plan, placement, 0);
        enqueue(single);
        complete();
        measure(plan, placement);
        sweep.meet();
        OptionalLong wrong = check(plan, placement, single);
        return isFirst() ? sweep.cell(plan, wrong) : null;
    }

    private void measure(RowPlan plan, Placement placement) throws InterruptedException {
        OperationRecorder.Prepared[] loop =
                recorder.loop(plan, placement, timing.iterations(), timing.aggregated())
                        .toArray(OperationRecorder.Prepared[]::new);
        double operations = (double) timing.iterations() * timing.aggregated();
        if (timing.graphLaunches() > 0) {
            measureGraph(loop, operations);
            return;
        }
        sweep.meet();
        long wallNanos;
        long issueNanos;
        if (timing.blocking() == 3) {
            wallNanos = runStopped(loop);
            issueNanos = wallNanos;
        } else {
            long start = System.nanoTime();
            runThrough(loop);
            issueNanos = System.nanoTime() - start;
            complete();
            wallNanos = System.nanoTime() - start;
        }
        sweep.measured(
                number,
                wallNanos / 1e9 / operations,
                issueNanos / 1e9 / operations,
                timing.perIteration() ? samplesMicros() : new double[0]);
    }

    private void runThrough(OperationRecorder.Prepared[] loop) throws InterruptedException {
        mark(0, false);
        for (int i = 0, at = 0; i < timing.iterations(); i++) {
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
    private long runStopped(OperationRecorder.Prepared[] loop) throws InterruptedException {
        long nanos = 0;
        for (int i = 0, at = 0; i < timing.iterations(); i++) {
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

    private void measureGraph(OperationRecorder.Prepared[] loop, double operations)
            throws InterruptedException {
        try (Graph graph =
                backend.capture(
                        streams,
                        () -> {
                            for (int i = 0; i < timing.iterations(); i++) {
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
    private double[] samplesMicros() {
        double[] samples = new double[timing.iterations()];
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
