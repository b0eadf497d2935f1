package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.NativeCallException;
import org.nccl4j.nccl.NcclBackend;

/**
 * Each native call of a {@link Life} fails in turn, in each way that the emulator can make it fail.
 * Whatever it is: the right exception in time, nothing left behind, and the next life is as if
 * nothing had been.
 */
@OnEmulator(leavesNothing = false)
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
final class FaultTest {
    private static final Duration DEADLINE = Duration.ofSeconds(30);

    /** Of lives that must end by themselves, on a loaded machine too. */
    private static final Duration LONG_TIMEOUT = Duration.ofSeconds(4);

    /** A rank whose peer could not join waits for it until the deadline. */
    private static final Duration TOLD_WITHIN = LONG_TIMEOUT.plusSeconds(4);

    /** Of lives in which the deadline is what ends a call. */
    private static final Duration SHORT_TIMEOUT = Duration.ofMillis(500);

    private static final CommunicatorConfig CONFIG =
            CommunicatorConfig.defaults().withName("faulty").withOperationTimeout(LONG_TIMEOUT);

    /** ncclInternalError, and a code that CUDA gives for no particular reason. */
    private static final int NCCL_CODE = 3;

    private static final int CUDA_CODE = 999;
    private static final int NCCL_REMOTE_ERROR = 6;

    /** A word of what NCCL's guide says about each code. */
    private static final Map<Integer, String> HINTS =
            Map.of(
                    1, "CUDA",
                    2, "system",
                    3, "bug",
                    5, "NCCL_DEBUG",
                    6, "rank");

    /**
     * Every function that a life calls after the library has been loaded, but those that tell and
     * choose the current context: they do not fail while the driver works, and what is given back
     * waits for them.
     */
    private static final List<String> FUNCTIONS =
            List.of(
                    "ncclGetUniqueId",
                    "ncclCommInitRankConfig",
                    "ncclGroupStart",
                    "ncclGroupEnd",
                    "ncclAllReduce",
                    "ncclSend",
                    "ncclRecv",
                    "ncclCommGetAsyncError",
                    "ncclCommSplit",
                    "ncclRedOpCreatePreMulSum",
                    "ncclRedOpDestroy",
                    "ncclCommFinalize",
                    "ncclCommDestroy",
                    "cudaSetDevice",
                    "cuDevicePrimaryCtxRetain",
                    "cudaMallocFromPoolAsync",
                    "cudaFreeAsync",
                    "cudaHostAlloc",
                    "cudaFreeHost",
                    "cudaStreamCreateWithFlags",
                    "cudaStreamDestroy",
                    "cudaStreamQuery",
                    "cudaStreamWaitEvent",
                    "cudaEventCreateWithFlags",
                    "cudaEventRecord",
                    "cudaEventDestroy",
                    "cudaMemcpyAsync",
                    "cudaMemsetAsync");

    /** Those that give something back: it stays if they refuse, and only the log tells of it. */
    private static final Set<String> RELEASES =
            Set.of(
                    "ncclRedOpDestroy",
                    "cudaFreeHost",
                    "cudaFreeAsync",
                    // Whatever it answers but "not ready" says that the context is lost.
                    "cudaStreamQuery",
                    "cudaStreamDestroy",
                    "cudaEventDestroy");

    /** What never returns, or never ends on the stream, until the communicator is aborted. */
    private static final List<String> HANGING =
            List.of(
                    "ncclCommInitRankConfig",
                    "ncclGroupEnd",
                    "ncclAllReduce",
                    "ncclSend",
                    "ncclRecv",
                    "ncclCommSplit",
                    "ncclCommFinalize");

    /** Those that are done another way if they fail, or later. */
    private static final Set<String> SPARED =
            Set.of(
                    "cudaGetDevice",
                    "cudaSetDevice",
                    "cudaEventCreateWithFlags",
                    "cudaEventRecord",
                    "cudaStreamCreateWithFlags");

    private enum Mode {
        BLOCKING(true, false),
        BLOCKING_THREADS(true, true),
        NON_BLOCKING(false, false);

        private final boolean blocking;
        private final boolean threads;

        Mode(boolean blocking, boolean threads) {
            this.blocking = blocking;
            this.threads = threads;
        }

        /** What differs in this mode from the first one. */
        boolean tests(String function) {
            return switch (this) {
                case BLOCKING -> true;
                case BLOCKING_THREADS ->
                        function.equals("ncclGetUniqueId")
                                || function.equals("ncclCommInitRankConfig");
                case NON_BLOCKING -> function.startsWith("nccl");
            };
        }
    }

    private final Backend backend = new NcclBackend();
    private final Map<Mode, Map<String, Long>> callsOfMode = new TreeMap<>();
    private EmulatorControls controls;

    /** Lives without a fault, which load what is loaded once and fill pools. */
    @BeforeAll
    void countCalls(EmulatorControls theControls) {
        controls = theControls;
        for (int i = 0; i < 2; i++) {
            for (Mode mode : Mode.values()) {
                controls.forget();
                requireFaultless(mode);
                Map<String, Long> calls = new LinkedHashMap<>();
                FUNCTIONS.forEach(function -> calls.put(function, controls.calls(function)));
                callsOfMode.put(mode, calls);
            }
        }
    }

    private List<Life.Failure> live(Mode mode, Duration operationTimeout) {
        CommunicatorConfig config =
                CONFIG.withBlocking(mode.blocking).withOperationTimeout(operationTimeout);
        return new Life(backend, config, mode.threads).live();
    }

    private void requireFaultless(Mode mode) {
        assertThat(live(mode, LONG_TIMEOUT)).as("a life without a fault, %s", mode).isEmpty();
    }

    /** The table above is not out of date. */
    @Test
    void eachFunctionIsCalled() {
        Set<String> unused = new TreeSet<>(FUNCTIONS);
        callsOfMode.values().forEach(calls -> unused.removeIf(function -> calls.get(function) > 0));
        assertThat(unused).as("functions that no life calls").isEmpty();
    }

    private interface FaultCase {
        void run(Mode mode, String function, long call);
    }

    /** A case for the first call, the second and the last one of a function, in each mode. */
    private List<DynamicTest> perCall(String kind, List<String> functions, FaultCase faultCase) {
        List<DynamicTest> tests = new ArrayList<>();
        for (Mode mode : Mode.values()) {
            for (String function : functions.stream().filter(mode::tests).toList()) {
                long calls = callsOfMode.get(mode).get(function);
                for (long call : new TreeSet<>(List.of(1L, 2L, calls))) {
                    if (call > 0 && call <= calls) {
                        tests.add(
                                dynamicTest(
                                        function + ":" + call + "=" + kind + ", " + mode,
                                        withinDeadline(() -> faultCase.run(mode, function, call))));
                    }
                }
            }
        }
        return tests;
    }

    private static Executable withinDeadline(Executable test) {
        return () -> assertTimeoutPreemptively(DEADLINE, test);
    }

    /**
     * What goes wrong.
     *
     * @param function in which function
     * @param call at which of its calls
     * @param kind in which way
     */
    private record Fault(String function, long call, String kind) {
        @Override
        public String toString() {
            return function + ":" + call + "=" + kind;
        }
    }

    /**
     * A life with a fault, and one after it; the first one's failures, nothing if it had ended
     * before the call that was to fail, as may be where time decides how often a function is
     * called.
     */
    private Optional<List<Life.Failure>> liveWith(
            Fault fault, Mode mode, Duration operationTimeout, boolean leavesNothing) {
        Map<String, Long> before = controls.live();
        controls.forget();
        controls.inject(fault.toString());
        long start = System.nanoTime();
        List<Life.Failure> failures = live(mode, operationTimeout);
        Duration took = Duration.ofNanos(System.nanoTime() - start);
        List<String> misuse = controls.misuse();
        boolean happened = controls.calls(fault.function()) >= fault.call();
        controls.forget();

        assertThat(misuse).as("misuse after %s", describe(failures)).isEmpty();
        assertThat(failures)
                .allSatisfy(failure ->
                        assertThat(failure.cause()).isInstanceOf(CollectiveException.class));
        assertThat(took)
                .as("how long it took to fail: %s", describe(failures))
                .isLessThan(TOLD_WITHIN);
        if (leavesNothing) {
            EmulatorExtension.requireLive(controls, before, fault.toString());
        }
        requireFaultless(mode);
        if (!happened) {
            assertThat(failures).as("failures of a life in which nothing has failed").isEmpty();
            return Optional.empty();
        }
        return Optional.of(failures);
    }

    private static String describe(List<Life.Failure> failures) {
        StringBuilder text = new StringBuilder();
        failures.forEach(failure ->
                text.append("\n  ").append(failure.phase()).append(": ").append(failure.cause()));
        return text.toString();
    }

    @TestFactory
    List<DynamicTest> code() {
        return perCall("code", FUNCTIONS, this::code);
    }

    private void code(Mode mode, String function, long call) {
        int code = function.startsWith("nccl") ? NCCL_CODE : CUDA_CODE;
        boolean release = RELEASES.contains(function);
        Fault fault = new Fault(function, call, "code:" + code);
        Optional<List<Life.Failure>> failures = liveWith(fault, mode, LONG_TIMEOUT, !release);

        if (failures.isEmpty()
                || release
                || (SPARED.contains(function) && failures.get().isEmpty())) {
            return;
        }
        assertThat(failures.get())
                .as("who tells of %s's code %d", function, code)
                .anySatisfy(failure -> {
                    NativeCallException cause = named(failure.cause(), function);
                    assertThat(cause.code()).isEqualTo(code);
                    assertThat(cause.getMessage())
                            .contains(function)
                            .contains(Integer.toString(code))
                            .containsPattern(
                                    function.startsWith("nccl") ? "rank|group|id" : "device");
                });
    }

    /** The exception itself or one of its causes, if it is about a function. */
    private static NativeCallException named(Throwable failure, String function) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof NativeCallException call && call.function().equals(function)) {
                return call;
            }
        }
        throw new AssertionError(failure + " does not come from " + function, failure);
    }

    @TestFactory
    List<DynamicTest> hang() {
        return perCall("hang", HANGING, this::hang);
    }

    private void hang(Mode mode, String function, long call) {
        liveWith(new Fault(function, call, "hang"), mode, SHORT_TIMEOUT, true)
                .ifPresent(failures ->
                        assertThat(failures)
                                .as("who tells that %s did not end", function)
                                .anySatisfy(failure ->
                                        assertThat(failure.cause())
                                                .isInstanceOf(CollectiveTimeoutException.class)));
    }

    /** What runs when a rank's communicator gets an error later, and what its peer is told. */
    private static final List<String> OPERATIONS = List.of("ncclAllReduce", "ncclSend", "ncclRecv");

    @TestFactory
    List<DynamicTest> asynchronousError() {
        String kind = "async:" + NCCL_REMOTE_ERROR;
        return perCall(
                kind,
                OPERATIONS,
                (mode, function, call) ->
                        liveWith(new Fault(function, call, kind), mode, LONG_TIMEOUT, true)
                                .ifPresent(failures ->
                                        assertThat(failures)
                                                .anySatisfy(failure -> {
                                                    assertThat(failure.cause())
                                                            .hasMessageContaining("ncclRemoteError")
                                                            .hasMessageContaining("rank");
                                                    requireRecreate(failure);
                                                })));
    }

    @TestFactory
    List<DynamicTest> peerLost() {
        return perCall(
                "lost",
                OPERATIONS,
                (mode, function, call) ->
                        liveWith(new Fault(function, call, "lost"), mode, LONG_TIMEOUT, true)
                                .ifPresent(failures ->
                                        assertThat(failures)
                                                .anySatisfy(FaultTest::requireRecreate)));
    }

    private static void requireRecreate(Life.Failure failure) {
        assertThat(((CollectiveException) failure.cause()).recovery())
                .isEqualTo(CollectiveException.Recovery.RECREATE_COMMUNICATOR);
    }

    /** Slow is not wrong. */
    @TestFactory
    List<DynamicTest> delay() {
        String kind = "delay:20";
        return perCall(
                kind,
                FUNCTIONS,
                (mode, function, call) ->
                        liveWith(new Fault(function, call, kind), mode, LONG_TIMEOUT, true)
                                .ifPresent(failures -> assertThat(failures).isEmpty()));
    }

    /** What to do about each of NCCL's codes is part of the message. */
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 5, 6})
    void eachCodeHasItsHint(int code) {
        controls.inject("ncclCommInitRankConfig=code:" + code);

        assertThatThrownBy(() -> backend.createLocal(2, CONFIG))
                .isInstanceOfSatisfying(
                        NativeCallException.class,
                        e -> {
                            assertThat(e.function()).isEqualTo("ncclCommInitRankConfig");
                            assertThat(e.code()).isEqualTo(code);
                            assertThat(e.recovery()).isNotNull();
                        })
                .hasMessageContaining(HINTS.get(code));
        controls.forget();
        requireFaultless(Mode.BLOCKING);
    }

    /** Nothing can be done about it but to say so in time. */
    @Test
    void anAbortThatDoesNotReturnIsReported() {
        List<Communicator> communicators = backend.createLocal(2, CONFIG);
        controls.inject("ncclCommAbort=hang");
        long start = System.nanoTime();

        assertThatThrownBy(() -> communicators.getFirst().abort(Duration.ofMillis(700)))
                .isInstanceOf(CollectiveTimeoutException.class)
                .hasMessageContaining("abort")
                .hasMessageContaining("rank 0");

        assertThat(Duration.ofNanos(System.nanoTime() - start)).isLessThan(Duration.ofSeconds(3));
        controls.forget();
        communicators.get(1).abort(Duration.ofSeconds(5));
        requireFaultless(Mode.BLOCKING);
    }
}
