package org.nccl4j.collectives;

import java.time.Duration;

/** Durations as nanoseconds for {@link System#nanoTime()} arithmetic. */
final class Durations {
    private Durations() {}

    static long saturatedNanos(Duration duration) {
        try {
            return duration.toNanos();
        } catch (ArithmeticException e) {
            return duration.isNegative() ? Long.MIN_VALUE / 4 : Long.MAX_VALUE / 4;
        }
    }
}
