package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowableOfType;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ForkJoinWorkerThread;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.WaitInterruptedException;

/** What waits for what, and what does not. */
final class StreamScenarios {
    private static final Duration SHORT = Duration.ofMillis(30);

    /** Those that complete nowhere before every rank's stream has reached them. */
    private static final List<Collective> NEED_EVERY_RANK =
            List.of(
                    Collective.ALL_REDUCE,
                    Collective.REDUCE_SCATTER,
                    Collective.ALL_GATHER,
                    Collective.ALL_TO_ALL);

    private StreamScenarios() {}

    static List<Scenario> all() {
        return List.of(
                new Scenario("stream-nothing-completes-early", StreamScenarios::nothingEarly),
                new Scenario("stream-barrier-waits-for-all", StreamScenarios::barrier),
                new Scenario("stream-count-zero-waits-for-nobody", StreamScenarios::zeroAlone),
                new Scenario("stream-work-in-order", StreamScenarios::inOrder),
                new Scenario("stream-work-behind-an-event", StreamScenarios::behindAnEvent),
                new Scenario("stream-event-without-mark", StreamScenarios::noMark),
                new Scenario("stream-event-recorded-again", StreamScenarios::recordedAgain),
                new Scenario("stream-event-of-another-device", StreamScenarios::otherDevice),
                new Scenario("stream-event-times", StreamScenarios::eventTimes),
                new Scenario("stream-two-streams-overlap", StreamScenarios::overlap),
                new Scenario("stream-synchronize-runs-out-of-time", StreamScenarios::outOfTime),
                new Scenario("stream-synchronize-interrupted", StreamScenarios::interrupted),
                new Scenario("stream-completion-stage", StreamScenarios::completion),
                new Scenario("stream-completion-fails", StreamScenarios::completionFails),
                new Scenario("stream-closed", StreamScenarios::closed),
                new Scenario("stream-copy-and-fill", StreamScenarios::copyAndFill));
    }

    private static OperationProgram program(
            Stage stage, Collective collective, int ranks, int root, int attempt) {
        Reduction reduction = collective.reduces() ? Reduction.SUM : null;
        return OperationProgram.exact(
                new OperationCase(
                        collective,
                        DataType.INT32,
                        reduction,
                        ranks,
                        5,
                        false,
                        collective.rooted() ? root : 0,
                        Mix.hash(stage.seed(), attempt)));
    }

    private static void issue(OperationProgram program, Rank rank) {
        program.issue(rank, communicator -> communicator);
    }

    private static void finish(RankSet ranks, OperationProgram program) {
        ranks.onEvery(rank -> {
            rank.synchronize();
            program.check(rank);
        });
    }

    private static void nothingEarly(Stage stage) {
        int size = 3;
        RankSet ranks = stage.ranks(size);
        for (Collective collective : Collective.values()) {
            for (int late = 0; late < size; late++) {
                OperationProgram program =
                        program(stage, collective, size, (late + 1) % size, late);
                observe(ranks, program, collective, late);
                if (collective.rooted()) {
                    OperationProgram fromLate = program(stage, collective, size, late, late);
                    observe(ranks, fromLate, collective, late);
                }
                stage.counts(1);
            }
        }
    }

    private static void observe(
            RankSet ranks, OperationProgram program, Collective collective, int late) {
        ranks.onEvery(program::prepare);
        List<Integer> early = new ArrayList<>();
        for (int r = 0; r < ranks.size(); r++) {
            if (r != late) {
                early.add(r);
            }
        }
        ranks.on(early, rank -> issue(program, rank));
        for (int r : early) {
            if (NEED_EVERY_RANK.contains(collective) || program.needs(r, late)) {
                Expect.staysBusy(
                        program.id() + " on rank " + r + " without rank " + late,
                        ranks.rank(r).stream());
            }
        }
        ranks.on(late, rank -> issue(program, rank));
        finish(ranks, program);
    }

    private static void barrier(Stage stage) {
        RankSet ranks = stage.ranks(3);
        for (int late = 0; late < 3; late++) {
            List<Integer> early = List.of((late + 1) % 3, (late + 2) % 3);
            ranks.on(early, rank -> rank.communicator().barrier(rank.stream()));
            for (int r : early) {
                Expect.staysBusy("barrier without rank " + late, ranks.rank(r).stream());
            }
            ranks.on(late, rank -> rank.communicator().barrier(rank.stream()));
            ranks.onEvery(Rank::synchronize);
        }
        RankSet alone = stage.ranks(1);
        alone.onEvery(rank -> {
            rank.communicator().barrier(rank.stream());
            rank.synchronize();
        });
    }

    private static void zeroAlone(Stage stage) {
        RankSet ranks = stage.ranks(2);
        ranks.on(
                0,
                rank -> {
                    rank.communicator()
                            .allReduce(null, null, 0, DataType.INT32, ReduceOp.SUM, rank.stream());
                    rank.communicator().allToAll(null, null, 0, DataType.INT32, rank.stream());
                    rank.communicator().recv(null, 0, DataType.INT32, 1, rank.stream());
                    rank.synchronize();
                });
        ranks.on(
                1,
                rank -> {
                    rank.communicator()
                            .allReduce(null, null, 0, DataType.INT32, ReduceOp.SUM, rank.stream());
                    rank.communicator().allToAll(null, null, 0, DataType.INT32, rank.stream());
                    rank.communicator().send(null, 0, DataType.INT32, 0, rank.stream());
                });
        ranks.onEvery(
                rank -> assertThat(new Summands(rank, rank.rank(), 2).sum()).containsExactly(1, 4));
    }

    /** Each operation reads what the one before wrote; nobody waits in between. */
    private static void inOrder(Stage stage) {
        int steps = 9;
        RankSet ranks = stage.ranks(3);
        ranks.onEvery(rank -> {
            DeviceBuffer buffer = rank.newBuffer(Elements.int32(1, rank.rank()));
            DeviceBuffer copy = rank.newBuffer(8);
            for (int i = 0; i < steps; i++) {
                rank.communicator()
                        .allReduce(buffer, buffer, 2, DataType.INT32, ReduceOp.SUM, rank.stream());
            }
            rank.stream().copy(buffer, copy, 8);
            rank.stream().fill(buffer, (byte) 0);
            rank.synchronize();
            int power = 1;
            for (int i = 1; i < steps; i++) {
                power *= 3;
            }
            assertThat(Elements.toInt32(rank.read(copy))).containsExactly(3 * power, 3 * power);
            assertThat(Elements.toInt32(rank.read(buffer))).containsExactly(0, 0);
        });
    }

    private static void behindAnEvent(Stage stage) {
        RankSet ranks = stage.ranks(2);
        Rank zero = ranks.rank(0);
        DeviceStream other = zero.newStream();
        DeviceEvent reduced = zero.newEvent();
        DeviceEvent copied = zero.newEvent();
        Summands sum = new Summands(zero, 20, 1);
        DeviceBuffer copy = zero.newBuffer(Elements.int32(0, 0));
        ranks.on(
                0,
                rank -> {
                    sum.enqueue();
                    rank.stream().record(reduced);
                    other.waitFor(reduced);
                    other.copy(sum.recv(), copy, 8);
                    other.record(copied);
                });
        Expect.staysBusy("work behind an event", other);
        assertThat(copied.poll()).isFalse();
        assertThat(reduced.poll()).isFalse();
        assertThatThrownBy(() -> copied.synchronize(SHORT))
                .isInstanceOf(CollectiveTimeoutException.class);
        ranks.on(1, rank -> new Summands(rank, 1, 1).enqueue());
        copied.synchronize(RankSet.DEADLINE);
        assertThat(reduced.poll()).isTrue();
        assertThat(Elements.toInt32(zero.read(copy))).containsExactly(21, 2);
        ranks.onEvery(Rank::synchronize);
    }

    private static void noMark(Stage stage) {
        RankSet ranks = stage.ranks(2);
        Rank zero = ranks.rank(0);
        DeviceEvent event = zero.newEvent();
        DeviceStream other = zero.newStream();
        DeviceBuffer buffer = zero.newBuffer(4);
        assertThat(event.poll()).isTrue();
        event.synchronize(RankSet.DEADLINE);
        ranks.on(
                0,
                rank -> {
                    new Summands(rank, 1).enqueue();
                    other.waitFor(event);
                    // A mark that comes later is none of that wait's business.
                    rank.stream().record(event);
                    other.fill(buffer, (byte) 7);
                });
        other.synchronize(RankSet.DEADLINE);
        assertThat(zero.read(buffer)).containsOnly(7);
        assertThat(event.poll()).isFalse();
        ranks.on(1, rank -> new Summands(rank, 1).enqueue());
        ranks.onEvery(Rank::synchronize);
        assertThat(event.poll()).isTrue();
    }

    private static void recordedAgain(Stage stage) {
        RankSet ranks = stage.ranks(2);
        Rank zero = ranks.rank(0);
        DeviceEvent event = zero.newEvent();
        DeviceStream early = zero.newStream();
        DeviceStream late = zero.newStream();
        DeviceBuffer buffer = zero.newBuffer(4);
        ranks.on(
                0,
                rank -> {
                    rank.stream().record(event);
                    early.waitFor(event);
                    new Summands(rank, 1).enqueue();
                    rank.stream().record(event);
                    late.waitFor(event);
                    early.fill(buffer, (byte) 1);
                    late.fill(buffer, (byte) 2);
                });
        early.synchronize(RankSet.DEADLINE);
        Expect.staysBusy("work behind the event's second mark", late);
        ranks.on(1, rank -> new Summands(rank, 1).enqueue());
        late.synchronize(RankSet.DEADLINE);
        assertThat(zero.read(buffer)).containsOnly(2);
        ranks.onEvery(Rank::synchronize);
    }

    /** Rank 1's stream waits for a mark in rank 0's. */
    private static void otherDevice(Stage stage) {
        RankSet gate = stage.ranks(2);
        RankSet ranks = stage.ranks(2);
        DeviceEvent event = gate.rank(0).newEvent();
        DeviceStream other = ranks.rank(1).newStream();
        DeviceBuffer buffer = ranks.rank(1).newBuffer(4);
        gate.on(
                0,
                rank -> {
                    new Summands(rank, 1).enqueue();
                    rank.stream().record(event);
                });
        ranks.on(
                1,
                rank -> {
                    other.waitFor(event);
                    other.fill(buffer, (byte) 3);
                });
        Expect.staysBusy("work behind another device's event", other);
        gate.on(1, rank -> new Summands(rank, 1).enqueue());
        other.synchronize(RankSet.DEADLINE);
        assertThat(ranks.rank(1).read(buffer)).containsOnly(3);
        gate.onEvery(Rank::synchronize);
    }

    private static void eventTimes(Stage stage) {
        RankSet ranks = stage.ranks(1);
        Rank zero = ranks.rank(0);
        DeviceEvent first = zero.newEvent();
        DeviceEvent second = zero.newEvent();
        DeviceBuffer buffer = zero.newBuffer(1 << 20);
        assertThatThrownBy(() -> second.elapsedSince(first))
                .isInstanceOf(InvalidArgumentException.class);
        zero.stream().record(first);
        for (int i = 0; i < 10; i++) {
            zero.stream().fill(buffer, (byte) i);
        }
        zero.stream().record(second);
        zero.synchronize();
        assertThat(second.elapsedSince(first)).isBetween(Duration.ofNanos(1), RankSet.DEADLINE);
        assertThat(first.elapsedSince(second)).isNegative();
        second.close();
        second.close();
    }

    /** One stream waits for an absent rank; the other goes on, again and again. */
    private static void overlap(Stage stage) {
        RankSet first = stage.ranks(2);
        RankSet second = stage.ranks(2);
        Summands blocked = new Summands(first.rank(0), 1);
        first.on(0, rank -> blocked.enqueue());
        for (int i = 0; i < 5; i++) {
            second.onEvery(
                    rank -> assertThat(new Summands(rank, 3, rank.rank()).sum()).contains(6, 1));
        }
        Expect.staysBusy("the operation without its peer", first.rank(0).stream());
        first.on(1, rank -> new Summands(rank, 2).enqueue());
        first.onEvery(Rank::synchronize);
        assertThat(blocked.result()).containsExactly(3);
    }

    private static void outOfTime(Stage stage) {
        RankSet ranks = stage.ranks(2);
        Rank zero = ranks.rank(0);
        Summands sum = new Summands(zero, 1);
        ranks.on(0, rank -> sum.enqueue());
        for (Duration timeout : List.of(Duration.ZERO, SHORT, Duration.ofNanos(1))) {
            long start = System.nanoTime();
            CollectiveTimeoutException late =
                    catchThrowableOfType(
                            CollectiveTimeoutException.class,
                            () -> zero.stream().synchronize(timeout));
            assertThat(late).isNotNull();
            assertThat(late.recovery()).isEqualTo(CollectiveException.Recovery.RETRY);
            assertThat(Duration.ofNanos(System.nanoTime() - start))
                    .isBetween(timeout, timeout.plusSeconds(5));
            assertThat(zero.communicator().status()).isInstanceOf(CommunicatorStatus.Ready.class);
        }
        assertThatThrownBy(() ->
                        stage.backend()
                                .synchronizeAll(List.of(zero.newStream(), zero.stream()), SHORT))
                .isInstanceOf(CollectiveTimeoutException.class);
        ranks.on(1, rank -> new Summands(rank, 4).enqueue());
        ranks.onEvery(Rank::synchronize);
        assertThat(sum.result()).containsExactly(5);
        zero.stream().synchronize(Duration.ZERO);
    }

    private static void interrupted(Stage stage) {
        RankSet ranks = stage.ranks(2);
        Rank zero = ranks.rank(0);
        Summands sum = new Summands(zero, 1);
        ranks.on(0, rank -> sum.enqueue());
        ranks.on(
                0,
                rank -> {
                    Thread.currentThread().interrupt();
                    assertThatThrownBy(rank::synchronize)
                            .isInstanceOf(WaitInterruptedException.class);
                    assertThat(Thread.interrupted()).as("the flag is kept").isTrue();
                });
        AtomicReference<Thread> waiter = new AtomicReference<>();
        var waiting =
                ranks.start(
                        0,
                        rank -> {
                            waiter.set(Thread.currentThread());
                            assertThatThrownBy(rank::synchronize)
                                    .isInstanceOf(WaitInterruptedException.class);
                            assertThat(Thread.interrupted()).isTrue();
                        });
        long end = System.nanoTime() + RankSet.DEADLINE.toNanos();
        while (!waiting.isDone() && System.nanoTime() < end) {
            LockSupport.parkNanos(1_000_000);
            if (waiter.get() != null) {
                waiter.get().interrupt();
                break;
            }
        }
        ranks.await(waiting, RankSet.DEADLINE);
        ranks.on(1, rank -> new Summands(rank, 2).enqueue());
        ranks.onEvery(Rank::synchronize);
        assertThat(sum.result()).containsExactly(3);
    }

    private static void completion(Stage stage) {
        RankSet ranks = stage.ranks(2);
        Rank zero = ranks.rank(0);
        Summands sum = new Summands(zero, 1);
        ranks.on(0, rank -> sum.enqueue());
        CompletableFuture<Thread> ran =
                zero.stream()
                        .completion()
                        .thenApply(nothing -> Thread.currentThread())
                        .toCompletableFuture();
        Expect.staysBusy("the stream of the stage", zero.stream());
        assertThat(ran).isNotDone();
        ranks.on(1, rank -> new Summands(rank, 2).enqueue());
        assertThat(ran).succeedsWithin(RankSet.DEADLINE.toMillis(), TimeUnit.MILLISECONDS);
        assertThat(ran.join()).isInstanceOf(ForkJoinWorkerThread.class);
        assertThat(sum.result()).containsExactly(3);
        assertThat(zero.stream().completion().toCompletableFuture())
                .succeedsWithin(RankSet.DEADLINE.toMillis(), TimeUnit.MILLISECONDS);
        ranks.onEvery(Rank::synchronize);
    }

    private static void completionFails(Stage stage) {
        RankSet ranks = stage.ranks(2, Duration.ofSeconds(1));
        Rank zero = ranks.rank(0);
        ranks.on(0, rank -> new Summands(rank, 1).enqueue());
        CompletableFuture<Void> stage0 = zero.stream().completion().toCompletableFuture();
        assertThat(stage0)
                .failsWithin(RankSet.DEADLINE.toMillis(), TimeUnit.MILLISECONDS)
                .withThrowableThat()
                .withCauseInstanceOf(CollectiveTimeoutException.class);
    }

    private static void closed(Stage stage) {
        RankSet ranks = stage.ranks(2);
        Rank zero = ranks.rank(0);
        DeviceStream stream = zero.device().createStream();
        Summands sum = new Summands(zero, 1);
        ranks.on(
                0,
                rank -> {
                    sum.enqueue(rank.communicator(), stream);
                    stream.close();
                    stream.close();
                });
        ranks.on(
                1,
                rank -> {
                    Summands last = new Summands(rank, 2);
                    assertThat(last.sum()).containsExactly(3);
                });
        ranks.on(
                0,
                rank -> {
                    InvalidArgumentException refusal =
                            Expect.refusal(() -> sum.enqueue(rank.communicator(), stream));
                    assertThat(refusal).hasMessageContaining("closed");
                    DeviceBuffer buffer = rank.newBuffer(4);
                    assertThat(Expect.refusal(() -> stream.fill(buffer, (byte) 0)))
                            .hasMessageContaining("closed");
                });
        ranks.onEvery(
                rank -> assertThat(new Summands(rank, 5).sum()).as("usable").containsExactly(10));
    }

    private static void copyAndFill(Stage stage) {
        RankSet ranks = stage.ranks(1);
        Rank zero = ranks.rank(0);
        DeviceStream stream = zero.stream();
        DeviceBuffer from = zero.newBuffer(new byte[] {1, 2, 3, 4, 5, 6, 7, 8});
        DeviceBuffer to = zero.newBuffer(new byte[8]);
        stream.copy(from.slice(1, 5), to.slice(2, 6), 5);
        stream.fill(to.slice(0, 1), (byte) -1);
        stream.copy(from, to, 0);
        zero.synchronize();
        assertThat(zero.read(to)).containsExactly(-1, 0, 2, 3, 4, 5, 6, 0);
        assertThat(zero.read(from)).containsExactly(1, 2, 3, 4, 5, 6, 7, 8);
        Expect.refusal(() -> stream.copy(from, to, 9));
        Expect.refusal(() -> stream.copy(from, to, -1));
        Expect.refusal(() -> stream.copy(from.slice(0, 4), from.slice(3, 4), 4));
        assertThat(stream.poll()).isTrue();
    }
}
