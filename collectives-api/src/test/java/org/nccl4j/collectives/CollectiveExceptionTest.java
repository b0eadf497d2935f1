package org.nccl4j.collectives;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.collectives.CollectiveException.Recovery;

final class CollectiveExceptionTest {
    private static final Exception CAUSE = new Exception("cause");

    static Stream<Arguments> exceptions() {
        return Stream.of(
                Arguments.of(new InvalidArgumentException("m"), Recovery.CORRECT_THE_CALL, null),
                Arguments.of(
                        new InvalidArgumentException("m", CAUSE), Recovery.CORRECT_THE_CALL, CAUSE),
                Arguments.of(
                        new InvalidArgumentException("m", true),
                        Recovery.RECREATE_COMMUNICATOR,
                        null),
                Arguments.of(new MismatchException("m"), Recovery.RECREATE_COMMUNICATOR, null),
                Arguments.of(
                        new MismatchException("m", CAUSE), Recovery.RECREATE_COMMUNICATOR, CAUSE),
                Arguments.of(new CollectiveTimeoutException("m", false), Recovery.RETRY, null),
                Arguments.of(
                        new CollectiveTimeoutException("m", true),
                        Recovery.RECREATE_COMMUNICATOR,
                        null),
                Arguments.of(
                        new RankFailedException(3, "m", CAUSE),
                        Recovery.RECREATE_COMMUNICATOR,
                        CAUSE),
                Arguments.of(
                        new CommunicatorAbortedException("m"),
                        Recovery.RECREATE_COMMUNICATOR,
                        null),
                Arguments.of(
                        new CommunicatorAbortedException("m", CAUSE),
                        Recovery.RECREATE_COMMUNICATOR,
                        CAUSE),
                Arguments.of(new UnsupportedException("m"), Recovery.CHANGE_SETUP, null),
                Arguments.of(new UnsupportedException("m", CAUSE), Recovery.CHANGE_SETUP, CAUSE),
                Arguments.of(new LibraryUnavailableException("m"), Recovery.CHANGE_SETUP, null),
                Arguments.of(
                        new LibraryUnavailableException("m", CAUSE), Recovery.CHANGE_SETUP, CAUSE),
                Arguments.of(new WaitInterruptedException("m"), Recovery.RETRY, null),
                Arguments.of(new WaitInterruptedException("m", CAUSE), Recovery.RETRY, CAUSE),
                Arguments.of(
                        new NativeCallException(
                                "ncclAllReduce", 6, "peer gone", Recovery.RESTART_PROCESS, "m"),
                        Recovery.RESTART_PROCESS,
                        null));
    }

    @ParameterizedTest
    @MethodSource("exceptions")
    void eachKnowsItsRecoveryAndCause(
            CollectiveException exception, Recovery recovery, Throwable cause) {
        assertThat(exception).hasMessage("m");
        assertThat(exception.recovery()).isEqualTo(recovery);
        assertThat(exception.getCause()).isSameAs(cause);
    }

    /** A failure is stored once and thrown in many threads. */
    @ParameterizedTest
    @MethodSource("exceptions")
    void theCopyForAThreadHasItsOwnStackTrace(CollectiveException stored) throws Exception {
        CollectiveException[] copy = new CollectiveException[1];
        Thread thread = new Thread(() -> copy[0] = stored.forThisThread(), "copier");
        thread.start();
        thread.join();

        assertThat(copy[0])
                .isExactlyInstanceOf(stored.getClass())
                .isNotSameAs(stored)
                .hasMessage(stored.getMessage())
                .hasCause(stored);
        assertThat(copy[0].recovery()).isEqualTo(stored.recovery());
        assertThat(Arrays.asList(copy[0].getStackTrace()))
                .anyMatch(frame -> frame.getMethodName().contains("theCopyForAThread"))
                .noneMatch(frame -> frame.getMethodName().equals("exceptions"));
    }

    @Test
    void aCopyOfACopyNamesTheFirstAsItsCause() {
        CollectiveException first = new MismatchException("m");

        assertThat(first.forThisThread().forThisThread()).hasCause(first);
    }

    @Test
    void aCopyKeepsWhatTheTypeAdds() {
        RankFailedException failed = new RankFailedException(3, "m", CAUSE).forThisThread();
        NativeCallException called =
                new NativeCallException("ncclSend", 5, "text", Recovery.CHANGE_SETUP, "m")
                        .forThisThread();

        assertThat(failed.failedRank()).isEqualTo(3);
        assertThat(called.function()).isEqualTo("ncclSend");
        assertThat(called.code()).isEqualTo(5);
        assertThat(called.lastErrorText()).isEqualTo("text");
    }

    @Test
    void theseAreAllThereAre() {
        List<Class<?>> permitted =
                Arrays.asList(CollectiveException.class.getPermittedSubclasses());
        Set<Class<?>> tested =
                exceptions().map(a -> a.get()[0].getClass()).collect(Collectors.toSet());

        assertThat(tested).containsExactlyInAnyOrderElementsOf(permitted);
        assertThat(permitted).allMatch(type -> Modifier.isFinal(type.getModifiers()));
    }
}
