package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.function.ToDoubleFunction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.nccl4j.cpu.schedule.Collective;
import org.nccl4j.cpu.schedule.ScheduleAlgorithm;

/** A short calibration: what it finds depends on the machine, that it finds something does not. */
@Timeout(60)
class CalibratorTest {
    @Test
    void allIsClosedWhateverAnotherCloseThrows() {
        List<String> closed = new ArrayList<>();
        IllegalStateException first = new IllegalStateException("first");
        IllegalStateException second = new IllegalStateException("second");
        assertThatThrownBy(() ->
                        Calibrator.close(
                                List.of(
                                        () -> closed.add("a"),
                                        () -> {
                                            throw second;
                                        },
                                        () -> {
                                            throw first;
                                        },
                                        () -> closed.add("b"))))
                .isSameAs(first)
                .hasSuppressedException(second);
        assertThat(closed).containsExactly("b", "a");
    }

    private static final int CORES = 2;

    /** What the rates say, for each algorithm that calibrate measures; the times are free. */
    private static List<Calibrator.Timing> table(
            Rates direct, Rates schedules, ToDoubleFunction<Calibrator.Timing> factor) {
        List<Calibrator.Timing> table = new ArrayList<>();
        for (int ranks : new int[] {2, 4, 8}) {
            for (OperationKind kind :
                    List.of(
                            OperationKind.ALL_REDUCE,
                            OperationKind.ALL_GATHER,
                            OperationKind.BROADCAST,
                            OperationKind.ALL_TO_ALL)) {
                CostModel model = new CostModel("made-up", direct, schedules);
                CostModel.Predictions all = model.predictions(kind, new Topology(ranks, CORES));
                for (long bytes = 1 << 10; bytes <= 32 << 20; bytes *= 4) {
                    for (CostModel.Prediction each : all.all(bytes)) {
                        Collective collective = ScheduleEngine.collective(kind);
                        if (each.algorithm() == null
                                || MEASURED.contains(each.algorithm())
                                        && each.algorithm().collectives().contains(collective)) {
                            Calibrator.Timing timing =
                                    new Calibrator.Timing(
                                            kind, ranks, bytes, each.algorithm(), each.micros());
                            table.add(
                                    new Calibrator.Timing(
                                            kind,
                                            ranks,
                                            bytes,
                                            each.algorithm(),
                                            each.micros() * factor.applyAsDouble(timing)));
                        }
                    }
                }
            }
        }
        return table;
    }

    private static final List<ScheduleAlgorithm> MEASURED =
            List.of(
                    ScheduleAlgorithm.RING,
                    ScheduleAlgorithm.TREE,
                    ScheduleAlgorithm.HALVING_DOUBLING,
                    ScheduleAlgorithm.ONE_SHOT,
                    ScheduleAlgorithm.TWO_SHOT,
                    ScheduleAlgorithm.PAIRWISE);

    /** The operations for which a model chooses what was measured slower than the direct engine. */
    private static List<String> wrong(CostModel model, List<Calibrator.Timing> table) {
        List<String> wrong = new ArrayList<>();
        for (Calibrator.Timing direct : table) {
            if (direct.algorithm() != null) {
                continue;
            }
            CostModel.Prediction best =
                    model.predictions(direct.kind(), new Topology(direct.ranks(), CORES))
                            .best(direct.bytes());
            for (Calibrator.Timing other : table) {
                if (other.kind() == direct.kind()
                        && other.ranks() == direct.ranks()
                        && other.bytes() == direct.bytes()
                        && best.algorithm() != null
                        && other.algorithm() == best.algorithm()
                        && other.micros() > 1.1 * direct.micros()) {
                    wrong.add(other + " but direct " + direct.micros() + " us");
                }
            }
        }
        return wrong;
    }

    /** Small schedules among two ranks take twice what the rest of the table makes them take. */
    @Test
    void aPredictionDoesNotOverruleWhatWasMeasured() {
        Rates direct = new Rates(1, 6, 0.1, 0.1, 20, 15, 50, 80, 2, 16);
        Rates schedules = new Rates(0.5, 2, 0.05, 0.05, 10, 8, 25, 40, 2, 16);
        List<Calibrator.Timing> table =
                table(
                        direct,
                        schedules,
                        each ->
                                each.ranks() == 2
                                                && each.bytes() == 16 << 10
                                                && each.algorithm() != null
                                        ? 4
                                        : 1);
        Calibrator.Result result = Calibrator.result(table, CORES);
        CostModel fitted =
                new CostModel("made-up", result.direct().rates(), result.schedules().rates());
        assertThat(wrong(fitted, table)).isNotEmpty();
        assertThat(result.model().threshold()).isLessThan(CostModel.TIE).isPositive();
        assertThat(wrong(result.model(), table)).isEmpty();
        assertThat(result.text()).containsPattern("threshold +0\\.[0-9]+  of direct's time");
        // Nothing is corrected that is not wrong.
        assertThat(
                        Calibrator.result(table(direct, schedules, each -> 1), CORES)
                                .model()
                                .threshold())
                .isEqualTo(CostModel.TIE);
    }

    @Test
    void noNoiseMakesAChoiceThatWasMeasuredSlower() {
        long seed = new Random().nextLong();
        Random random = new Random(seed);
        Rates rates = new Rates(0.5, 4, 0.1, 0.1, 15, 10, 50, 60, 1, 16);
        for (int i = 0; i < 10; i++) {
            List<Calibrator.Timing> table =
                    table(rates, rates, each -> Math.exp(0.7 * random.nextGaussian()));
            assertThat(wrong(Calibrator.result(table, CORES).model(), table))
                    .as("seed %d, table %d", seed, i)
                    .isEmpty();
        }
    }

    @Test
    void findsRatesThatCanBeUsedAndSaysSo() {
        List<Double> progress = new ArrayList<>();
        Calibrator.Result result =
                new Calibrator(
                                CpuDevices.SHARED,
                                2,
                                List.of(2),
                                List.of(1L << 10, 16L << 10, 256L << 10),
                                progress::add)
                        .measure();
        assertThat(progress).isSorted().first().isEqualTo(0.0);
        assertThat(progress.getLast()).isBetween(0.9, 1.0);
        for (OperationKind kind : OperationKind.values()) {
            List<CostModel.Prediction> all =
                    result.model().predictions(kind, new Topology(4, 2)).all(1 << 20);
            assertThat(all)
                    .allSatisfy(each -> {
                        assertThat(each.micros()).isNotNegative().isFinite();
                    });
            assertThat(all.getFirst().name()).isEqualTo("direct");
        }
        assertThat(result.text())
                .containsPattern("alpha +us +[0-9.]+ +[0-9.]+  a step: the latency of a message\n")
                .containsPattern("beta +us/MiB +[0-9.]+ +[0-9.]+  moving data: ")
                .containsPattern("inner cache +MiB +[0-9.]+ +[0-9.]+  its size")
                .containsPattern("error +% +[0-9]+ +[0-9]+  by which predictions miss")
                .contains("Times in us, measured/predicted, by bytes of the full buffer:\n")
                .contains("Choice of --algo auto, by bytes of the full buffer")
                .containsPattern("halving-doubling allReduce +2 +[0-9.]+/[0-9.]+ ")
                .containsPattern("allToAll +16  1K [a-z]+");
    }
}
