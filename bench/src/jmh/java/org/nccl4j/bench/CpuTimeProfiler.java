package org.nccl4j.bench;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Collection;
import java.util.List;
import org.openjdk.jmh.infra.BenchmarkParams;
import org.openjdk.jmh.infra.IterationParams;
import org.openjdk.jmh.profile.InternalProfiler;
import org.openjdk.jmh.results.AggregationPolicy;
import org.openjdk.jmh.results.IterationResult;
import org.openjdk.jmh.results.Result;
import org.openjdk.jmh.results.ScalarResult;

/**
 * The processor's time per operation, of all Java threads: on a machine that others use too, the
 * time that passes is mostly theirs.
 */
public final class CpuTimeProfiler implements InternalProfiler {
    /** What it adds to a result. */
    static final String LABEL = "cpu";

    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private long beforeNanos;

    /** For JMH. */
    public CpuTimeProfiler() {}

    @Override
    public String getDescription() {
        return "processor time of Java threads per operation";
    }

    @Override
    public void beforeIteration(BenchmarkParams benchmark, IterationParams iteration) {
        beforeNanos = cpuNanos();
    }

    @Override
    public Collection<? extends Result<?>> afterIteration(
            BenchmarkParams benchmark, IterationParams iteration, IterationResult result) {
        double perOperation =
                (cpuNanos() - beforeNanos) / (double) result.getMetadata().getMeasuredOps();
        return List.of(new ScalarResult(LABEL, perOperation, "ns/op", AggregationPolicy.AVG));
    }

    private static long cpuNanos() {
        long sum = 0;
        for (long id : THREADS.getAllThreadIds()) {
            sum += Math.max(0, THREADS.getThreadCpuTime(id));
        }
        return sum;
    }
}
