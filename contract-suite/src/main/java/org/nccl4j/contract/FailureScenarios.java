package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorAbortedException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.MismatchException;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.RankFailedException;
import org.nccl4j.collectives.ReduceOp;

/** Ranks that disagree, stay away, leave, give up or break: everyone is told, nobody hangs. */
final class FailureScenarios {
    private static final DataType TYPE = DataType.INT32;
    private static final Duration OPERATION_TIMEOUT = Duration.ofSeconds(1);

    /** Room for a loaded machine. */
    private static final Duration TOLD_WITHIN = Duration.ofSeconds(10);

    private FailureScenarios() {}

    static List<Scenario> all() {
        List<Scenario> scenarios = new ArrayList<>(mismatches());
        scenarios.addAll(
                List.of(
                        new Scenario("V10-all-to-all-v-pair-mismatch", FailureScenarios::pairs),
                        new Scenario("V11-count-mismatch", FailureScenarios::counts),
                        new Scenario("overlap-between-ranks", FailureScenarios::overlap),
                        new Scenario("timeout-names-who-is-absent", FailureScenarios::timeout),
                        new Scenario("timeout-of-a-split", FailureScenarios::splitTimeout),
                        new Scenario("timeout-names-the-oldest", FailureScenarios::oldest),
                        new Scenario("timeout-not-while-idle", FailureScenarios::idle),
                        new Scenario("timeout-counts-from-the-head", FailureScenarios::fromTheHead),
                        new Scenario("timeout-kept-until-abort", FailureScenarios::keptFailed),
                        new Scenario("L3-send-before-receive", FailureScenarios::crosswise),
                        new Scenario("abort-from-another-thread", FailureScenarios::abort),
                        new Scenario("abort-while-data-moves", FailureScenarios::abortMoving),
                        new Scenario("abort-spares-other-communicators", FailureScenarios::spares),
                        new Scenario("rank-leaves-before-it-is-needed", FailureScenarios::leaves),
                        new Scenario("rank-leaves-a-receiver", FailureScenarios::leavesReceiver),
                        new Scenario("rank-leaves-after-it-was-needed", FailureScenarios::left),
                        new Scenario("rank-breaks-its-memory", FailureScenarios::breaks),
                        new Scenario("L4-close-on-one-rank", FailureScenarios::closeOne),
                        new Scenario("L4-close-twice", FailureScenarios::closeTwice),
                        new Scenario("L4-close-with-work-pending", FailureScenarios::closePending),
                        new Scenario("L4-close-waits-for-work", FailureScenarios::closeWaits),
                        new Scenario("L4-close-from-two-threads", FailureScenarios::closeFromTwo),
                        new Scenario("L4-drop-without-close", FailureScenarios::drop)));
        return List.copyOf(scenarios);
    }

    /** Each rank's failure from enqueuing and waiting. */
    private static List<CollectiveException> failures(
            RankSet ranks, List<Integer> some, Consumer<Rank> enqueue) {
        CollectiveException[] failures = new CollectiveException[ranks.size()];
        long start = System.nanoTime();
        ranks.on(
                some,
                rank ->
                        failures[rank.rank()] =
                                Expect.failure(() -> {
                                    enqueue.accept(rank);
                                    rank.stream().synchronize(TOLD_WITHIN);
                                }));
        assertThat(Duration.ofNanos(System.nanoTime() - start)).isLessThan(TOLD_WITHIN);
        return some.stream().map(r -> failures[r]).toList();
    }

    private static List<Integer> everyRank(RankSet ranks) {
        return ranks.ranks().stream().map(Rank::rank).toList();
    }

    /** After a failure: refused by the cause, streams as good as new, a new communicator works. */
    private static void recovers(
            Stage stage, RankSet ranks, Class<? extends CollectiveException> cause) {
        ranks.onEvery(rank -> {
            CollectiveException refused = Expect.failure(() -> new Summands(rank, 1).enqueue());
            assertThat(refused).isInstanceOf(cause);
            assertThat(refused.recovery())
                    .isEqualTo(CollectiveException.Recovery.RECREATE_COMMUNICATOR);
        });
        awaitAborted(ranks);
        ranks.onEvery(rank -> {
            forget(rank);
            DeviceBuffer buffer = rank.newBuffer(4);
            rank.stream().fill(buffer, (byte) 9);
            rank.synchronize();
            assertThat(rank.read(buffer)).containsOnly(9);
        });
        RankSet again = stage.ranks(ranks.size());
        again.onEvery(
                rank -> assertThat(new Summands(rank, 2).sum()).containsExactly(2 * ranks.size()));
    }

    /** Has the stream throw what it may still remember. */
    private static void forget(Rank rank) {
        try {
            rank.synchronize();
        } catch (CollectiveException e) {
            assertThat(e.recovery()).isEqualTo(CollectiveException.Recovery.RECREATE_COMMUNICATOR);
        }
    }

    private static void awaitAborted(RankSet ranks) {
        long end = System.nanoTime() + TOLD_WITHIN.toNanos();
        for (Rank rank : ranks.ranks()) {
            CommunicatorStatus status = rank.communicator().status();
            while (status instanceof CommunicatorStatus.Failed && System.nanoTime() < end) {
                LockSupport.parkNanos(1_000_000);
                status = rank.communicator().status();
            }
            assertThat(status)
                    .as("rank %d", rank.rank())
                    .isInstanceOfAny(
                            CommunicatorStatus.Aborted.class, CommunicatorStatus.Closed.class);
        }
    }

    /**
     * What one rank does and the others do not, with what the message must say.
     *
     * @param name what differs
     * @param most what ranks 0 and 2 do
     * @param odd what rank 1 does
     * @param says parts of the message, in any case of letters
     * @param hangs whether ranks that are not told of it wait for each other
     */
    private record Difference(
            String name,
            Consumer<Moves> most,
            Consumer<Moves> odd,
            List<String> says,
            boolean hangs) {
        private Difference(
                String name, Consumer<Moves> most, Consumer<Moves> odd, List<String> says) {
            this(name, most, odd, says, true);
        }
    }

    /** Short forms of operations on eight elements. */
    private static final class Moves {
        private final Rank rank;
        private final DeviceBuffer a;
        private final DeviceBuffer b;

        private Moves(Rank rank) {
            this.rank = rank;
            this.a = rank.newBuffer(256);
            this.b = rank.newBuffer(256);
        }

        private Communicator on() {
            return rank.communicator();
        }

        private void allReduce(long count, DataType type, ReduceOp op) {
            on().allReduce(a, b, count, type, op, rank.stream());
        }

        private void reduceScatter(long count) {
            on().reduceScatter(a, b, count, TYPE, ReduceOp.SUM, rank.stream());
        }

        private void reduce(int root) {
            on().reduce(a, b, 4, TYPE, ReduceOp.SUM, root, rank.stream());
        }

        private void broadcast(int root, DataType type) {
            on().broadcast(a, b, 4, type, root, rank.stream());
        }

        private void allGatherV(long... counts) {
            on().allGatherV(a, b, BlockLayout.packed(counts), TYPE, rank.stream());
        }

        private void barrier() {
            on().barrier(rank.stream());
        }
    }

    private static List<Scenario> mismatches() {
        ReduceOp sum = ReduceOp.SUM;
        List<Difference> differences =
                List.of(
                        new Difference(
                                "operation",
                                m -> m.allReduce(4, TYPE, sum),
                                m -> m.reduceScatter(4),
                                List.of("allReduce", "reduceScatter")),
                        new Difference(
                                "barrier",
                                Moves::barrier,
                                m -> m.allReduce(4, TYPE, sum),
                                List.of("allReduce", "barrier")),
                        new Difference(
                                "count",
                                m -> m.allReduce(7, TYPE, sum),
                                m -> m.allReduce(6, TYPE, sum),
                                List.of("allReduce", "7", "6")),
                        new Difference(
                                "type",
                                m -> m.allReduce(4, DataType.FLOAT32, sum),
                                m -> m.allReduce(4, TYPE, sum),
                                List.of("allReduce", "float32", "int32")),
                        new Difference(
                                "reduction",
                                m -> m.allReduce(4, TYPE, sum),
                                m -> m.allReduce(4, TYPE, ReduceOp.MAX),
                                List.of("allReduce", "sum", "max")),
                        new Difference(
                                "scaled-reduction",
                                m -> m.allReduce(4, TYPE, sum),
                                m -> m.allReduce(4, TYPE, new ReduceOp.PreMulSum(TYPE, 3)),
                                List.of("allReduce", "sum", "preMulSum")),
                        new Difference(
                                "root",
                                m -> m.reduce(0),
                                m -> m.reduce(2),
                                List.of("reduce", "root")),
                        new Difference(
                                "broadcast-root",
                                m -> m.broadcast(1, TYPE),
                                m -> m.broadcast(2, TYPE),
                                List.of("broadcast", "root")),
                        new Difference(
                                "broadcast-type",
                                m -> m.broadcast(1, TYPE),
                                m -> m.broadcast(1, DataType.UINT32),
                                List.of("broadcast", "int32", "uint32")),
                        new Difference(
                                "layout",
                                m -> m.allGatherV(3, 4, 5),
                                m -> m.allGatherV(3, 5, 5),
                                List.of("allGatherV", "4", "5")),
                        new Difference(
                                "skipped-operation",
                                m -> {
                                    m.allReduce(0, TYPE, sum);
                                    m.allReduce(4, TYPE, sum);
                                },
                                m -> m.allReduce(4, TYPE, sum),
                                List.of("allReduce", "0", "4"),
                                false),
                        new Difference(
                                "order",
                                m -> {
                                    m.allReduce(4, TYPE, sum);
                                    m.reduceScatter(4);
                                },
                                m -> {
                                    m.reduceScatter(4);
                                    m.allReduce(4, TYPE, sum);
                                },
                                List.of("allReduce", "reduceScatter")));
        List<Scenario> scenarios = new ArrayList<>();
        for (Difference difference : differences) {
            scenarios.add(
                    new Scenario(
                            "mismatch-" + difference.name(), stage -> mismatch(stage, difference)));
        }
        scenarios.add(new Scenario("mismatch-send-and-recv", FailureScenarios::sendMismatch));
        return scenarios;
    }

    private static void mismatch(Stage stage, Difference difference) {
        if (!difference.hangs() && !stage.detectsMismatches()) {
            throw stage.unsupported("an operation of count 0 that others skip is not noticed");
        }
        RankSet ranks = stage.ranks(3, timeoutOfMismatches(stage));
        List<Moves> moves = ranks.ranks().stream().map(Moves::new).toList();
        List<CollectiveException> failures =
                failures(
                        ranks,
                        everyRank(ranks),
                        rank -> {
                            Consumer<Moves> call =
                                    rank.rank() == 1 ? difference.odd() : difference.most();
                            call.accept(moves.get(rank.rank()));
                        });
        told(stage, failures, difference.says());
        recovers(stage, ranks, expected(stage));
    }

    /** Mismatches are told at once, long before this. */
    private static Duration timeoutOfMismatches(Stage stage) {
        return stage.detectsMismatches() ? RankRunner.SYNCHRONIZE_TIMEOUT : OPERATION_TIMEOUT;
    }

    private static Class<? extends CollectiveException> expected(Stage stage) {
        return stage.detectsMismatches() ? MismatchException.class : CollectiveException.class;
    }

    private static void told(Stage stage, List<CollectiveException> failures, List<String> says) {
        for (CollectiveException failure : failures) {
            assertThat(failure).isInstanceOf(expected(stage));
            if (stage.detectsMismatches()) {
                assertThat(failure.getMessage()).containsPattern("\\b[Rr]anks? 1\\b|and 1\\b");
                for (String part : says) {
                    assertThat(failure.getMessage()).containsIgnoringCase(part);
                }
            }
        }
    }

    private static void sendMismatch(Stage stage) {
        RankSet ranks = stage.ranks(2, timeoutOfMismatches(stage));
        List<Moves> moves = ranks.ranks().stream().map(Moves::new).toList();
        List<CollectiveException> failures =
                failures(
                        ranks,
                        everyRank(ranks),
                        rank -> {
                            Moves m = moves.get(rank.rank());
                            if (rank.rank() == 0) {
                                m.on().send(m.a, 12, TYPE, 1, rank.stream());
                            } else {
                                m.on().recv(m.b, 13, TYPE, 0, rank.stream());
                            }
                        });
        told(stage, failures, List.of("send", "recv", "12", "13"));
        recovers(stage, ranks, expected(stage));
    }

    private static void pairs(Stage stage) {
        int wanted = 1_597_440;
        RankSet ranks = stage.ranks(3, timeoutOfMismatches(stage));
        Consumer<Rank> call =
                rank -> {
                    long[] none = new long[3];
                    long[] receive = new long[3];
                    if (rank.rank() == 1) {
                        receive[0] = wanted;
                    }
                    DeviceBuffer recv = rank.rank() == 1 ? rank.newBuffer(wanted) : null;
                    rank.communicator()
                            .allToAllV(
                                    null,
                                    recv,
                                    new AllToAllVPlan(
                                            BlockLayout.packed(none), BlockLayout.packed(receive)),
                                    DataType.UINT8,
                                    rank.stream());
                };
        List<CollectiveException> failures;
        if (stage.detectsMismatches()) {
            failures = failures(ranks, everyRank(ranks), call);
        } else {
            // The others have nothing to send or receive and need not wait.
            ranks.on(List.of(0, 2), call);
            failures = failures(ranks, List.of(1), call);
        }
        told(stage, failures, List.of("allToAllV", "rank 0", "rank 1", "1597440"));
        recovers(stage, ranks, expected(stage));
    }

    private static void counts(Stage stage) {
        RankSet ranks = stage.ranks(2, timeoutOfMismatches(stage));
        List<CollectiveException> failures =
                failures(
                        ranks,
                        everyRank(ranks),
                        rank -> {
                            DeviceBuffer send = rank.newBuffer(4096);
                            DeviceBuffer recv = rank.newBuffer(4096);
                            rank.communicator()
                                    .allReduce(
                                            send,
                                            recv,
                                            1024 - rank.rank(),
                                            TYPE,
                                            ReduceOp.SUM,
                                            rank.stream());
                        });
        told(stage, failures, List.of("allReduce", "rank 0", "rank 1", "1024", "1023"));
        recovers(stage, ranks, expected(stage));
    }

    /** Two ranks that are to receive into the same memory, or one into what another sends. */
    private static void overlap(Stage stage) {
        if (!stage.detectsOverlap()) {
            throw stage.unsupported("overlap between ranks is not noticed");
        }
        for (boolean sent : new boolean[] {false, true}) {
            RankSet ranks = stage.ranks(3);
            try (Arena arena = Arena.ofShared()) {
                DeviceBuffer shared = DeviceBuffer.wrap(arena.allocate(3 * 48, 64));
                List<CollectiveException> failures =
                        failures(
                                ranks,
                                everyRank(ranks),
                                rank -> {
                                    DeviceBuffer own = rank.newBuffer(4 * 12);
                                    DeviceBuffer slice = shared.slice(rank.rank() * 44L, 4 * 12);
                                    rank.communicator()
                                            .allReduce(
                                                    sent && rank.rank() == 1 ? slice : own,
                                                    sent && rank.rank() == 1 ? own : slice,
                                                    12,
                                                    TYPE,
                                                    ReduceOp.SUM,
                                                    rank.stream());
                                });
                for (CollectiveException failure : failures) {
                    assertThat(failure).isInstanceOf(InvalidArgumentException.class);
                    assertThat(failure.getMessage())
                            .contains("allReduce", "rank 0", "rank 1", "48", "4 bytes");
                }
                recovers(stage, ranks, InvalidArgumentException.class);
                assertThat(shared.hostSegment().toArray(ValueLayout.JAVA_BYTE)).containsOnly(0);
            }
        }
    }

    private static void timeout(Stage stage) {
        // Long enough for the ranks to meet on a loaded machine.
        Duration operationTimeout = OPERATION_TIMEOUT.multipliedBy(2);
        RankSet ranks = stage.ranks(3, operationTimeout);
        ranks.onEvery(rank -> assertThat(new Summands(rank, 1).sum()).containsExactly(3));
        long start = System.nanoTime();
        List<CollectiveException> failures =
                failures(ranks, List.of(0, 1), rank -> new Summands(rank, 1).enqueue());
        Duration took = Duration.ofNanos(System.nanoTime() - start);
        assertThat(took).isBetween(operationTimeout.minusMillis(100), TOLD_WITHIN);
        for (CollectiveException failure : failures) {
            assertThat(failure).isInstanceOf(CollectiveTimeoutException.class);
            assertThat(failure.recovery())
                    .isEqualTo(CollectiveException.Recovery.RECREATE_COMMUNICATOR);
            assertThat(failure.getMessage())
                    .contains("allReduce")
                    .containsPattern("\\b[Rr]anks? \\[?2\\b");
        }
        recovers(stage, ranks, CollectiveTimeoutException.class);
    }

    private static void splitTimeout(Stage stage) {
        RankSet ranks = stage.ranks(2, OPERATION_TIMEOUT);
        ranks.on(
                0,
                rank -> {
                    var pending = rank.communicator().split(0, 0);
                    CollectiveException e = Expect.failure(() -> pending.await(TOLD_WITHIN));
                    assertThat(e).isInstanceOf(CollectiveTimeoutException.class);
                    assertThat(e.recovery())
                            .isEqualTo(CollectiveException.Recovery.RECREATE_COMMUNICATOR);
                    assertThat(e.getMessage()).contains("split").containsPattern("\\b1\\b");
                });
        recovers(stage, ranks, CollectiveTimeoutException.class);
    }

    /** Calls that wait behind the one that is late are not to blame. */
    private static void oldest(Stage stage) {
        RankSet ranks = stage.ranks(2, OPERATION_TIMEOUT);
        ranks.on(
                0,
                rank -> {
                    List<Pending<?>> pending =
                            List.of(
                                    rank.communicator().split(0, 0),
                                    rank.communicator().exchangeCounts(new long[2]));
                    Summands behind = new Summands(rank, 1);
                    if (stage.capabilities().firstUseMayWait()) {
                        blamesTheSplit(Expect.failure(behind::enqueue));
                    } else {
                        behind.enqueue();
                    }
                    for (Pending<?> one : pending) {
                        blamesTheSplit(Expect.failure(() -> one.await(TOLD_WITHIN)));
                    }
                });
        recovers(stage, ranks, CollectiveTimeoutException.class);
    }

    private static void blamesTheSplit(CollectiveException failure) {
        assertThat(failure).isInstanceOf(CollectiveTimeoutException.class);
        assertThat(failure.getMessage())
                .contains("split")
                .doesNotContain("exchangeCounts", "allReduce");
    }

    /** The deadline counts while work waits at the head of a stream, not between operations. */
    private static void idle(Stage stage) {
        RankSet ranks = stage.ranks(2, OPERATION_TIMEOUT);
        ranks.onEvery(rank -> assertThat(new Summands(rank, 1).sum()).containsExactly(2));
        Expect.elapse(OPERATION_TIMEOUT.multipliedBy(7).dividedBy(4));
        ranks.onEvery(rank -> assertThat(new Summands(rank, 2).sum()).containsExactly(4));
    }

    /** Two operations that are both late, each within its deadline: waiting in line is no delay. */
    private static void fromTheHead(Stage stage) {
        Duration operationTimeout = OPERATION_TIMEOUT.multipliedBy(2);
        RankSet ranks = stage.ranks(2, operationTimeout);
        Summands first = new Summands(ranks.rank(0), 1);
        Summands second = new Summands(ranks.rank(0), 2);
        ranks.on(
                0,
                rank -> {
                    first.enqueue();
                    second.enqueue();
                });
        for (int i = 0; i < 2; i++) {
            Expect.elapse(operationTimeout.multipliedBy(5).dividedBy(8));
            ranks.on(1, rank -> new Summands(rank, 5).enqueue());
        }
        ranks.onEvery(Rank::synchronize);
        assertThat(first.result()).containsExactly(6);
        assertThat(second.result()).containsExactly(7);
    }

    /** Without the automatic abort the failure stands until the user aborts. */
    private static void keptFailed(Stage stage) {
        RankSet ranks =
                stage.ranks(
                        2,
                        CommunicatorConfig.defaults()
                                .withOperationTimeout(OPERATION_TIMEOUT)
                                .withAbortOnFailure(false));
        Rank zero = ranks.rank(0);
        List<CollectiveException> failures =
                failures(ranks, List.of(0), rank -> new Summands(rank, 1).enqueue());
        assertThat(failures.getFirst()).isInstanceOf(CollectiveTimeoutException.class);
        assertThat(zero.communicator().status()).isInstanceOf(CommunicatorStatus.Failed.class);
        zero.communicator().abort(TOLD_WITHIN);
        assertThat(zero.communicator().status()).isInstanceOf(CommunicatorStatus.Aborted.class);
        ranks.on(
                0,
                rank -> {
                    forget(rank);
                    DeviceBuffer buffer = rank.newBuffer(4);
                    rank.stream().fill(buffer, (byte) 9);
                    rank.synchronize();
                    assertThat(rank.read(buffer)).containsOnly(9);
                });
    }

    private static void crosswise(Stage stage) {
        int count = 16 << 20;
        RankSet ranks = stage.ranks(2, OPERATION_TIMEOUT);
        List<CollectiveException> failures =
                failures(
                        ranks,
                        everyRank(ranks),
                        rank -> {
                            int peer = 1 - rank.rank();
                            DeviceBuffer send = rank.newBuffer(count);
                            DeviceBuffer recv = rank.newBuffer(count);
                            rank.communicator()
                                    .send(send, count, DataType.UINT8, peer, rank.stream());
                            rank.communicator()
                                    .recv(recv, count, DataType.UINT8, peer, rank.stream());
                        });
        for (CollectiveException failure : failures) {
            assertThat(failure).isInstanceOf(CollectiveTimeoutException.class);
            assertThat(failure.getMessage()).containsPattern("group|sendRecv");
        }
        recovers(stage, ranks, CollectiveTimeoutException.class);
    }

    private static void abort(Stage stage) {
        RankSet ranks = stage.ranks(3);
        ranks.on(List.of(0, 1), rank -> new Summands(rank, 1).enqueue());
        List<Future<?>> waiting = new ArrayList<>();
        for (int r : new int[] {0, 1}) {
            waiting.add(
                    ranks.start(
                            r,
                            rank -> {
                                CollectiveException e =
                                        Expect.failure(
                                                () -> rank.stream().synchronize(TOLD_WITHIN));
                                if (stage.capabilities().peerFailureDetection()) {
                                    assertThat(e).isInstanceOf(CommunicatorAbortedException.class);
                                    assertThat(e.getMessage()).containsPattern("\\b[Rr]ank 2\\b");
                                }
                            }));
        }
        Expect.staysBusy("the waiting", ranks.rank(0).stream());
        Communicator two = ranks.rank(2).communicator();
        two.abort(TOLD_WITHIN);
        assertThat(two.status()).isInstanceOf(CommunicatorStatus.Aborted.class);
        if (!stage.capabilities().peerFailureDetection()) {
            ranks.rank(0).communicator().abort(TOLD_WITHIN);
            ranks.rank(1).communicator().abort(TOLD_WITHIN);
        }
        ranks.awaitAll(waiting, RankSet.DEADLINE);
        two.abort(TOLD_WITHIN);
        recovers(stage, ranks, CommunicatorAbortedException.class);
    }

    /** When abort has returned, nothing writes any more. */
    private static void abortMoving(Stage stage) {
        int count = 1 << 20;
        RankSet ranks = stage.ranks(2);
        List<DeviceBuffer> received = new ArrayList<>();
        List<DeviceBuffer> sent = new ArrayList<>();
        for (Rank rank : ranks.ranks()) {
            sent.add(rank.newBuffer(4L * count));
            received.add(rank.newBuffer(4L * count));
        }
        ranks.onEvery(rank -> {
            for (int i = 0; i < 60; i++) {
                rank.communicator()
                        .allReduce(
                                sent.get(rank.rank()),
                                received.get(rank.rank()),
                                count,
                                TYPE,
                                ReduceOp.SUM,
                                rank.stream());
            }
        });
        ranks.rank(0).communicator().abort(TOLD_WITHIN);
        ranks.rank(1).communicator().abort(TOLD_WITHIN);
        ranks.onEvery(rank -> {
            forget(rank);
            DeviceBuffer buffer = received.get(rank.rank());
            rank.stream().fill(buffer, (byte) 0x5a);
            rank.synchronize();
            long end = System.nanoTime() + 20_000_000;
            while (System.nanoTime() < end) {
                LockSupport.parkNanos(1_000_000);
            }
            assertThat(rank.read(buffer)).containsOnly(0x5a);
        });
        recovers(stage, ranks, CommunicatorAbortedException.class);
    }

    private static void spares(Stage stage) {
        RankSet doomed = stage.ranks(2);
        RankSet other = stage.ranks(2);
        // Work of both communicators on one stream: the second's must survive the first's end.
        List<Summands> sums = other.ranks().stream().map(r -> new Summands(r, 3)).toList();
        doomed.on(
                0,
                rank -> {
                    new Summands(rank, 1).enqueue();
                    sums.get(0).enqueue(other.rank(0).communicator(), rank.stream());
                });
        other.on(1, rank -> sums.get(1).enqueue());
        Expect.staysBusy("work behind a stuck one", other.rank(1).stream());
        doomed.rank(0).communicator().abort(TOLD_WITHIN);
        other.on(1, Rank::synchronize);
        doomed.on(0, FailureScenarios::forget);
        doomed.on(0, Rank::synchronize);
        assertThat(sums.get(0).result()).containsExactly(6);
        assertThat(sums.get(1).result()).containsExactly(6);
        assertThat(other.isReady()).isTrue();
    }

    private static void needsPeerFailureDetection(Stage stage) {
        if (!stage.capabilities().peerFailureDetection()) {
            throw stage.unsupported("ranks that leave are not noticed before the deadline");
        }
    }

    private static void rankFailed(CollectiveException failure, int rank) {
        assertThat(failure).isInstanceOf(RankFailedException.class);
        assertThat(((RankFailedException) failure).failedRank()).isEqualTo(rank);
        assertThat(failure.getMessage()).containsPattern("\\b[Rr]ank " + rank + "\\b");
    }

    /** As when its user code throws inside try-with-resources. */
    private static void leaves(Stage stage) {
        needsPeerFailureDetection(stage);
        RankSet ranks = stage.ranks(3);
        ranks.on(List.of(0, 2), rank -> new Summands(rank, 1).enqueue());
        List<Future<?>> waiting = new ArrayList<>();
        for (int r : new int[] {0, 2}) {
            waiting.add(
                    ranks.start(
                            r,
                            rank ->
                                    rankFailed(
                                            Expect.failure(
                                                    () -> rank.stream().synchronize(TOLD_WITHIN)),
                                            1)));
        }
        Expect.staysBusy("the waiting", ranks.rank(0).stream());
        long start = System.nanoTime();
        ranks.on(
                1,
                rank -> {
                    try (Communicator leaving = rank.communicator()) {
                        assertThat(leaving.status()).isInstanceOf(CommunicatorStatus.Ready.class);
                        throw new IllegalStateException("user code failed");
                    } catch (IllegalStateException e) {
                        assertThat(e).hasMessage("user code failed");
                    }
                });
        ranks.awaitAll(waiting, RankSet.DEADLINE);
        assertThat(Duration.ofNanos(System.nanoTime() - start)).isLessThan(TOLD_WITHIN);
        awaitAborted(ranks);
    }

    private static void leavesReceiver(Stage stage) {
        needsPeerFailureDetection(stage);
        RankSet ranks = stage.ranks(2);
        DeviceBuffer recv = ranks.rank(0).newBuffer(4);
        ranks.on(0, rank -> rank.communicator().recv(recv, 1, TYPE, 1, rank.stream()));
        ranks.on(1, rank -> rank.communicator().close());
        ranks.on(0, rank -> rankFailed(Expect.failure(rank::synchronize), 1));
        awaitAborted(ranks);
    }

    private static void left(Stage stage) {
        needsPeerFailureDetection(stage);
        RankSet ranks = stage.ranks(2);
        ranks.onEvery(rank -> assertThat(new Summands(rank, 1).sum()).containsExactly(2));
        ranks.on(1, rank -> rank.communicator().close());
        ranks.on(0, rank -> rankFailed(Expect.failure(() -> new Summands(rank, 1).sum()), 1));
        awaitAborted(ranks);
    }

    private static void breaks(Stage stage) {
        needsPeerFailureDetection(stage);
        if (!stage.capabilities().hostBuffers()) {
            throw stage.unsupported("operations on host memory");
        }
        RankSet ranks = stage.ranks(2);
        ranks.on(
                0,
                rank -> {
                    try (Arena arena = Arena.ofShared()) {
                        DeviceBuffer send = DeviceBuffer.wrap(arena.allocate(4096));
                        rank.communicator()
                                .allReduce(
                                        send,
                                        rank.newBuffer(4096),
                                        1024,
                                        TYPE,
                                        ReduceOp.SUM,
                                        rank.stream());
                    }
                });
        ranks.on(
                1,
                rank -> {
                    Runnable join =
                            () -> {
                                rank.communicator()
                                        .allReduce(
                                                rank.newBuffer(4096),
                                                rank.newBuffer(4096),
                                                1024,
                                                TYPE,
                                                ReduceOp.SUM,
                                                rank.stream());
                                rank.synchronize();
                            };
                    rankFailed(Expect.failure(join), 0);
                });
        ranks.on(0, rank -> rankFailed(Expect.failure(rank::synchronize), 0));
        recovers(stage, ranks, RankFailedException.class);
    }

    private static void closeOne(Stage stage) {
        RankSet ranks = stage.ranks(2);
        ranks.onEvery(rank -> assertThat(new Summands(rank, 1).sum()).containsExactly(2));
        long start = System.nanoTime();
        ranks.on(0, rank -> rank.communicator().close());
        assertThat(Duration.ofNanos(System.nanoTime() - start)).isLessThan(TOLD_WITHIN);
        assertThat(ranks.rank(0).communicator().status())
                .isInstanceOf(CommunicatorStatus.Closed.class);
        ranks.on(
                0,
                rank -> {
                    CollectiveException e = Expect.failure(() -> new Summands(rank, 1).enqueue());
                    assertThat(e.getMessage()).contains("closed");
                });
    }

    private static void closeTwice(Stage stage) {
        RankSet ranks = stage.ranks(2);
        ranks.onEvery(rank -> {
            assertThat(new Summands(rank, 1).sum()).containsExactly(2);
            rank.communicator().close();
            rank.communicator().close();
            rank.communicator().abort(TOLD_WITHIN);
            assertThat(rank.communicator().status()).isInstanceOf(CommunicatorStatus.Closed.class);
        });
        stage.backend().closeAll(ranks.communicators());
    }

    private static void closePending(Stage stage) {
        RankSet ranks = stage.ranks(2, OPERATION_TIMEOUT);
        ranks.on(
                0,
                rank -> {
                    new Summands(rank, 1).enqueue();
                    long start = System.nanoTime();
                    CollectiveException e = Expect.failure(() -> rank.communicator().close());
                    assertThat(Duration.ofNanos(System.nanoTime() - start)).isLessThan(TOLD_WITHIN);
                    assertThat(e).isInstanceOf(CollectiveTimeoutException.class);
                    rank.communicator().close();
                    assertThat(rank.communicator().status())
                            .isInstanceOfAny(
                                    CommunicatorStatus.Closed.class,
                                    CommunicatorStatus.Aborted.class);
                    forget(rank);
                    DeviceBuffer buffer = rank.newBuffer(4);
                    rank.stream().fill(buffer, (byte) 9);
                    rank.synchronize();
                    assertThat(rank.read(buffer)).containsOnly(9);
                });
    }

    private static void closeWaits(Stage stage) {
        RankSet ranks = stage.ranks(2);
        Summands sum = new Summands(ranks.rank(0), 1);
        Future<?> closing =
                ranks.start(
                        0,
                        rank -> {
                            sum.enqueue();
                            rank.communicator().close();
                        });
        long end = System.nanoTime() + 20_000_000;
        while (System.nanoTime() < end) {
            assertThat(closing.isDone()).as("close waits for its work").isFalse();
            LockSupport.parkNanos(1_000_000);
        }
        ranks.on(1, rank -> assertThat(new Summands(rank, 2).sum()).containsExactly(3));
        ranks.await(closing, RankSet.DEADLINE);
        assertThat(sum.result()).containsExactly(3);
    }

    /** Both wait for the work, and the peer, which still needs this rank, sees no failure. */
    private static void closeFromTwo(Stage stage) {
        List<Consumer<Communicator>> ways =
                List.of(Communicator::close, one -> stage.backend().closeAll(List.of(one)));
        for (Consumer<Communicator> way : ways) {
            RankSet ranks = stage.ranks(2);
            Rank zero = ranks.rank(0);
            Summands sum = new Summands(zero, 1);
            ranks.on(0, rank -> sum.enqueue());
            List<Future<?>> closing = new ArrayList<>();
            try (ExecutorService executor = Executors.newCachedThreadPool()) {
                for (int i = 0; i < 2; i++) {
                    closing.add(
                            executor.submit(() -> {
                                way.accept(zero.communicator());
                                assertThat(zero.stream().poll()).as("the work is over").isTrue();
                            }));
                }
                long end = System.nanoTime() + 20_000_000;
                while (System.nanoTime() < end) {
                    assertThat(closing).noneMatch(Future::isDone);
                    LockSupport.parkNanos(1_000_000);
                }
                ranks.on(1, rank -> assertThat(new Summands(rank, 2).sum()).containsExactly(3));
                ranks.awaitAll(closing, RankSet.DEADLINE);
            }
            assertThat(sum.result()).containsExactly(3);
            assertThat(zero.communicator().status()).isInstanceOf(CommunicatorStatus.Closed.class);
            assertThat(ranks.rank(1).communicator().status())
                    .isInstanceOf(CommunicatorStatus.Ready.class);
        }
    }

    /** A logged leak, and nothing else. */
    private static void drop(Stage stage) {
        String name = "dropped-" + Long.toHexString(stage.seed());
        RankSet others = stage.ranks(2);
        Device device = others.rank(0).device();
        System.gc();
        long before = device.memory().totalBytes();
        make(stage, name);
        long end = System.nanoTime() + RankSet.DEADLINE.toNanos();
        while (!stage.log().warns(name) && System.nanoTime() < end) {
            System.gc();
            LockSupport.parkNanos(10_000_000);
        }
        assertThat(stage.log().warns(name)).as("a warning names the leak").isTrue();
        Expect.memory(device, before);
        others.onEvery(rank -> assertThat(new Summands(rank, 1).sum()).containsExactly(2));
    }

    /** In a method of its own, so that no frame keeps the communicators. */
    private static void make(Stage stage, String name) {
        int size = Math.min(100, stage.backend().deviceLimit());
        CommunicatorConfig config = CommunicatorConfig.defaults().withName(name);
        assertThat(stage.backend().createLocal(size, config)).hasSize(size);
    }
}
