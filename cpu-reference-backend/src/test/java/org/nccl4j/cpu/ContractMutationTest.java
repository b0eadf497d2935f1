package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.platform.testkit.engine.EngineTestKit;
import org.junit.platform.testkit.engine.Events;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;
import org.nccl4j.contract.HopOrder;

/** The contract suite fails on a backend that breaks the contract: each mutant does in one way. */
final class ContractMutationTest {

    /** What the suite that is being run is held against; tests of one class run one by one. */
    private static Mutant current;

    /**
     * A backend with a flaw.
     *
     * @param name the flaw
     * @param caughtBy how the ids of those cases start that must notice it
     * @param order the order that the backend claims to reduce in
     * @param mutation brings it in
     * @param capabilities what the backend claims to be able to do
     */
    private record Mutant(
            String name,
            String caughtBy,
            HopOrder order,
            Consumer<MutatedBackend.Call> mutation,
            Capabilities capabilities) {
        @Override
        public String toString() {
            return name;
        }
    }

    private static Mutant mutant(
            String name, String caughtBy, Consumer<MutatedBackend.Call> mutation) {
        return new Mutant(name, caughtBy, HopOrder.ring(), mutation, CpuBackend.CAPABILITIES);
    }

    static Stream<Mutant> flaws() {
        return Stream.of(
                mutant(
                        "last-byte-wrong",
                        "reduceScatter/INT32/sum/n=3",
                        call -> {
                            call.proceed();
                            long bytes = call.first(Long.class) * 4;
                            if (bytes > 0 && call.caller().rank() == 2) {
                                overwrite(call, recv(call).slice(bytes - 1, 1));
                            }
                        }),
                mutant(
                        "tail-dropped",
                        "allReduce/FLOAT32/max/n=2",
                        call -> {
                            long count = call.first(Long.class);
                            call.arguments()[2] = count > 1 ? count - 1 : count;
                            call.proceed();
                        }),
                mutant(
                        "byte-before-the-output",
                        "allGather/UINT8/n=2",
                        call -> {
                            call.proceed();
                            overwrite(call, byteAt(recv(call).address() - 1));
                        }),
                mutant(
                        "byte-behind-the-output",
                        "scatter/INT64/n=2",
                        call -> {
                            call.proceed();
                            DeviceBuffer recv = recv(call);
                            overwrite(call, byteAt(recv.address() + recv.sizeBytes()));
                        }),
                mutant(
                        "other-ranks-buffer-written",
                        "reduce/UINT8/sum/n=2",
                        call -> {
                            call.proceed();
                            boolean isRoot = call.caller().rank() == call.first(Integer.class);
                            if (!isRoot && call.arguments()[1] instanceof DeviceBuffer recv) {
                                overwrite(call, recv);
                            }
                        }),
                mutant(
                        "input-changed",
                        "allToAll/FLOAT16/n=3",
                        call -> {
                            call.proceed();
                            overwrite(call, call.first(DeviceBuffer.class));
                        }),
                mutant(
                        "gap-written",
                        "allGatherV/INT8/n=4",
                        call -> {
                            call.proceed();
                            BlockLayout blocks = call.first(BlockLayout.class);
                            for (int r = 0; r < blocks.ranks(); r++) {
                                long gap = blocks.offsetElements(r) - 1;
                                boolean used = false;
                                for (int other = 0; other < blocks.ranks(); other++) {
                                    long start = blocks.offsetElements(other);
                                    used |=
                                            gap >= start
                                                    && gap < start + blocks.countElements(other);
                                }
                                if (gap >= 0 && !used && gap < recv(call).sizeBytes()) {
                                    overwrite(call, recv(call).slice(gap, 1));
                                }
                            }
                        }),
                mutant("nothing-done", "gather/INT32/n=2", call -> {}),
                mutant(
                        "average-not-divided",
                        "allReduce/INT32/avg/n=3",
                        call -> {
                            call.arguments()[4] = ReduceOp.SUM;
                            call.proceed();
                        }),
                mutant(
                        "scalar-forgotten",
                        "reduceScatterV/BFLOAT16/preMulSum/n=3",
                        call -> {
                            call.arguments()[4] = ReduceOp.SUM;
                            call.proceed();
                        }),
                mutant(
                        "root-ignored",
                        "broadcast/INT8/n=3",
                        call -> {
                            call.arguments()[4] = 0;
                            call.proceed();
                        }),
                mutant(
                        "count-zero-not-numbered",
                        "V8-",
                        call -> {
                            boolean zero = call.first(Long.class) == 0;
                            if (!zero || call.caller().rank() > 0) {
                                call.proceed();
                            }
                        }),
                new Mutant(
                        "another-order-than-claimed",
                        "V12-",
                        (ranks, chunk) -> {
                            int[] order = HopOrder.ring().ranksInOrder(ranks, chunk);
                            int last = order[ranks - 1];
                            order[ranks - 1] = order[0];
                            order[0] = last;
                            return order;
                        },
                        MutatedBackend.Call::proceed,
                        CpuBackend.CAPABILITIES),
                mutant(
                        "complete-too-early",
                        "stream-nothing-completes-early",
                        call -> {
                            // The stream that the caller looks at stays empty.
                            Object[] arguments = call.arguments();
                            arguments[arguments.length - 1] = call.caller().device().createStream();
                            call.proceed();
                        }),
                mutant(
                        "enqueue-waits",
                        "stream-enqueue-returns-at-once",
                        call -> {
                            call.proceed();
                            waitFor(call, Duration.ofMillis(20));
                        }),
                mutant(
                        "enqueue-mostly-waits",
                        "stream-enqueue-returns-at-once",
                        call -> {
                            call.proceed();
                            if (ThreadLocalRandom.current().nextInt(8) > 0) {
                                waitFor(call, Duration.ofMillis(20));
                            }
                        }),
                mutant(
                        "last-enqueue-does-the-work",
                        "stream-enqueue-with-many-ranks",
                        call -> {
                            call.proceed();
                            if (call.caller().rank() == call.caller().size() - 1) {
                                LockSupport.parkNanos(Duration.ofMillis(12).toNanos());
                            }
                        }),
                mutant(
                        "null-not-checked",
                        "V17-null-arguments",
                        call -> {
                            Objects.requireNonNull(call.arguments()[call.arguments().length - 1]);
                            call.proceed();
                        }),
                mutant(
                        "bad-argument-swallowed",
                        "V17-bad-arguments",
                        call -> {
                            try {
                                call.proceed();
                            } catch (InvalidArgumentException e) {
                                assertThat(e).hasNoCause();
                            }
                        }),
                mutant(
                        "mismatch-hidden",
                        "V11-",
                        call -> {
                            // Both ranks agree on the smaller count, and the larger one's tail is
                            // wrong.
                            call.arguments()[2] = Math.min(1023, call.first(Long.class));
                            call.proceed();
                        }));
    }

    private static DeviceBuffer recv(MutatedBackend.Call call) {
        return call.at(1, DeviceBuffer.class).orElseThrow();
    }

    private static void waitFor(MutatedBackend.Call call, Duration timeout) {
        try {
            call.first(DeviceStream.class).synchronize(timeout);
        } catch (CollectiveTimeoutException e) {
            assertThat(e).hasMessageContaining("stream");
        }
    }

    private static void overwrite(MutatedBackend.Call call, DeviceBuffer buffer) {
        call.first(DeviceStream.class).fill(buffer, (byte) 0x77);
    }

    /** A byte that the operation was not given. */
    @SuppressWarnings("restricted")
    private static DeviceBuffer byteAt(long address) {
        return DeviceBuffer.wrap(MemorySegment.ofAddress(address).reinterpret(1));
    }

    @ParameterizedTest
    @MethodSource
    void flaws(Mutant mutant) {
        Events tests = run(mutant);

        assertThat(tests.failed().count()).as(mutant.name() + " went unnoticed").isPositive();
    }

    static Stream<Mutant> soundBackendsPass() {
        return Stream.of("allReduce/INT32/", "reduce/UINT8/", "V8-", "V17-", "stream-")
                .map(cases -> mutant("none", cases, MutatedBackend.Call::proceed));
    }

    /** What the mutants fail at is their flaw, and not that they are in between. */
    @ParameterizedTest
    @MethodSource
    void soundBackendsPass(Mutant sound) {
        Events tests = run(sound);

        assertThat(tests.failed().count()).isZero();
        assertThat(tests.succeeded().count()).isPositive();
    }

    static Stream<Mutant> lesserBackendsAreJudgedByTheirClaims() {
        Capabilities full = CpuBackend.CAPABILITIES;
        Capabilities lesser =
                full.withTypes(Set.of(DataType.INT32, DataType.FLOAT32))
                        .withReductions(Set.of(ReduceOp.Predefined.SUM))
                        .withPreMulSum(false)
                        .withMismatchDetection(false)
                        .withTrafficCounters(false)
                        .withFirstUseMayWait(true)
                        .withPeerFailureDetection(false);
        return Stream.of("allReduce/", "rank-leaves", "values-", "mismatch-count", "abort-from")
                .map(cases ->
                        new Mutant(
                                "lesser",
                                cases,
                                HopOrder.ring(),
                                MutatedBackend.Call::proceed,
                                lesser));
    }

    /** What a backend says it cannot do is unsupported or weaker, and the rest is held to. */
    @ParameterizedTest
    @MethodSource
    void lesserBackendsAreJudgedByTheirClaims(Mutant lesser) {
        Events tests = run(lesser);

        assertThat(tests.failed().count()).isZero();
        assertThat(tests.succeeded().count() + tests.aborted().count()).isPositive();
        if (lesser.caughtBy().equals("allReduce/")) {
            // Two types of small sizes, and one of the large ones.
            assertThat(tests.succeeded().count()).isEqualTo(3);
        }
    }

    private static Events run(Mutant mutant) {
        current = mutant;
        return EngineTestKit.engine("junit-jupiter")
                .selectors(selectClass(Suite.class))
                .execute()
                .testEvents();
    }

    /** Found by the test kit alone: the build looks for no nested classes. */
    static final class Suite extends ContractSuite {
        private final Mutant mutant = current;

        @Override
        protected BackendUnderTest backendUnderTest() {
            Backend backend =
                    MutatedBackend.of(
                            new CpuBackend(new ReferenceEngine(), CpuDevices.SHARED),
                            mutant.mutation(),
                            mutant.capabilities());
            return new BackendUnderTest() {
                @Override
                public Backend backend() {
                    return backend;
                }

                @Override
                public String label() {
                    return "mutant/" + mutant.name();
                }

                @Override
                public Optional<HopOrder> hopOrder() {
                    return Optional.of(mutant.order());
                }
            };
        }

        @Override
        protected boolean isReported() {
            return false;
        }

        @Override
        protected boolean selects(String id) {
            return id.startsWith(mutant.caughtBy());
        }
    }
}
