package org.nccl4j.collectives;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.OptionalInt;
import org.assertj.core.api.AbstractThrowableAssert;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;

final class CommunicatorConfigTest {
    private static final CommunicatorConfig DEFAULTS = CommunicatorConfig.defaults();

    @Test
    void defaults() {
        assertThat(DEFAULTS)
                .isEqualTo(
                        new CommunicatorConfig(
                                "world",
                                Duration.ofMinutes(10),
                                true,
                                OptionalInt.empty(),
                                true,
                                false,
                                Optional.empty(),
                                Optional.empty(),
                                Optional.empty(),
                                NcclOptions.none()));
    }

    @Test
    void eachWithChangesItsComponentAlone() {
        Store store = new InMemoryStore();
        Path file = Path.of("trace.jsonl");
        Duration second = Duration.ofSeconds(1);
        OptionalInt noDevice = OptionalInt.empty();
        Duration tenMinutes = Duration.ofMinutes(10);
        NcclOptions options = NcclOptions.none().with(NcclOption.MIN_CTAS, 4);

        assertThat(DEFAULTS.withName("ring"))
                .isEqualTo(
                        new CommunicatorConfig(
                                "ring",
                                tenMinutes,
                                true,
                                noDevice,
                                true,
                                false,
                                Optional.empty(),
                                Optional.empty(),
                                Optional.empty(),
                                NcclOptions.none()));
        // Each step goes through all ten components, so a swap in any would show here.
        CommunicatorConfig all =
                DEFAULTS.withName("ring")
                        .withOperationTimeout(second)
                        .withAbortOnFailure(false)
                        .withDevice(3)
                        .withBlocking(false)
                        .withTiming(true)
                        .withConsistencyCheck(store)
                        .withTraceFile(file)
                        .withAlgorithm("tree")
                        .withNccl(options);
        assertThat(all)
                .isEqualTo(
                        new CommunicatorConfig(
                                "ring",
                                second,
                                false,
                                OptionalInt.of(3),
                                false,
                                true,
                                Optional.of(store),
                                Optional.of(file),
                                Optional.of("tree"),
                                options));
        assertThat(
                        all.withNccl(NcclOptions.none())
                                .withAlgorithm(null)
                                .withTraceFile(null)
                                .withConsistencyCheck(null)
                                .withTiming(false)
                                .withBlocking(true)
                                .withAbortOnFailure(true)
                                .withOperationTimeout(tenMinutes)
                                .withName("world"))
                .isEqualTo(DEFAULTS.withDevice(3));
    }

    @Test
    void aTimeoutIsPositive() {
        for (Duration timeout : new Duration[] {Duration.ZERO, Duration.ofNanos(-1), null}) {
            refused(() -> DEFAULTS.withOperationTimeout(timeout))
                    .hasMessage(
                            "operationTimeout must be positive, got "
                                    + timeout
                                    + "; nothing may wait for ever or not at all");
        }
        assertThat(DEFAULTS.withOperationTimeout(Duration.ofNanos(1)).operationTimeout())
                .isEqualTo(Duration.ofNanos(1));
    }

    @Test
    void aNameShowsSomething() {
        refused(() -> DEFAULTS.withName(" "))
                .hasMessage("a communicator's name must not be blank, got ' '");
        refused(() -> DEFAULTS.withName(null))
                .hasMessage("a communicator's name must not be blank, got null");
    }

    @Test
    void aDeviceIsNotNegative() {
        refused(() -> DEFAULTS.withDevice(-1))
                .hasMessage("deviceOrdinal is -1, must be at least 0");
        assertThat(DEFAULTS.withDevice(0).deviceOrdinal()).hasValue(0);
    }

    @Test
    void whatIsAbsentIsEmpty() {
        refused(() ->
                        new CommunicatorConfig(
                                "world",
                                Duration.ofSeconds(1),
                                true,
                                null,
                                true,
                                false,
                                Optional.empty(),
                                Optional.empty(),
                                Optional.empty(),
                                NcclOptions.none()))
                .hasMessage(
                        "an absent deviceOrdinal, consistencyCheck, traceFile or algorithm is empty, not"
                                + " null, and no NCCL options are NcclOptions.none()");
    }

    private static AbstractThrowableAssert<?, ?> refused(ThrowingCallable call) {
        return assertThatThrownBy(call).isInstanceOf(InvalidArgumentException.class);
    }
}
