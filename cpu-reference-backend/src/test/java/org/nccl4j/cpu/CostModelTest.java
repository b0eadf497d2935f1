package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.cpu.schedule.Collective;
import org.nccl4j.cpu.schedule.Schedule;
import org.nccl4j.cpu.schedule.ScheduleAlgorithm;

/** Amounts, predictions and choices; the times are made up, so that they follow from the rates. */
class CostModelTest {
    /** Steps alone, and bytes on a link alone; as many cores as ranks is the textbook's network. */
    private static final Rates STEPS = new Rates(0, 0, 0, 1, 0, 0, 0, 0, 1, 2);

    private static final Rates BYTES = new Rates(0, 0, 0, 0, 1, 0, 0, 0, 1e9, 2e9);
    private static final long MIB = 1 << 20;

    private static Amounts amounts(ScheduleAlgorithm algorithm, int ranks, int cores, long bytes) {
        return new ScheduleAmounts(algorithm.schedule(Collective.ALL_REDUCE, ranks))
                .of(OperationKind.ALL_REDUCE, new Topology(ranks, cores), bytes);
    }

    @Test
    void withACoreForEachRankItIsTheTextbooksModel() {
        for (int n : new int[] {2, 4, 8, 16}) {
            // The largest size of a single pass, which is what the textbook's messages are.
            long bytes = 256 << 10;
            AlphaBetaModel model = new AlphaBetaModel(1, 1);
            Amounts ring = amounts(ScheduleAlgorithm.RING, n, n, bytes);
            assertThat(ring.steps()).isEqualTo(AlphaBetaModel.ringAllReduceSteps(n));
            assertThat(STEPS.micros(ring))
                    .isCloseTo(
                            model.ringAllReduce(n, (double) bytes).latencyMicros(), within(1e-9));
            assertThat(ring.movedBytes())
                    .isCloseTo(AlphaBetaModel.ringAllReduceFactor(n) * bytes, within(1e-6));
            assertThat(ring.reducedBytes()).isCloseTo((n - 1.0) / n * bytes, within(1e-6));
            assertThat(amounts(ScheduleAlgorithm.TREE, n, n, bytes).steps())
                    .isEqualTo(AlphaBetaModel.treeAllReduceSteps(n));
        }
    }

    @Test
    void ranksThatShareCoresTakeTurns() {
        long bytes = 256 << 10;
        Amounts spread = amounts(ScheduleAlgorithm.RING, 8, 8, bytes);
        Amounts shared = amounts(ScheduleAlgorithm.RING, 8, 2, bytes);
        assertThat(shared.steps()).isEqualTo(4 * spread.steps());
        assertThat(shared.movedBytes()).isCloseTo(4 * spread.movedBytes(), within(1e-6));
        assertThat(shared.handovers()).isEqualTo(1);
        // So small that one thread does all, whatever there is.
        Amounts small = amounts(ScheduleAlgorithm.RING, 8, 8, 4096);
        assertThat(small.handovers()).isZero();
        assertThat(small.steps()).isEqualTo(8 * 14);
    }

    @Test
    void passesMultiplyMessages() {
        double one = amounts(ScheduleAlgorithm.RING, 4, 4, 256 << 10).steps();
        assertThat(amounts(ScheduleAlgorithm.RING, 4, 4, 64 * MIB).steps()).isEqualTo(256 * one);
    }

    @Test
    void theDirectEngineWritesEachOutputOnce() {
        Topology topology = new Topology(4, 2);
        Amounts allReduce = Amounts.ofDirect(OperationKind.ALL_REDUCE, topology, 8 * MIB);
        assertThat(allReduce).isEqualTo(new Amounts(1, 4, 8, 16 * MIB, 12 * MIB, 64 * MIB));
        Amounts gather = Amounts.ofDirect(OperationKind.ALL_GATHER, topology, 8 * MIB);
        assertThat(gather).isEqualTo(new Amounts(1, 4, 5, 16 * MIB, 0, 40 * MIB));
        Amounts scatter = Amounts.ofDirect(OperationKind.REDUCE_SCATTER, topology, 8 * MIB);
        assertThat(scatter).isEqualTo(new Amounts(1, 4, 5, 4 * MIB, 12 * MIB, 40 * MIB));
        assertThat(Amounts.ofDirect(OperationKind.BARRIER, topology, 0))
                .isEqualTo(new Amounts(0, 4, 0, 0, 0, 0));
    }

    @Test
    void theDirectEngineUsesCoresBeyondItsRanks() {
        // 64 KiB among two ranks is 16 of the least shares: one for each core.
        Topology two = new Topology(2, 8);
        Amounts allReduce = Amounts.ofDirect(OperationKind.ALL_REDUCE, two, 64 << 10);
        assertThat(allReduce).isEqualTo(new Amounts(1, 2, 4, 2 * 8 << 10, 8 << 10, 4 * 64 << 10));
        // A schedule has a thread per rank, whatever there is besides.
        assertThat(amounts(ScheduleAlgorithm.RING, 2, 8, 64 << 10))
                .isEqualTo(amounts(ScheduleAlgorithm.RING, 2, 2, 64 << 10));
        // Not small among 16 ranks, but enough for three shares only.
        Topology many = new Topology(16, 8);
        assertThat(Amounts.ofDirect(OperationKind.BROADCAST, many, 12 << 10).movedBytes())
                .isEqualTo(16 * 4 << 10);
        // Its blocks are cut as they lie end to end, those of all ranks.
        assertThat(Amounts.ofDirect(OperationKind.ALL_TO_ALL, many, 12 << 10).movedBytes())
                .isEqualTo(16 * 12 * 1024 / 8);
    }

    @Test
    void sharesAreThoseOfTheDirectEngine() {
        DirectEngine engine =
                new DirectEngine(
                        8, KernelChoice.ofThisProcess(), 256 << 10, DirectEngine.LEAST_SHARE_BYTES);
        for (OperationKind kind :
                List.of(
                        OperationKind.ALL_REDUCE,
                        OperationKind.BROADCAST,
                        OperationKind.ALL_GATHER,
                        OperationKind.REDUCE_SCATTER,
                        OperationKind.ALL_TO_ALL)) {
            for (int ranks : new int[] {2, 16}) {
                for (long bytes = 1 << 10; bytes <= 256 << 10; bytes *= 2) {
                    Amounts amounts = Amounts.ofDirect(kind, new Topology(ranks, 8), bytes);
                    long count = bytes / Float.BYTES;
                    boolean blocks =
                            kind == OperationKind.ALL_GATHER
                                    || kind == OperationKind.REDUCE_SCATTER
                                    || kind == OperationKind.ALL_TO_ALL;
                    TestOperation operation =
                            new TestOperation(
                                            kind,
                                            ranks,
                                            DataType.FLOAT32,
                                            blocks ? count / ranks : count,
                                            kind == OperationKind.BROADCAST ? 0 : -1)
                                    .with(ReduceOp.SUM);
                    for (int p = 0; p < ranks; p++) {
                        operation.buffers(p, count, count);
                    }
                    Engine.Run run = engine.start(operation);
                    double written = kind == OperationKind.REDUCE_SCATTER ? bytes : ranks * bytes;
                    assertThat(amounts.movedBytes())
                            .as("%s %d ranks %d bytes", kind, ranks, bytes)
                            .isEqualTo(written / (amounts.handovers() == 0 ? 1 : run.shares()));
                    run.finish(false);
                }
            }
        }
    }

    /** By the bytes of all ranks and the steps, as it counts them. */
    @Test
    void whatIsSmallIsSmallForTheScheduler() {
        for (OperationKind kind : OperationKind.values()) {
            Collective collective = ScheduleEngine.collective(kind);
            if (collective == null) {
                continue;
            }
            for (int ranks : new int[] {2, 4, 16}) {
                Topology topology = new Topology(ranks, 8);
                long small = Scheduler.SMALL_BYTES / ranks;
                assertThat(sizeBytes(kind, ranks, small))
                        .isEqualTo(Scheduler.SMALL_BYTES)
                        .isEqualTo((long) Amounts.sizeBytes(kind, ranks, small));
                assertThat(Amounts.ofDirect(kind, topology, small).handovers()).isZero();
                assertThat(Amounts.ofDirect(kind, topology, small + 1).handovers()).isEqualTo(1);
                for (ScheduleAlgorithm algorithm : ScheduleAlgorithm.values()) {
                    if (algorithm.collectives().contains(collective)) {
                        Schedule schedule = algorithm.schedule(collective, ranks);
                        ScheduleAmounts amounts = new ScheduleAmounts(schedule);
                        assertThat(amounts.of(kind, topology, small).handovers())
                                .isEqualTo(
                                        Work.costBytes(small * ranks, schedule.actions())
                                                        <= Scheduler.SMALL_BYTES
                                                ? 0
                                                : 1);
                        assertThat(amounts.of(kind, topology, small + 1).handovers()).isEqualTo(1);
                    }
                }
            }
        }
        // Many steps take time even if there is next to nothing to move.
        assertThat(
                        new ScheduleAmounts(
                                        ScheduleAlgorithm.RING.schedule(Collective.ALL_REDUCE, 64))
                                .of(OperationKind.ALL_REDUCE, new Topology(64, 8), 64)
                                .handovers())
                .isEqualTo(1);
    }

    /** What the scheduler counts when an operation of a full buffer's size is joined. */
    private static long sizeBytes(OperationKind kind, int ranks, long totalBytes) {
        Part part = new Part();
        BlockLayout layout = BlockLayout.even(totalBytes, ranks);
        boolean blocks =
                kind == OperationKind.ALL_GATHER
                        || kind == OperationKind.REDUCE_SCATTER
                        || kind == OperationKind.ALL_TO_ALL;
        part.describe(
                kind,
                false,
                null,
                null,
                blocks ? totalBytes / ranks : totalBytes,
                DataType.INT8,
                null,
                0,
                layout,
                layout,
                null);
        return ranks * part.bytes(ranks);
    }

    @Test
    void whatDoesNotFitACacheCostsMore() {
        Rates rates = new Rates(0, 0, 0, 0, 1, 0, 10, 100, 1, 4);
        assertThat(rates.micros(new Amounts(0, 0, 0, MIB, 0, MIB))).isEqualTo(1);
        assertThat(rates.micros(new Amounts(0, 0, 0, MIB, 0, 2 * MIB))).isEqualTo(1 + 5);
        assertThat(rates.micros(new Amounts(0, 0, 0, MIB, 0, 8 * MIB)))
                .isEqualTo(1 + 10 * 7 / 8.0 + 100 * 0.5);
    }

    @Test
    void stepsMakeTreesAndBytesMakeRings() {
        Rates never = new Rates(1e9, 0, 0, 0, 0, 0, 0, 0, 1, 2);
        CostModel steps = new CostModel("made-up", never, STEPS);
        CostModel bytes = new CostModel("made-up", never, BYTES);
        Topology spread = new Topology(16, 16);
        // One step among all.
        assertThat(best(steps, OperationKind.ALL_REDUCE, spread, 256 << 10)).isEqualTo("tree");
        assertThat(best(bytes, OperationKind.ALL_REDUCE, spread, 256 << 10)).isEqualTo("ring");
        assertThat(best(bytes, OperationKind.ALL_TO_ALL, spread, 256 << 10)).isEqualTo("pairwise");
        // Bruck's blocks of a step do not lie together, so that each is a message.
        assertThat(best(steps, OperationKind.ALL_TO_ALL, spread, 256 << 10)).isNotEqualTo("bruck");
        assertThat(best(bytes, OperationKind.GATHER, spread, 1 << 20)).isEqualTo("direct");
    }

    private static String best(CostModel model, OperationKind kind, Topology topology, long bytes) {
        return model.predictions(kind, topology).best(bytes).name();
    }

    @Test
    void tiesGoToTheDirectEngine() {
        Topology topology = new Topology(2, 2);
        CostModel same = new CostModel("made-up", fixed(10), fixed(10));
        CostModel close = new CostModel("made-up", fixed(10), fixed(10 * CostModel.TIE));
        CostModel far = new CostModel("made-up", fixed(10), fixed(9.9 * CostModel.TIE));
        assertThat(best(same, OperationKind.ALL_REDUCE, topology, 1024)).isEqualTo("direct");
        assertThat(best(close, OperationKind.ALL_REDUCE, topology, 1024)).isEqualTo("direct");
        assertThat(best(far, OperationKind.ALL_REDUCE, topology, 1024)).isEqualTo("ring");
    }

    @Test
    void aLowerThresholdAsksForMore() {
        Topology topology = new Topology(2, 2);
        CostModel model = new CostModel("made-up", fixed(10), fixed(4), 0.4);
        assertThat(best(model, OperationKind.ALL_REDUCE, topology, 1024)).isEqualTo("direct");
        model = new CostModel("made-up", fixed(10), fixed(3.9), 0.4);
        assertThat(best(model, OperationKind.ALL_REDUCE, topology, 1024)).isEqualTo("ring");
    }

    private static Rates fixed(double micros) {
        return new Rates(micros, 0, 0, 0, 0, 0, 0, 0, 1, 2);
    }

    @Test
    void theFitFindsTheRatesThatMadeTheTimes() {
        long seed = new Random().nextLong();
        Random random = new Random(seed);
        Rates truth = new Rates(0.5, 4, 0.1, 0.2, 20, 0, 60, 30, 1, 16);
        List<RatesFit.Sample> samples = new ArrayList<>();
        for (int n : new int[] {2, 4, 8}) {
            for (ScheduleAlgorithm algorithm :
                    List.of(ScheduleAlgorithm.RING, ScheduleAlgorithm.TREE)) {
                for (long bytes = 1 << 10; bytes <= 64 * MIB; bytes *= 2) {
                    Amounts amounts = amounts(algorithm, n, 2, bytes);
                    double noise = 1 + 0.02 * random.nextGaussian();
                    samples.add(new RatesFit.Sample(amounts, noise * truth.micros(amounts)));
                }
            }
        }
        RatesFit fit = RatesFit.of(samples);
        assertThat(fit.medianError()).as("seed %d", seed).isLessThan(0.05);
        for (RatesFit.Sample sample : samples) {
            assertThat(fit.rates().micros(sample.amounts()) / truth.micros(sample.amounts()))
                    .as("seed %d, %s", seed, sample)
                    .isBetween(0.85, 1.15);
        }
    }
}
