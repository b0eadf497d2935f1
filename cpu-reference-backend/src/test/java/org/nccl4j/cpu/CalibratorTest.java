package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

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
