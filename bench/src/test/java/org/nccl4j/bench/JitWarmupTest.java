package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

/** When the rows that nobody sees come to their end. */
final class JitWarmupTest {

    private static final long MILLI = 1_000_000;

    /** Clocks that stand still unless moved. */
    private static final class StoppedClock implements JitWarmup.Clock {
        private long wallNanos = 7;
        private long processorNanos = 11;

        @Override
        public long wallNanos() {
            return wallNanos;
        }

        @Override
        public long processorNanos() {
            return processorNanos;
        }

        void pass(long wallMillis, long processorMillis) {
            wallNanos += wallMillis * MILLI;
            processorNanos += processorMillis * MILLI;
        }
    }

    private final StoppedClock clock = new StoppedClock();
    private final JitWarmup warmup = new JitWarmup(2, 2, clock);

    @Test
    void itEndsWhenNothingIsGainedAnyMore() {
        warmup.measured(0, JitWarmup.LEAST_OPERATIONS, 9e-6);
        clock.pass(600, 1200);
        warmup.measured(1, 1, 5e-6);
        clock.pass(200, 400);
        warmup.measured(0, 1, 1e-6);
        clock.pass(300, 600);
        // A little faster is no gain.
        warmup.measured(0, 1, 0.95e-6);
        assertThat(warmup.isOver()).as("1100 ms, and 300 without a gain").isFalse();
        clock.pass(100, 200);
        assertThat(warmup.isOver()).isTrue();
    }

    @Test
    void nothingIsSettledBeforeTheJvmCouldCompile() {
        warmup.measured(0, JitWarmup.LEAST_OPERATIONS - 1, 1e-6);
        clock.pass(999, 1998);
        assertThat(warmup.isOver()).as("operations").isFalse();
        warmup.measured(0, 1, 1e-6);
        assertThat(warmup.isOver()).as("time").isFalse();
        clock.pass(1, 2);
        assertThat(warmup.isOver()).isTrue();
    }

    @Test
    void aBusyMachineIsGivenMoreTimeButNotForEver() {
        warmup.measured(0, JitWarmup.LEAST_OPERATIONS, 1e-6);
        clock.pass(1999, 1499);
        assertThat(warmup.isOver()).isFalse();
        clock.pass(1, 0);
        assertThat(warmup.isOver()).isTrue();
    }

    @Test
    void theTimeIsUpWhateverIsGained() {
        clock.pass(2000, 4000);
        warmup.measured(0, 1, 1e-6);
        assertThat(warmup.isOver()).isTrue();
    }

    @Test
    void cellsTakeLongerTurnsFromRoundToRound() {
        assertThat(JitWarmup.operations(8, 0)).isEqualTo(20);
        assertThat(JitWarmup.operations(8, 1)).isEqualTo(40);
        assertThat(JitWarmup.operations(0, 100)).isEqualTo(320);
        assertThat(JitWarmup.operations(64 << 10, 100)).isEqualTo(64);
        assertThat(JitWarmup.operations(1 << 30, 100)).isEqualTo(20);
    }

    @Test
    void theProcessorTimeOfThisProcessGrows() {
        JitWarmup.Clock process = JitWarmup.processClock();
        long startNanos = process.processorNanos();
        long wallNanos = process.wallNanos();
        double sum = 0;
        while (process.processorNanos() == startNanos) {
            sum += Math.sqrt(sum + 1);
            assertThat(process.wallNanos() - wallNanos).isLessThan(10_000 * MILLI);
        }
        assertThat(process.processorNanos()).as("%s", sum).isGreaterThan(startNanos);
    }
}
