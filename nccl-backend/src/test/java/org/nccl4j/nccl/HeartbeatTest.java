package org.nccl4j.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

final class HeartbeatTest {
    private static final long SECOND = TimeUnit.SECONDS.toNanos(1);

    private final Heartbeat heartbeat = new Heartbeat();

    @Test
    void aQuestionWithoutAnAnswerIsToldOnce() {
        heartbeat.asks("cudaStreamQuery", "stream 3 of device 1", 5 * SECOND);

        assertThat(heartbeat.overdue(34 * SECOND)).isNull();
        assertThat(heartbeat.overdue(36 * SECOND))
                .contains("cudaStreamQuery")
                .contains("stream 3 of device 1")
                .contains("for 31 s");
        assertThat(heartbeat.overdue(60 * SECOND)).isNull();
    }

    @Test
    void anAnswerEndsIt() {
        heartbeat.asks("cudaStreamQuery", "stream 3", 0);
        heartbeat.isAnswered();

        assertThat(heartbeat.overdue(100 * SECOND)).isNull();

        heartbeat.asks("cudaStreamQuery", "stream 3", 100 * SECOND);
        assertThat(heartbeat.overdue(101 * SECOND)).isNull();
        assertThat(heartbeat.overdue(131 * SECOND)).isNotNull();
    }
}
