package org.nccl4j.bench;

import java.util.Arrays;
import java.util.List;

/**
 * The samples of -I and their summary, all in microseconds per operation.
 *
 * @param skipped samples at the start that the summary leaves out (-K)
 * @param minMicros smallest
 * @param maxMicros largest
 * @param meanMicros arithmetic mean
 * @param p50Micros upper median
 * @param p95Micros 95th percentile by nearest rank
 * @param p99Micros 99th percentile by nearest rank: the maximum below 100 samples
 * @param stdevMicros population standard deviation
 * @param cvPercent stdev in percent of the mean; 0 if the mean is not positive
 * @param samplesMicros every sample, the skipped ones included: per iteration the maximum over
 *     devices, threads and processes
 * @param perProcessMicros the samples of each process, in their order
 */
record IterationTimes(
        int skipped,
        double minMicros,
        double maxMicros,
        double meanMicros,
        double p50Micros,
        double p95Micros,
        double p99Micros,
        double stdevMicros,
        double cvPercent,
        List<Double> samplesMicros,
        List<List<Double>> perProcessMicros) {

    /**
     * Summarises samples.
     *
     * @param perProcessMicros per process its samples, one per iteration, each the maximum over its
     *     devices and threads; at least one process, all of the same length
     * @param skipped how many to leave out of the summary; less than there are
     */
    static IterationTimes of(List<List<Double>> perProcessMicros, int skipped) {
        int count = perProcessMicros.getFirst().size();
        double[] samples = new double[count];
        Arrays.fill(samples, Double.NEGATIVE_INFINITY);
        for (List<Double> process : perProcessMicros) {
            for (int i = 0; i < count; i++) {
                samples[i] = Math.max(samples[i], process.get(i));
            }
        }
        double[] sorted = Arrays.copyOfRange(samples, skipped, count);
        Arrays.sort(sorted);
        double mean = Arrays.stream(sorted).sum() / sorted.length;
        double squares = 0;
        for (double sample : sorted) {
            squares += (sample - mean) * (sample - mean);
        }
        double stdev = Math.sqrt(squares / sorted.length);
        return new IterationTimes(
                skipped,
                sorted[0],
                sorted[sorted.length - 1],
                mean,
                sorted[sorted.length / 2],
                nearestRank(sorted, 95),
                nearestRank(sorted, 99),
                stdev,
                mean <= 0 ? 0 : 100 * stdev / mean,
                Arrays.stream(samples).boxed().toList(),
                perProcessMicros);
    }

    private static double nearestRank(double[] sorted, int percent) {
        int rank = (int) ((sorted.length * (long) percent + 99) / 100);
        return sorted[Math.min(sorted.length, rank) - 1];
    }
}
