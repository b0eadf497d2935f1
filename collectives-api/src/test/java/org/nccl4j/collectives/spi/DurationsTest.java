package org.nccl4j.collectives.spi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.InvalidArgumentException;

final class DurationsTest {
    private static final Duration LONGEST = Duration.ofSeconds(Long.MAX_VALUE, 999_999_999);
    private static final Duration LEAST = Duration.ofSeconds(Long.MIN_VALUE);

    @Test
    void ordinaryDurationsAreExact() {
        for (Duration duration :
                new Duration[] {
                    Duration.ZERO,
                    Duration.ofNanos(1),
                    Duration.ofNanos(-1),
                    Duration.ofMinutes(10),
                    Duration.ofDays(365 * 50),
                    Duration.ofDays(-365 * 50)
                }) {
            assertThat(Durations.saturatedNanos(duration)).isEqualTo(duration.toNanos());
        }
    }

    @Test
    void longOnesLeaveRoomForAClock() {
        long longest = Durations.saturatedNanos(LONGEST);
        long least = Durations.saturatedNanos(LEAST);

        assertThat(longest).isEqualTo(Long.MAX_VALUE / 4);
        assertThat(least).isEqualTo(-longest);
        assertThat(Durations.saturatedNanos(Duration.ofNanos(Long.MAX_VALUE))).isEqualTo(longest);
        // However the clock stands, a deadline is later than now.
        for (long now : new long[] {0, Long.MAX_VALUE, Long.MIN_VALUE}) {
            assertThat(now + longest - now).isPositive();
        }
    }

    @Test
    void noDurationIsLongerThanTheLongest() {
        Duration limit = Duration.ofNanos(Long.MAX_VALUE / 4);
        for (int nanos = -2; nanos <= 2; nanos++) {
            assertThat(Durations.saturatedNanos(limit.plusNanos(nanos)))
                    .isBetween(limit.toNanos() - 1_000_000_000, limit.toNanos());
            assertThat(Durations.saturatedNanos(limit.negated().plusNanos(nanos)))
                    .isBetween(-limit.toNanos(), -limit.toNanos() + 1_000_000_000);
        }
        Duration last = Duration.ofSeconds(limit.getSeconds() - 1);
        assertThat(Durations.saturatedNanos(last)).isEqualTo(last.toNanos());
    }

    @Test
    void nullIsRefused() {
        assertThatThrownBy(() -> Durations.saturatedNanos(null))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        "the timeout is null; nothing has changed; give a Duration, zero to ask"
                                + " without waiting");
    }

    @Test
    void textIsShort() {
        assertThat(Durations.text(Duration.ofMinutes(10))).isEqualTo("10m");
        assertThat(Durations.text(Duration.ofMillis(1200))).isEqualTo("1.2s");
        assertThat(Durations.text(Duration.ofHours(26).plusSeconds(1))).isEqualTo("26h1s");
        assertThat(Durations.text(Duration.ZERO)).isEqualTo("0s");
        assertThat(Durations.text(Duration.ofNanos(999_967_943))).isEqualTo("1s");
        assertThat(Durations.text(Duration.ofNanos(1_500))).isEqualTo("0.0000015s");
        assertThat(Durations.text(LONGEST)).endsWith("h30m7.999999999s");
    }
}
