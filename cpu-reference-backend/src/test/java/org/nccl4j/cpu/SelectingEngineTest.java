package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDate;
import java.util.BitSet;
import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/** The choice of an engine per operation. */
class SelectingEngineTest {
    /** Many algorithms have their sizes by it: the direct engine is slow and gets slower late. */
    static final CostModel MIXED =
            new CostModel(
                    CostModel.THREADS,
                    new Rates(3, 0, 0, 0, 4000, 0, 0, 0, 1, 2),
                    new Rates(0, 0, 0, 0.1, 1000, 500, 0, 0, 1, 2));

    /** An engine that has found a model in a file, as programs do. */
    static SelectingEngine engine(CostModel model) {
        try {
            Path file = Files.createTempFile("nccl4j-rates", ".properties");
            try {
                Calibration.Machine machine = new Calibration.Machine("made up", 2, "plain");
                Calibration.store(file, machine, model, LocalDate.of(2026, 11, 30));
                Calibration found = new Calibration(file, true, machine, new RecordingLog());
                assertThat(found.model()).isEqualTo(model);
                return new SelectingEngine(() -> found, 2);
            } finally {
                Files.delete(file);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Test
    void theShippedFiguresChooseWithoutAFile() {
        Calibration none =
                new Calibration(
                        null, false, new Calibration.Machine("x", 2, "plain"), new RecordingLog());
        SelectingEngine engine = new SelectingEngine(() -> none, 2);
        assertThat(engine.name()).isEqualTo("auto");
        assertThat(engine.description()).startsWith("auto (not calibrated), direct (");
        for (int cores : new int[] {1, 2, 4, 8, 64}) {
            engine = new SelectingEngine(() -> none, cores);
            for (int ranks : new int[] {2, 3, 8, 16}) {
                for (long bytes = 1 << 10; bytes <= 1 << 30; bytes *= 2) {
                    for (OperationKind kind : OperationKind.values()) {
                        assertThat(engine.algorithm(kind, ranks, bytes))
                                .as("%s %d ranks %d cores %d bytes", kind, ranks, cores, bytes)
                                .isEqualTo(
                                        CostModel.SHIPPED
                                                .predictions(kind, new Topology(ranks, cores))
                                                .best(bytes)
                                                .name());
                    }
                    if (cores <= 2) {
                        // As measured: the least traffic, and no core is left over.
                        assertThat(engine.algorithm(OperationKind.ALL_REDUCE, ranks, bytes))
                                .isEqualTo("direct");
                    }
                }
            }
        }
    }

    @Test
    void theChoiceFollowsKindSizeAndRanks() {
        SelectingEngine engine = engine(MIXED);
        assertThat(engine.description()).startsWith("auto (calibrated 2026-11-30), direct (");
        Set<String> chosen = new HashSet<>();
        for (OperationKind kind : OperationKind.values()) {
            for (int ranks : new int[] {1, 2, 3, 4, 8, 16, 256, 257, 1024}) {
                for (long bytes = 1; bytes > 0; bytes *= 2) {
                    String name = engine.algorithm(kind, ranks, bytes);
                    chosen.add(name);
                    if (ScheduleEngine.collective(kind) == null || ranks == 1 || ranks > 256) {
                        assertThat(name).isEqualTo("direct");
                    } else if (ranks <= 16) {
                        assertThat(name)
                                .isEqualTo(
                                        MIXED.predictions(kind, new Topology(ranks, 2))
                                                .best(bytes)
                                                .name());
                    }
                }
            }
        }
        assertThat(chosen).contains("direct", "ring", "tree", "halving-doubling", "pairwise");
        assertThat(engine.algorithm(OperationKind.ALL_REDUCE, 4, 0)).isNotEmpty();
        assertThat(engine.algorithm(OperationKind.ALL_REDUCE, 4, Long.MAX_VALUE)).isNotEmpty();
    }

    @Test
    void whatIsSaidIsWhatRuns() {
        SelectingEngine engine = engine(MIXED);
        for (int count : new int[] {1, 7, 300, 40_000}) {
            TestOperation operation =
                    new TestOperation(OperationKind.ALL_REDUCE, 4, DataType.FLOAT32, count, -1);
            for (int p = 0; p < 4; p++) {
                operation.with(p, ReduceOp.SUM);
                operation.buffers(p, count, count);
            }
            String name = engine.algorithm(OperationKind.ALL_REDUCE, 4, 4L * count);
            Engine.Run run = engine.start(operation);
            assertThat(run instanceof ScheduleRun).isEqualTo(!name.equals("direct"));
            long steps = engine.steps(operation);
            assertThat(steps).isPositive();
            assertThat(run.shares()).isBetween(1, engine.mostShares(4));
            BitSet open = new BitSet();
            open.set(0, run.shares());
            while (!open.isEmpty()) {
                for (int share = open.nextSetBit(0);
                        share >= 0;
                        share = open.nextSetBit(share + 1)) {
                    open.set(share, run.progress(share) != Engine.Progress.DONE);
                }
            }
            run.finish(true);
            operation.checkGuards();
        }
    }
}
