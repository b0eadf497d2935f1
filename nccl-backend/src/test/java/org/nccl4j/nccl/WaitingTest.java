package org.nccl4j.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
final class WaitingTest {
    private static final long LONG_NANOS = Duration.ofSeconds(20).toNanos();

    @Test
    void endsWhenItIsOver() {
        AtomicInteger asked = new AtomicInteger();

        Waiting.Outcome outcome =
                Waiting.until(
                        () -> asked.incrementAndGet() == 1_000, System.nanoTime(), LONG_NANOS);

        assertThat(outcome).isEqualTo(Waiting.Outcome.OVER);
        assertThat(asked).hasValue(1_000);
    }

    @Test
    void whatIsOverIsNeverOutOfTime() {
        assertThat(Waiting.until(() -> true, System.nanoTime() - LONG_NANOS, 0))
                .isEqualTo(Waiting.Outcome.OVER);
    }

    @Test
    void countsFromTheGivenStart() {
        long start = System.nanoTime();
        long earlier = start - Duration.ofSeconds(5).toNanos();

        assertThat(Waiting.until(() -> false, earlier, Duration.ofSeconds(5).toNanos()))
                .isEqualTo(Waiting.Outcome.OUT_OF_TIME);
        assertThat(System.nanoTime() - start).isLessThan(Duration.ofSeconds(4).toNanos());
    }

    @Test
    void aBudgetWithoutEndDoesNotOverflow() {
        AtomicInteger asked = new AtomicInteger();

        assertThat(
                        Waiting.untilUninterruptibly(
                                () -> asked.incrementAndGet() == 100,
                                System.nanoTime(),
                                Long.MAX_VALUE))
                .isEqualTo(Waiting.Outcome.OVER);
    }

    @Test
    void anInterruptEndsItAndStays() {
        Thread.currentThread().interrupt();

        assertThat(Waiting.until(() -> false, System.nanoTime(), LONG_NANOS))
                .isEqualTo(Waiting.Outcome.INTERRUPTED);
        assertThat(Thread.interrupted()).isTrue();
    }

    @Test
    void anInterruptDoesNotEndWhatCannotBeLeft() {
        Thread.currentThread().interrupt();
        AtomicInteger asked = new AtomicInteger();

        assertThat(
                        Waiting.untilUninterruptibly(
                                () -> asked.incrementAndGet() == 100,
                                System.nanoTime(),
                                LONG_NANOS))
                .isEqualTo(Waiting.Outcome.OVER);
        assertThat(Thread.interrupted()).isTrue();
    }
}
