package org.nccl4j.bench;

import java.time.Duration;
import java.util.Arrays;

/**
 * Decides for how long cells run that nobody sees, so that those that are seen run what the JVM
 * makes of them in the end. It compiles a method again after thousands of calls, in a thread of its
 * own, and the times stand still until that is done and then fall once more: so an even time alone
 * proves nothing, the JVM must also have had its share of a processor.
 *
 * <p>Thread safety: one thread at a time.
 */
final class JitWarmup {

    /** Larger sizes than this over all ranks depend on memory, not on compiled code. */
    static final long LARGEST_BYTES = 256 << 10;

    /** A size per rank that threads share, so that what they do together is compiled as well. */
    static final long SHARED_BYTES = 1 << 20;

    /** More than the calls after which the JVM compiles for the last time (15 000 at most). */
    static final int LEAST_OPERATIONS = 20_000;

    /** What a cell moves of one rank's data, within the limits that follow. */
    private static final long CELL_BYTES = 4 << 20;

    private static final int LEAST_PER_CELL = 20;
    private static final int DOUBLINGS = 4;

    /** A time counts as a gain if it is below this share of the best so far. */
    private static final double GAIN = 0.9;

    /** What two clocks show. */
    interface Clock {
        long wallNanos();

        /** Processor time of all threads of this process. */
        long processorNanos();
    }

    private final long budgetNanos;
    private final Clock clock;
    private final long startWallNanos;
    private final long startProcessorNanos;
    private final double[] bestSeconds;
    private long lastGainNanos;
    private long operations;

    /**
     * Starts the clock.
     *
     * @param seconds how long it may take
     * @param cells how many cells take turns
     */
    JitWarmup(double seconds, int cells, Clock clock) {
        this.budgetNanos = (long) (seconds * 1e9);
        this.clock = clock;
        this.startWallNanos = clock.wallNanos();
        this.startProcessorNanos = clock.processorNanos();
        this.bestSeconds = new double[cells];
        Arrays.fill(bestSeconds, Double.POSITIVE_INFINITY);
    }

    /** This process's clocks; where processor time is not known, time counts in its place. */
    static Clock processClock() {
        return new Clock() {
            @Override
            public long wallNanos() {
                return System.nanoTime();
            }

            @Override
            public long processorNanos() {
                return ProcessHandle.current()
                        .info()
                        .totalCpuDuration()
                        .map(Duration::toNanos)
                        .orElseGet(System::nanoTime);
            }
        };
    }

    /**
     * How many operations a cell runs before the next takes its turn. Few at first: what the JVM
     * compiles before it has seen all cells it must compile once more.
     *
     * @param round how many turns each cell has had
     */
    static long operations(long sizeBytes, int round) {
        long most = (long) LEAST_PER_CELL << Math.min(round, DOUBLINGS);
        return Math.clamp(CELL_BYTES / Math.max(1, sizeBytes), LEAST_PER_CELL, most);
    }

    /**
     * Takes a measurement.
     *
     * @param cell of which cell
     * @param count how many operations it was of
     * @param seconds per operation
     */
    void measured(int cell, long count, double seconds) {
        operations += count;
        if (seconds < GAIN * bestSeconds[cell]) {
            bestSeconds[cell] = seconds;
            lastGainNanos = elapsedNanos();
        }
    }

    /** True once times have settled, or the time is up. */
    boolean isOver() {
        long elapsedNanos = elapsedNanos();
        return elapsedNanos >= budgetNanos
                || (operations >= LEAST_OPERATIONS
                        && elapsedNanos >= budgetNanos / 2
                        // Nothing was gained in the last third of the time so far.
                        && elapsedNanos >= lastGainNanos + lastGainNanos / 2
                        && clock.processorNanos() - startProcessorNanos >= budgetNanos / 4 * 3);
    }

    private long elapsedNanos() {
        return clock.wallNanos() - startWallNanos;
    }
}
