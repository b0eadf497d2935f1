package org.nccl4j.collectives.spi;

import java.time.Duration;

/**
 * Durations for {@link System#nanoTime()} arithmetic.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
public final class Durations {
    private Durations() {}

    /**
     * A duration in nanoseconds, cut to about 73 years either way, so that sums and differences
     * with a clock's reading do not overflow.
     *
     * @param duration any duration
     * @return its nanoseconds
     */
    public static long saturatedNanos(Duration duration) {
        long limit = Long.MAX_VALUE / 4;
        // Within these bounds toNanos() does not overflow.
        if (duration.getSeconds() >= limit / 1_000_000_000) {
            return limit;
        }
        if (duration.getSeconds() <= -limit / 1_000_000_000) {
            return -limit;
        }
        return duration.toNanos();
    }
}
