package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import java.util.List;
import java.util.Map;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What is computed from times and counts, apart from how it is shown. */
final class StatisticsTest {

    @Test
    void perIterationSummary() {
        IterationTimes times = IterationTimes.of(List.of(List.of(40.5, 30.0, 32.0, 31.0)), 1);
        assertThat(times.skipped()).isEqualTo(1);
        assertThat(times.minMicros()).isEqualTo(30);
        assertThat(times.maxMicros()).isEqualTo(32);
        assertThat(times.meanMicros()).isEqualTo(31);
        assertThat(times.p50Micros()).isEqualTo(31);
        assertThat(times.p95Micros()).isEqualTo(32);
        assertThat(times.p99Micros()).isEqualTo(32);
        assertThat(times.stdevMicros()).isCloseTo(0.816497, within(1e-6));
        assertThat(times.cvPercent()).isCloseTo(2.633860, within(1e-6));
        assertThat(times.samplesMicros()).containsExactly(40.5, 30.0, 32.0, 31.0);
    }

    @Test
    void percentilesAreNearestRanksAndTheMedianIsTheUpper() {
        List<Double> hundred =
                IntStream.rangeClosed(1, 100).mapToObj(i -> (double) (101 - i)).toList();
        IterationTimes times = IterationTimes.of(List.of(hundred), 0);
        assertThat(times.p50Micros()).isEqualTo(51);
        assertThat(times.p95Micros()).isEqualTo(95);
        assertThat(times.p99Micros()).isEqualTo(99);
        IterationTimes even = IterationTimes.of(List.of(List.of(4.0, 1.0, 3.0, 2.0)), 0);
        assertThat(even.p50Micros()).isEqualTo(3);
        assertThat(even.p99Micros()).isEqualTo(4);
        IterationTimes single = IterationTimes.of(List.of(List.of(0.0)), 0);
        assertThat(single.p50Micros()).isZero();
        assertThat(single.cvPercent()).isZero();
    }

    @Test
    void aSampleIsTheMaximumOverProcesses() {
        IterationTimes times = IterationTimes.of(List.of(List.of(1.0, 5.0), List.of(3.0, 4.0)), 0);
        assertThat(times.samplesMicros()).containsExactly(3.0, 5.0);
        assertThat(times.perProcessMicros()).containsExactly(List.of(1.0, 5.0), List.of(3.0, 4.0));
    }

    @ParameterizedTest
    @CsvSource({"RANK0, 3", "MEAN, 2.5", "MIN, 1", "MAX, 4"})
    void averages(TimeAverage average, double seconds) {
        assertThat(average.reduce(new double[] {3, 1, 4, 2})).isEqualTo(seconds);
    }

    @Test
    void theMeanCountsEveryCell() {
        BusBandwidthMean mean = new BusBandwidthMean();
        assertThat(mean.meanGBps()).isNaN();
        Row large = Rows.allReduce(1 << 20, 31.07, 30.925, 0, 0);
        Row empty = Rows.allReduce(0, 12, 12, 0, 0);
        mean.add(large);
        mean.add(empty);
        double busBws =
                large.outOfPlace().bandwidth().busBwGBps()
                        + large.inPlace().bandwidth().busBwGBps();
        assertThat(mean.meanGBps()).isEqualTo(busBws / 4);
    }

    @Test
    void theVerdict() {
        assertThat(new Summary(0, 1, OptionalDouble.empty()).exitCode()).isEqualTo(ExitCode.OK);
        assertThat(new Summary(1, 1, OptionalDouble.empty()).exitCode()).isEqualTo(ExitCode.FAILED);
        assertThat(new Summary(0, 9, OptionalDouble.of(10)).exitCode()).isEqualTo(ExitCode.OK);
        assertThat(new Summary(0, 8.999, OptionalDouble.of(10)).exitCode())
                .isEqualTo(ExitCode.FAILED);
        assertThat(new Summary(0, Double.NaN, OptionalDouble.of(10)).exitCode())
                .isEqualTo(ExitCode.OK);
    }

    @ParameterizedTest
    @CsvSource({
        "0, 0.00 B",
        "512, 512 B",
        "1023, 1023 B",
        "1024, 1.00 KB",
        "10240, 10.0 KB",
        "102400, 100 KB",
        "100663296, 96.0 MB",
        "1342177280, 1.25 GB",
        "2199023255552, 2048 GB",
        "-2048, -2.00 KB",
        "7, 7.00 B",
        "42, 42.0 B",
    })
    void amounts(long bytes, String text) {
        assertThat(MemoryUsage.amount(bytes)).isEqualTo(text);
    }

    @Test
    void theEnvironment() {
        BenchEnvironment none = new BenchEnvironment(Map.of("HOME", "/home/me"));
        assertThat(none.firstDevice()).isEmpty();
        assertThat(none.expectedBusBwGBps()).isEmpty();
        assertThat(none.launcherVariable()).isEmpty();
        assertThat(none.reported()).isEmpty();
        BenchEnvironment some =
                new BenchEnvironment(
                        Map.of(
                                "NCCL_TESTS_DEVICE", "3",
                                "NCCL_TESTS_MIN_BW", "12.5GB",
                                "PMI_SIZE", "4",
                                "CUDA_VISIBLE_DEVICES", "0,1",
                                "NCCL4J_LIBRARY", "x",
                                "AWS_SECRET_ACCESS_KEY", "secret"));
        assertThat(some.firstDevice()).isEqualTo(OptionalInt.of(3));
        assertThat(some.expectedBusBwGBps()).hasValue(12.5);
        assertThat(some.launcherVariable()).contains("PMI_SIZE");
        assertThat(some.reported())
                .containsExactly(
                        "CUDA_VISIBLE_DEVICES=0,1",
                        "NCCL4J_LIBRARY=x",
                        "NCCL_TESTS_DEVICE=3",
                        "NCCL_TESTS_MIN_BW=12.5GB");
        BenchEnvironment unset =
                new BenchEnvironment(Map.of("NCCL_TESTS_DEVICE", "-1", "NCCL_TESTS_MIN_BW", "-1"));
        assertThat(unset.firstDevice()).isEmpty();
        assertThat(unset.expectedBusBwGBps()).isEmpty();
        BenchEnvironment words =
                new BenchEnvironment(
                        Map.of("NCCL_TESTS_DEVICE", "first", "NCCL_TESTS_MIN_BW", "fast"));
        assertThat(words.firstDevice()).hasValue(0);
        assertThat(words.expectedBusBwGBps()).hasValue(0);
    }
}
