package org.nccl4j.hardware;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.bindings.NativeLibrary;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.RecordedGroup;

/** What an operation calls and allocates, counted by stub libraries that return at once. */
final class CallCountTest {
    private static final int CALLS = 20_000;

    /** The watchdog's question, from a thread of its own; a non-blocking call's too. */
    private static final String STATE = "ncclCommGetAsyncError";

    private static MethodHandle ncclCalls;
    private static MethodHandle cudaCalls;
    private static StubRanks blocking;
    private static StubRanks nonBlocking;

    @BeforeAll
    static void load() {
        EmulatorLibraries.of("stub").select();
        FunctionDescriptor counter = FunctionDescriptor.of(JAVA_LONG, ADDRESS);
        ncclCalls = NativeLibrary.NCCL.function("nccl4j_stub_calls", counter);
        cudaCalls = NativeLibrary.CUDA_RUNTIME.function("cuda_stub_calls", counter);
        Backend backend = Backends.named("nccl");
        blocking = StubRanks.open(backend, StubRanks.RANKS, CommunicatorConfig.defaults());
        nonBlocking =
                StubRanks.open(
                        backend,
                        StubRanks.RANKS,
                        CommunicatorConfig.defaults().withBlocking(false));
    }

    @AfterAll
    static void close() {
        if (blocking != null) {
            blocking.close();
        }
        if (nonBlocking != null) {
            nonBlocking.close();
        }
    }

    private static long calls(MethodHandle counter, String function) {
        try (Arena arena = Arena.ofConfined()) {
            return (long) counter.invokeExact(arena.allocateFrom(function));
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    /** All but the watchdog's, which goes on calling while they are counted. */
    private static long ncclCalls() {
        long state = calls(ncclCalls, STATE);
        while (true) {
            long all = calls(ncclCalls, "");
            long stateAfter = calls(ncclCalls, STATE);
            if (stateAfter == state) {
                return all - state;
            }
            state = stateAfter;
        }
    }

    static Stream<StubRanks.Case> operations() {
        return StubRanks.operations();
    }

    @ParameterizedTest
    @MethodSource("operations")
    void anOperationIsOneCallOfNcclAndNoneOfCuda(StubRanks.Case each) {
        long cudaBefore = calls(cudaCalls, "");
        long allBefore = ncclCalls();
        long before = calls(ncclCalls, each.function());
        long startNanos = System.nanoTime();
        for (int i = 0; i < CALLS; i++) {
            blocking.enqueue(each.operation());
        }

        assertThat(calls(ncclCalls, each.function()) - before).isEqualTo(CALLS);
        assertThat(ncclCalls() - allBefore).isEqualTo(CALLS);
        // Markers, and the watchdog's looks at them.
        assertThat(calls(cudaCalls, "") - cudaBefore).isLessThan(atMost(startNanos));
    }

    @ParameterizedTest
    @MethodSource("operations")
    void aNonBlockingOperationAsksOnceWhetherItIsDone(StubRanks.Case each) {
        long allBefore = ncclCalls();
        long askedBefore = calls(ncclCalls, STATE);
        long startNanos = System.nanoTime();
        for (int i = 0; i < CALLS; i++) {
            nonBlocking.enqueue(each.operation());
        }

        assertThat(ncclCalls() - allBefore).isEqualTo(CALLS);
        assertThat(calls(ncclCalls, STATE) - askedBefore)
                .isBetween((long) CALLS, CALLS + atMost(startNanos));
    }

    @Test
    void aRecordedGroupIsItsOperationsAndABracket() {
        RecordedGroup group = blocking.group();
        long cudaBefore = calls(cudaCalls, "");
        long before = ncclCalls();
        long startNanos = System.nanoTime();
        for (int i = 0; i < CALLS; i++) {
            group.issue();
        }

        assertThat(ncclCalls() - before).isEqualTo((StubRanks.RANKS + 2L) * CALLS);
        assertThat(calls(cudaCalls, "") - cudaBefore).isLessThan(atMost(startNanos));
    }

    @Test
    void aRecordedGroupOfOneOperationNeedsNoBracket() {
        RecordedGroup group =
                blocking.backend()
                        .record(one ->
                                one.on(blocking.communicators().getFirst())
                                        .barrier(blocking.streams().getFirst()));
        long before = ncclCalls();
        for (int i = 0; i < CALLS; i++) {
            group.issue();
        }

        assertThat(ncclCalls() - before).isEqualTo(CALLS);
    }

    /** The watchdog looks at most every 5 ms, and what it looks at makes a few calls. */
    private static long atMost(long startNanos) {
        return 100 + (System.nanoTime() - startNanos) / 5_000_000 * 20;
    }

    /**
     * In a JVM of its own, which has no escape analysis: a measurement after C2 would depend on
     * what C2 has made of it, and on the tests before. The JDK's linker needs nothing either.
     */
    @Test
    void nothingIsAllocated(@TempDir Path folder) throws IOException {
        Path file = folder.resolve("allocated");
        try (ChildJvm child =
                ChildJvm.start(
                        folder,
                        "allocations",
                        EmulatorLibraries.of("stub"),
                        Map.of(),
                        AllocationCount.class,
                        file.toString())) {
            child.awaitSuccess(Duration.ofSeconds(50));
        }
        List<String> lines = Files.readAllLines(file);

        assertThat(lines).hasSizeGreaterThan(60);
        assertThat(lines)
                .as("bytes per call")
                .filteredOn(line -> !line.startsWith("0.0\t"))
                .singleElement()
                // Else it would not see allocations that are there: four segments.
                .isEqualTo("160.0\t" + AllocationCount.BY_SEGMENTS);
    }
}
