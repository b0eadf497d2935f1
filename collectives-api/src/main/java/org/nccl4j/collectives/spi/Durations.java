package org.nccl4j.collectives.spi;

import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.Locale;
import org.nccl4j.collectives.InvalidArgumentException;

/**
 * Durations for {@link System#nanoTime()} arithmetic and for messages.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
public final class Durations {
    private static final Duration ROUNDED_FROM = Duration.ofMillis(10);

    private Durations() {}

    /**
     * A duration in nanoseconds, cut to about 73 years either way, so that sums and differences
     * with a clock's reading do not overflow.
     *
     * @param duration any duration
     * @return its nanoseconds
     * @throws InvalidArgumentException if it is null
     */
    public static long saturatedNanos(Duration duration) {
        if (duration == null) {
            throw new InvalidArgumentException(
                    "the timeout is null; nothing has changed; give a Duration, zero to ask without"
                            + " waiting");
        }
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

    /**
     * A duration for messages.
     *
     * @param duration any duration; from 10 ms on it is rounded to milliseconds, because what is
     *     left of a deadline is rarely a round number
     * @return hours, minutes and seconds, such as {@code 10m} or {@code 0.2s}
     */
    public static String text(Duration duration) {
        Duration shown = duration;
        if (duration.compareTo(ROUNDED_FROM) >= 0 && duration.getSeconds() < Long.MAX_VALUE) {
            shown = duration.plusNanos(500_000).truncatedTo(ChronoUnit.MILLIS);
        }
        return shown.toString().substring(2).toLowerCase(Locale.ROOT);
    }
}
