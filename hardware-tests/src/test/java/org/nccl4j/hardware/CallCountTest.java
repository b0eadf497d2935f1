package org.nccl4j.hardware;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.invoke.MethodHandle;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.bindings.NativeLibrary;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.ReduceOp;

/** What an operation calls and allocates, counted by stub libraries that return at once. */
final class CallCountTest {
    private static final int RANKS = 2;
    private static final int CALLS = 20_000;
    private static final long COUNT_ELEMENTS = 256;
    private static final long SIZE_BYTES = COUNT_ELEMENTS * Float.BYTES;

    /** The watchdog's question, from a thread of its own; a non-blocking call's too. */
    private static final String STATE = "ncclCommGetAsyncError";

    private static final com.sun.management.ThreadMXBean THREADS =
            (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();

    private static MethodHandle ncclCalls;
    private static MethodHandle cudaCalls;
    private static Ranks blocking;
    private static Ranks nonBlocking;

    /** One thread's ranks, with a stream each, and one buffer that holds all that is needed. */
    private record Ranks(
            Backend backend,
            List<Communicator> communicators,
            List<DeviceStream> streams,
            List<DeviceBuffer> whole,
            List<DeviceBuffer> part) {
        static Ranks open(CommunicatorConfig config) {
            Backend backend = Backends.named("nccl");
            List<Communicator> communicators = backend.createLocal(RANKS, config);
            List<DeviceBuffer> whole =
                    communicators.stream()
                            .map(rank -> rank.device().allocate(RANKS * 2 * SIZE_BYTES))
                            .toList();
            return new Ranks(
                    backend,
                    communicators,
                    communicators.stream().map(rank -> rank.device().createStream()).toList(),
                    whole.stream().map(all -> all.slice(0, RANKS * SIZE_BYTES)).toList(),
                    whole.stream()
                            .map(all -> all.slice(RANKS * SIZE_BYTES, RANKS * SIZE_BYTES))
                            .toList());
        }

        RecordedGroup group() {
            return backend.record(group -> {
                for (int rank = 0; rank < RANKS; rank++) {
                    group.on(communicators.get(rank))
                            .allReduce(
                                    whole.get(rank),
                                    part.get(rank),
                                    COUNT_ELEMENTS,
                                    DataType.FLOAT32,
                                    ReduceOp.SUM,
                                    streams.get(rank));
                }
            });
        }

        void close() {
            backend.closeAll(communicators);
            streams.forEach(DeviceStream::close);
            whole.forEach(DeviceBuffer::close);
        }
    }

    /** Enqueues one operation of rank 0. */
    private interface Operation {
        void enqueue(Communicator rank, DeviceBuffer send, DeviceBuffer recv, DeviceStream stream);
    }

    /** An operation and the function of NCCL that it is. */
    private record Case(String function, Operation operation) {
        @Override
        public String toString() {
            return function;
        }
    }

    @BeforeAll
    static void load() {
        EmulatorLibraries.of("stub").select();
        FunctionDescriptor counter = FunctionDescriptor.of(JAVA_LONG, ADDRESS);
        ncclCalls = NativeLibrary.NCCL.function("nccl4j_stub_calls", counter);
        cudaCalls = NativeLibrary.CUDA_RUNTIME.function("cuda_stub_calls", counter);
        blocking = Ranks.open(CommunicatorConfig.defaults());
        nonBlocking = Ranks.open(CommunicatorConfig.defaults().withBlocking(false));
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

    static Stream<Case> operations() {
        DataType type = DataType.FLOAT32;
        ReduceOp sum = ReduceOp.SUM;
        long n = COUNT_ELEMENTS;
        return Stream.of(
                new Case("ncclAllReduce", (c, s, r, q) -> c.allReduce(s, r, n, type, sum, q)),
                new Case("ncclReduce", (c, s, r, q) -> c.reduce(s, r, n, type, sum, 0, q)),
                new Case("ncclBroadcast", (c, s, r, q) -> c.broadcast(s, r, n, type, 0, q)),
                new Case("ncclAllGather", (c, s, r, q) -> c.allGather(s, r, n, type, q)),
                new Case(
                        "ncclReduceScatter",
                        (c, s, r, q) -> c.reduceScatter(s, r, n, type, sum, q)),
                new Case("ncclGather", (c, s, r, q) -> c.gather(s, r, n, type, 0, q)),
                new Case("ncclScatter", (c, s, r, q) -> c.scatter(s, r, n, type, 0, q)),
                new Case("ncclAlltoAll", (c, s, r, q) -> c.allToAll(s, r, n, type, q)),
                new Case("ncclSend", (c, s, r, q) -> c.send(s, n, type, 1, q)),
                new Case("ncclRecv", (c, s, r, q) -> c.recv(r, n, type, 1, q)),
                // NCCL has none: an all-reduce of one element.
                new Case("ncclAllReduce", (c, s, r, q) -> c.barrier(q)));
    }

    private static void enqueue(Ranks ranks, Operation operation) {
        operation.enqueue(
                ranks.communicators().getFirst(),
                ranks.whole().getFirst(),
                ranks.part().getFirst(),
                ranks.streams().getFirst());
    }

    @ParameterizedTest
    @MethodSource("operations")
    void anOperationIsOneCallOfNcclAndNoneOfCuda(Case each) {
        long cudaBefore = calls(cudaCalls, "");
        long allBefore = ncclCalls();
        long before = calls(ncclCalls, each.function());
        long startNanos = System.nanoTime();
        for (int i = 0; i < CALLS; i++) {
            enqueue(blocking, each.operation());
        }

        assertThat(calls(ncclCalls, each.function()) - before).isEqualTo(CALLS);
        assertThat(ncclCalls() - allBefore).isEqualTo(CALLS);
        // Markers, and the watchdog's looks at them.
        assertThat(calls(cudaCalls, "") - cudaBefore).isLessThan(atMost(startNanos));
    }

    @ParameterizedTest
    @MethodSource("operations")
    void aNonBlockingOperationAsksOnceWhetherItIsDone(Case each) {
        long allBefore = ncclCalls();
        long askedBefore = calls(ncclCalls, STATE);
        long startNanos = System.nanoTime();
        for (int i = 0; i < CALLS; i++) {
            enqueue(nonBlocking, each.operation());
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

        assertThat(ncclCalls() - before).isEqualTo((RANKS + 2L) * CALLS);
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

    @ParameterizedTest
    @MethodSource("operations")
    void anOperationAllocatesNothing(Case each) {
        allocatesNothing(() -> enqueue(blocking, each.operation()));
    }

    @ParameterizedTest
    @MethodSource("operations")
    void aNonBlockingOperationAllocatesNothing(Case each) {
        allocatesNothing(() -> enqueue(nonBlocking, each.operation()));
    }

    @Test
    void aRecordedGroupAllocatesNothing() {
        allocatesNothing(blocking.group()::issue);
        allocatesNothing(nonBlocking.group()::issue);
    }

    /** In steady state: until it is compiled a call makes objects that then disappear. */
    private static void allocatesNothing(Runnable call) {
        long bytes;
        do { // bounded by the test's deadline
            long before = THREADS.getCurrentThreadAllocatedBytes();
            for (int i = 0; i < CALLS; i++) {
                call.run();
            }
            bytes = THREADS.getCurrentThreadAllocatedBytes() - before;
        } while (bytes > 0);
        assertThat(bytes).isZero();
    }
}
