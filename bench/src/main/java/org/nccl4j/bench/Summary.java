package org.nccl4j.bench;

import java.util.OptionalDouble;

/**
 * The verdict on a run that came to its end.
 *
 * @param outOfBounds failed checks: one per thread and cell in which the thread's own devices had
 *     at least one wrong element
 * @param meanBusBwGBps {@link BusBandwidthMean#meanGBps}
 * @param expectedBusBwGBps {@link BenchEnvironment#expectedBusBwGBps}
 */
record Summary(long outOfBounds, double meanBusBwGBps, OptionalDouble expectedBusBwGBps) {

    /** A mean of this share of the expected bandwidth still passes. */
    private static final double TOLERATED_SHARE = 0.9;

    boolean allCorrect() {
        return outOfBounds == 0;
    }

    /** True unless a bandwidth was expected and the mean is below nine tenths of it. */
    boolean fastEnough() {
        return expectedBusBwGBps.isEmpty()
                || !(meanBusBwGBps < TOLERATED_SHARE * expectedBusBwGBps.getAsDouble());
    }

    ExitCode exitCode() {
        return allCorrect() && fastEnough() ? ExitCode.OK : ExitCode.FAILED;
    }
}
