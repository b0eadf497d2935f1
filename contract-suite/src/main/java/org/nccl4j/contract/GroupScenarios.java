package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorAbortedException;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Group;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.RecordedGroup;

/** Operations issued together. */
final class GroupScenarios {
    private GroupScenarios() {}

    static List<Scenario> all() {
        return List.of(
                new Scenario("L10-group-body-throws", GroupScenarios::bodyThrows),
                new Scenario("L3-send-and-receive-in-a-group", GroupScenarios::exchange),
                new Scenario("group-starts-together-and-holds", GroupScenarios::holds),
                new Scenario("group-one-thread-many-operations", GroupScenarios::oneThread),
                new Scenario("group-refuses-what-it-touched", GroupScenarios::refusesTouched),
                new Scenario("group-refuses-strangers", GroupScenarios::refusesStrangers),
                new Scenario("group-validates-when-recorded", GroupScenarios::validates),
                new Scenario("group-recorded-once", GroupScenarios::recorded),
                new Scenario("group-recorded-with-a-closed-buffer", GroupScenarios::recordedClosed),
                new Scenario("group-with-a-failed-member", GroupScenarios::failedMember),
                new Scenario("group-send-to-self", GroupScenarios::toSelf));
    }

    private static final class BodyFailure extends RuntimeException {
        private static final long serialVersionUID = 1L;
    }

    private static void bodyThrows(Stage stage) {
        RankSet ranks = stage.ranks(2);
        BodyFailure failure = new BodyFailure();
        ranks.onEvery(rank -> {
            Summands sum = new Summands(rank, 1);
            assertThatThrownBy(() ->
                            stage.backend()
                                    .group(group -> {
                                        sum.enqueue(group.on(rank.communicator()), rank.stream());
                                        throw failure;
                                    }))
                    .isSameAs(failure);
            assertThat(rank.stream().poll()).as("nothing was launched").isTrue();
            assertThatThrownBy(() ->
                            stage.backend()
                                    .record(group -> {
                                        throw failure;
                                    }))
                    .isSameAs(failure);
        });
        // Had one operation been issued, its number would be taken and this would not match.
        ranks.on(
                0,
                rank ->
                        assertThatThrownBy(() ->
                                        stage.backend()
                                                .group(group -> {
                                                    new Summands(rank, 9)
                                                            .enqueue(
                                                                    group.on(rank.communicator()),
                                                                    rank.stream());
                                                    throw failure;
                                                }))
                                .isSameAs(failure));
        ranks.onEvery(rank -> assertThat(new Summands(rank, 2, 3).sum()).containsExactly(4, 6));
    }

    private static void exchange(Stage stage) {
        int count = 16 << 20;
        RankSet ranks = stage.ranks(2);
        ranks.onEvery(rank -> {
            int peer = 1 - rank.rank();
            DeviceBuffer send = rank.newBuffer(count);
            DeviceBuffer recv = rank.newBuffer(count);
            rank.write(pattern(rank.rank(), count), send);
            stage.backend()
                    .group(group -> {
                        Operations operations = group.on(rank.communicator());
                        operations.send(send, count, DataType.UINT8, peer, rank.stream());
                        operations.recv(recv, count, DataType.UINT8, peer, rank.stream());
                    });
            rank.synchronize();
            assertThat(rank.read(recv)).isEqualTo(pattern(peer, count));
        });
    }

    static byte[] pattern(int rank, int count) {
        byte[] bytes = new byte[count];
        for (int i = 0; i < count; i++) {
            bytes[i] = (byte) ((i ^ i >>> 8 ^ i >>> 16) + 101 * rank);
        }
        return bytes;
    }

    /**
     * Rank 0's group waits for both of its streams, and holds both until its receive has been
     * served.
     */
    private static void holds(Stage stage) {
        RankSet gate = stage.ranks(2);
        RankSet ranks = stage.ranks(2);
        Rank zero = ranks.rank(0);
        DeviceStream first = zero.stream();
        DeviceStream second = zero.newStream();
        DeviceEvent open = gate.rank(0).newEvent();
        Summands sum = new Summands(zero, 1);
        DeviceBuffer recv = zero.newBuffer(4);
        gate.on(
                0,
                rank -> {
                    new Summands(rank, 0).enqueue();
                    rank.stream().record(open);
                });
        ranks.on(
                0,
                rank -> {
                    second.waitFor(open);
                    stage.backend()
                            .group(group -> {
                                Operations operations = group.on(rank.communicator());
                                sum.enqueue(operations, first);
                                operations.recv(recv, 1, DataType.INT32, 1, second);
                            });
                });
        ranks.on(1, rank -> new Summands(rank, 2).enqueue());
        Expect.staysBusy("a group whose other stream is blocked", first);
        Expect.staysBusy("the peer of that group", ranks.rank(1).stream());
        gate.on(1, rank -> new Summands(rank, 0).enqueue());
        ranks.on(1, Rank::synchronize);
        Expect.staysBusy("a group with a receive to come", first);
        ranks.on(
                1,
                rank -> {
                    DeviceBuffer send = rank.newBuffer(Elements.int32(77));
                    rank.communicator().send(send, 1, DataType.INT32, 0, rank.stream());
                    rank.synchronize();
                });
        stage.backend().synchronizeAll(List.of(first, second), RankSet.DEADLINE);
        assertThat(sum.result()).containsExactly(3);
        assertThat(Elements.toInt32(zero.read(recv))).containsExactly(77);
        gate.onEvery(Rank::synchronize);
    }

    private static void oneThread(Stage stage) {
        RankSet first = stage.ranks(3);
        RankSet second = stage.ranks(2);
        List<Rank> all = new ArrayList<>(first.ranks());
        all.addAll(second.ranks());
        List<Summands> sums = new ArrayList<>();
        for (Rank rank : all) {
            sums.add(new Summands(rank, rank.rank() + 1));
            sums.add(new Summands(rank, 10 * rank.rank()));
        }
        first.onOneThread(
                () -> {
                    stage.backend()
                            .group(group -> {
                                for (int i = 0; i < all.size(); i++) {
                                    Rank rank = all.get(i);
                                    Operations on = group.on(rank.communicator());
                                    sums.get(2 * i).enqueue(on, rank.stream());
                                    sums.get(2 * i + 1).enqueue(on, rank.stream());
                                }
                            });
                    stage.backend()
                            .synchronizeAll(
                                    all.stream().map(Rank::stream).toList(), RankSet.DEADLINE);
                },
                RankSet.DEADLINE);
        for (int i = 0; i < all.size(); i++) {
            boolean three = all.get(i).size() == 3;
            assertThat(sums.get(2 * i).result()).containsExactly(three ? 6 : 3);
            assertThat(sums.get(2 * i + 1).result()).containsExactly(three ? 30 : 10);
        }
    }

    private static void refusesTouched(Stage stage) {
        RankSet ranks = stage.ranks(2);
        Backend backend = stage.backend();
        ranks.onEvery(rank -> {
            Communicator communicator = rank.communicator();
            DeviceStream stream = rank.stream();
            DeviceStream free = rank.newStream();
            DeviceEvent event = rank.newEvent();
            DeviceBuffer buffer = rank.newBuffer(4);
            Summands sum = new Summands(rank, 5);
            backend.group(group -> {
                sum.enqueue(group.on(communicator), stream);
                Expect.refusal(() -> communicator.barrier(free));
                Expect.refusal(() -> sum.enqueue(communicator, free));
                Expect.refusal(() -> communicator.split(0, 0));
                Expect.refusal(() -> stream.fill(buffer, (byte) 1));
                Expect.refusal(() -> stream.copy(sum.send(), buffer, 4));
                Expect.refusal(() -> stream.record(event));
                Expect.refusal(() -> stream.waitFor(event));
                Expect.refusal(() -> backend.group(inner -> {}));
                Expect.refusal(() -> backend.record(inner -> {}));
                // What the group has not touched is free.
                free.fill(buffer, (byte) 1);
                free.synchronize(RankSet.DEADLINE);
            });
            rank.synchronize();
            assertThat(sum.result()).containsExactly(10);
            assertThat(rank.read(buffer)).containsOnly(1);
        });
    }

    private static void refusesStrangers(Stage stage) {
        RankSet ranks = stage.ranks(2);
        ranks.onEvery(rank -> {
            AtomicReference<Group> kept = new AtomicReference<>();
            AtomicReference<Operations> keptOperations = new AtomicReference<>();
            Summands sum = new Summands(rank, 5);
            stage.backend()
                    .group(group -> {
                        kept.set(group);
                        keptOperations.set(group.on(rank.communicator()));
                        Expect.refusal(() -> group.on(null));
                    });
            Expect.refusal(() -> kept.get().on(rank.communicator()));
            Expect.refusal(() -> sum.enqueue(keptOperations.get(), rank.stream()));
            assertThat(rank.stream().poll()).isTrue();
            assertThat(sum.sum()).containsExactly(10);
        });
        AtomicReference<Group> shared = new AtomicReference<>();
        AtomicReference<InvalidArgumentException> refusal = new AtomicReference<>();
        ranks.on(
                0,
                rank ->
                        stage.backend()
                                .group(group -> {
                                    shared.set(group);
                                    ranks.on(
                                            1,
                                            other ->
                                                    refusal.set(
                                                            Expect.refusal(() ->
                                                                    shared.get()
                                                                            .on(
                                                                                    other
                                                                                            .communicator()))));
                                }));
        assertThat(refusal.get()).isNotNull();
    }

    private static void validates(Stage stage) {
        RankSet ranks = stage.ranks(2);
        ranks.onEvery(rank -> {
            Summands sum = new Summands(rank, 5);
            DeviceBuffer small = rank.newBuffer(4);
            stage.backend()
                    .group(group -> {
                        Operations operations = group.on(rank.communicator());
                        Expect.refusal(() ->
                                operations.allGather(
                                        small, sum.recv(), 1, DataType.INT32, rank.stream()));
                        sum.enqueue(operations, rank.stream());
                    });
            rank.synchronize();
            assertThat(sum.result()).containsExactly(10);
        });
    }

    private static void recorded(Stage stage) {
        RankSet ranks = stage.ranks(3);
        ranks.onEvery(rank -> {
            Summands first = new Summands(rank, 0, 0);
            Summands second = new Summands(rank, 0);
            RecordedGroup recorded =
                    stage.backend()
                            .record(group -> {
                                Operations on = group.on(rank.communicator());
                                first.enqueue(on, rank.stream());
                                second.enqueue(on, rank.stream());
                            });
            assertThat(rank.stream().poll()).as("recording issues nothing").isTrue();
            // Recorded is not open: the communicator may be used in between.
            assertThat(new Summands(rank, 1).sum()).containsExactly(3);
            for (int i = 0; i < 20; i++) {
                first.put(i, rank.rank());
                second.put(-i);
                recorded.issue();
                rank.synchronize();
                assertThat(first.result()).containsExactly(3 * i, 3);
                assertThat(second.result()).containsExactly(-3 * i);
            }
            recorded.issue();
            recorded.issue();
            assertThat(new Summands(rank, 2).sum()).containsExactly(6);
        });
    }

    private static void recordedClosed(Stage stage) {
        RankSet ranks = stage.ranks(2);
        ranks.onEvery(rank -> {
            DeviceBuffer buffer = rank.device().allocate(8);
            rank.write(Elements.int32(1, 1), buffer);
            RecordedGroup recorded =
                    stage.backend()
                            .record(group ->
                                    group.on(rank.communicator())
                                            .broadcast(
                                                    buffer,
                                                    buffer,
                                                    2,
                                                    DataType.INT32,
                                                    0,
                                                    rank.stream()));
            recorded.issue();
            rank.synchronize();
            buffer.close();
            assertThat(Expect.refusal(recorded::issue)).hasMessageContaining("closed");
            assertThat(rank.stream().poll()).isTrue();
        });
        ranks.onEvery(rank -> assertThat(new Summands(rank, 2).sum()).containsExactly(4));
    }

    /** One communicator of the group has failed: the others' operations are not issued either. */
    private static void failedMember(Stage stage) {
        RankSet failed = stage.ranks(2);
        RankSet sound = stage.ranks(2);
        List<Summands> first = sound.ranks().stream().map(r -> new Summands(r, 50)).toList();
        List<Summands> second = failed.ranks().stream().map(r -> new Summands(r, 50)).toList();
        RecordedGroup[] recorded = new RecordedGroup[2];
        sound.onEvery(rank -> {
            int r = rank.rank();
            Rank other = failed.rank(r);
            recorded[r] =
                    stage.backend()
                            .record(group -> {
                                first.get(r).enqueue(group.on(rank.communicator()), rank.stream());
                                second.get(r)
                                        .enqueue(group.on(other.communicator()), other.stream());
                            });
        });
        failed.rank(0).communicator().abort(RankSet.DEADLINE);
        failed.rank(1).communicator().abort(RankSet.DEADLINE);
        sound.onEvery(rank -> {
            assertThatThrownBy(() -> recorded[rank.rank()].issue())
                    .isInstanceOf(CommunicatorAbortedException.class);
            assertThat(rank.stream().poll()).as("nothing was enqueued").isTrue();
            assertThat(new Summands(rank, 1, 1).sum()).containsExactly(2, 2);
        });
    }

    private static void toSelf(Stage stage) {
        RankSet ranks = stage.ranks(2);
        ranks.onEvery(rank -> {
            DeviceBuffer send = rank.newBuffer(Elements.int32(rank.rank() + 5));
            DeviceBuffer recv = rank.newBuffer(4);
            stage.backend()
                    .group(group -> {
                        Operations on = group.on(rank.communicator());
                        on.send(send, 1, DataType.INT32, rank.rank(), rank.stream());
                        on.recv(recv, 1, DataType.INT32, rank.rank(), rank.stream());
                    });
            rank.synchronize();
            assertThat(Elements.toInt32(rank.read(recv))).containsExactly(rank.rank() + 5);
        });
    }
}
