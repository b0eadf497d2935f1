package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Group;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.MismatchException;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.ReduceOp;

/** Operations that are issued together, whole or not at all. */
final class GroupTest {
    @Test
    void aBodyThatThrowsIssuesNothing() {
        try (World world = new World(2)) {
            DeviceBuffer buffer = world.ints(0, 7);
            IllegalStateException mine = new IllegalStateException("user code");
            assertThatThrownBy(() ->
                            world.backend.group(group -> {
                                group.on(world.rank(0)).barrier(world.stream(0));
                                throw mine;
                            }))
                    .isSameAs(mine);
            world.stream(0).synchronize(World.NOW);
            // No number was taken either.
            world.assertWorks();
            assertThat(World.toArray(buffer)).containsExactly(7);
        }
    }

    @Test
    void aRefusedOperationIssuesNothing() {
        try (World world = new World(2)) {
            DeviceBuffer buffer = world.zeros(0, 1);
            assertThatThrownBy(() ->
                            world.backend.group(group -> {
                                Operations rank = group.on(world.rank(0));
                                rank.barrier(world.stream(0));
                                rank.send(buffer, 2, DataType.INT32, 1, world.stream(0));
                            }))
                    .isInstanceOf(InvalidArgumentException.class);
            world.stream(0).synchronize(World.NOW);
            world.assertWorks();
        }
    }

    @Test
    void groupsDoNotNest() {
        try (World world = new World(1)) {
            assertThatThrownBy(() -> world.backend.group(outer -> world.backend.group(inner -> {})))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessage(
                            "this thread is already in a group's body, and groups do not nest; put"
                                    + " the operations into the open group");
            world.backend.group(group -> {});
        }
    }

    @Test
    void whatTheOpenGroupHasTouchedIsUsedThroughItOnly() {
        try (World world = new World(2)) {
            DeviceBuffer buffer = world.ints(0, 7);
            world.backend.group(group -> {
                world.rank(0).status();
                world.stream(0).poll();
                group.on(world.rank(0)).barrier(world.stream(0));
                String communicator =
                        "rank 0/2 of communicator 'world' is in use by this thread's open"
                                + " group; go through group.on(communicator), or wait until"
                                + " the body has returned";
                String stream =
                        "stream 0 of device 0 is in use by this thread's open group; use it"
                                + " when the body has returned";
                assertRefused(() -> world.rank(0).barrier(world.newStream(0)), communicator);
                assertRefused(() -> world.rank(0).split(0, 0), communicator);
                assertRefused(() -> world.rank(0).close(), communicator);
                assertRefused(() -> world.stream(0).fill(buffer, (byte) 0), stream);
                assertRefused(() -> world.stream(0).synchronize(World.NOW), stream);
                assertThat(world.rank(0).size()).isEqualTo(2);
                // Another thread is not in this group.
                Thread other = Thread.ofPlatform().start(() -> world.stream(0).poll());
                join(other);
                group.on(world.rank(1)).barrier(world.stream(1));
            });
            world.synchronize();
        }
    }

    @Test
    void aGroupEndsWithItsBody() {
        try (World world = new World(1)) {
            AtomicReference<Group> escaped = new AtomicReference<>();
            AtomicReference<Operations> operations = new AtomicReference<>();
            world.backend.group(group -> {
                escaped.set(group);
                operations.set(group.on(world.rank(0)));
            });
            String text =
                    "a group may be used only inside the body that received it, on that thread;"
                            + " nothing was recorded";
            assertRefused(() -> escaped.get().on(world.rank(0)), text);
            assertRefused(() -> operations.get().barrier(world.stream(0)), text);
        }
    }

    @Test
    void aBatchHoldsItsStreamsUntilItsLastOperationEnds() {
        try (World world = new World(2)) {
            DeviceStream second = world.newStream(0);
            DeviceBuffer[] ones = {world.ints(0, 1), world.ints(1, 1)};
            DeviceBuffer[] twos = {world.ints(0, 2), world.ints(1, 2)};
            world.backend.group(group -> {
                operate(group, world.rank(0), ones[0], world.stream(0));
                operate(group, world.rank(0), twos[0], second);
            });
            // Rank 1 has joined the first operation only: the data is there, the streams are held.
            world.allReduce(1, ones[1]);
            world.stream(1).synchronize(World.LONG);
            assertThat(World.toArray(ones[0])).containsExactly(2);
            assertThat(world.stream(0).poll()).isFalse();
            assertThat(second.poll()).isFalse();
            world.allReduce(1, twos[1]);
            world.synchronize();
            second.synchronize(World.LONG);
            assertThat(World.toArray(twos[0])).containsExactly(4);
        }
    }

    @Test
    void aBatchStartsWhenItHeadsAllItsStreams() {
        try (World world = new World(2)) {
            DeviceStream second = world.newStream(0);
            Communicator other =
                    world.backend.createLocal(2, world.rank(0).config().withName("other")).get(0);
            DeviceBuffer[] ones = {world.ints(0, 1), world.ints(1, 1)};
            other.barrier(second);
            world.backend.group(group -> {
                operate(group, world.rank(0), ones[0], world.stream(0));
                group.on(world.rank(0)).barrier(second);
            });
            world.allReduce(1, ones[1]);
            assertThat(world.stream(1).poll()).isFalse();
            world.rank(1).barrier(world.stream(1));
            other.abort(World.LONG);
            world.synchronize();
            assertThat(World.toArray(ones[0])).containsExactly(2);
            assertThatThrownBy(() -> second.synchronize(World.LONG))
                    .hasMessageContaining("aborted communicator 'other'");
        }
    }

    @Test
    void aRankMaySendToItselfInAGroup() {
        try (World world = new World(2)) {
            DeviceBuffer from = world.ints(0, 5, 6);
            DeviceBuffer to = world.zeros(0, 2);
            world.backend.group(group -> {
                Operations rank = group.on(world.rank(0));
                rank.recv(to, 2, DataType.INT32, 0, world.stream(0));
                rank.send(from, 2, DataType.INT32, 0, world.stream(0));
            });
            world.stream(0).synchronize(World.LONG);
            assertThat(World.toArray(to)).containsExactly(5, 6);
            world.rank(0).sendRecv(to, 1, 0, from, 1, 0, DataType.INT32, world.stream(0));
            world.stream(0).synchronize(World.LONG);
            String text =
                    "send and recv on rank 0/2 of communicator 'world': the peer is the rank itself,"
                            + " which needs a send and a recv in one group; nothing was enqueued";
            assertRefused(
                    () ->
                            world.backend.group(group ->
                                    group.on(world.rank(0))
                                            .send(from, 1, DataType.INT32, 0, world.stream(0))),
                    text);
            assertRefused(
                    () ->
                            world.rank(0)
                                    .sendRecv(
                                            from, 1, 0, to, 1, 1, DataType.INT32, world.stream(0)),
                    text);
            assertThat(world.rank(0).traffic().totalSentBytes()).isZero();
        }
    }

    @Test
    void aRingOfSendReceivesNeedsNoGroup() {
        try (World world = new World(3)) {
            DeviceBuffer[] from = new DeviceBuffer[3];
            DeviceBuffer[] to = new DeviceBuffer[3];
            for (int rank = 0; rank < 3; rank++) {
                from[rank] = world.ints(rank, rank, 10 + rank);
                to[rank] = world.zeros(rank, 2);
                world.rank(rank)
                        .sendRecv(
                                from[rank],
                                2,
                                (rank + 1) % 3,
                                to[rank],
                                2,
                                (rank + 2) % 3,
                                DataType.INT32,
                                world.stream(rank));
            }
            world.synchronize();
            assertThat(World.toArray(to[0])).containsExactly(2, 12);
            assertThat(world.rank(0).traffic().sentBytes()).containsExactly(0, 8, 0);
            assertThat(world.rank(0).traffic().receivedBytes()).containsExactly(0, 0, 8);
        }
    }

    @Test
    void aRecordedGroupIsIssuedAgainAndAgainWithoutAllocating() {
        try (World world = new World(2)) {
            DeviceBuffer[] buffers = {world.zeros(0, 256), world.zeros(1, 256)};
            RecordedGroup group =
                    world.backend.record(recorded -> {
                        operate(recorded, world.rank(0), buffers[0], world.stream(0));
                        operate(recorded, world.rank(1), buffers[1], world.stream(1));
                    });
            long least = Long.MAX_VALUE;
            for (int round = 0; round < 50; round++) {
                long before = allocatedBytes();
                for (int i = 0; i < 1000; i++) {
                    group.issue();
                }
                world.synchronize();
                least = Math.min(least, allocatedBytes() - before);
            }
            // Measuring and synchronizing allocate a little themselves.
            assertThat(least).isLessThan(1000);
        }
    }

    private static long allocatedBytes() {
        return ((com.sun.management.ThreadMXBean)
                        java.lang.management.ManagementFactory.getThreadMXBean())
                .getCurrentThreadAllocatedBytes();
    }

    @Test
    void issueChecksEverythingBeforeItEnqueuesAnything() {
        try (World world = new World(2)) {
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 1)};
            RecordedGroup group =
                    world.backend.record(recorded -> {
                        operate(recorded, world.rank(0), buffers[0], world.stream(0));
                        operate(recorded, world.rank(1), buffers[1], world.stream(1));
                    });
            group.issue();
            world.synchronize();
            buffers[1].close();
            assertThatThrownBy(group::issue)
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessageStartingWith(
                            "allReduce in a recorded group on rank 1/2 of communicator 'world':"
                                    + " buffer[device 1, ")
                    .hasMessageEndingWith(
                            "has been closed; nothing was enqueued; record the group anew");
            world.stream(0).synchronize(World.NOW);
            world.assertWorks();
            world.rank(0).barrier(world.stream(0));
            world.allReduce(1, world.zeros(1, 1));
            assertThatThrownBy(group::issue).isInstanceOf(MismatchException.class);
        }
    }

    @Test
    void communicatorsOfOthersAreRefused() {
        try (World world = new World(1)) {
            assertRefused(
                    () -> world.backend.group(group -> group.on(null)),
                    "group: the communicator is null; use those that this backend made");
            assertRefused(
                    () -> world.backend.closeAll(java.util.Collections.singletonList(null)),
                    "closeAll: the communicator is null; use those that this backend made");
        }
    }

    @Test
    void aGroupOfTwoCommunicatorsIsTwoBatches() {
        try (World world = new World(2)) {
            List<Communicator> others =
                    world.backend.createLocal(2, world.rank(0).config().withName("other"));
            DeviceBuffer[] ones = {world.ints(0, 1), world.ints(1, 1)};
            DeviceBuffer[] twos = {world.ints(0, 2), world.ints(1, 2)};
            for (int rank = 0; rank < 2; rank++) {
                int self = rank;
                world.backend.group(group -> {
                    operate(group, others.get(self), ones[self], world.stream(self));
                    operate(group, world.rank(self), twos[self], world.stream(self));
                });
            }
            world.synchronize();
            assertThat(World.toArray(ones[1])).containsExactly(2);
            assertThat(World.toArray(twos[1])).containsExactly(4);
            world.backend.closeAll(others);
        }
    }

    private static void operate(
            Group group, Communicator communicator, DeviceBuffer buffer, DeviceStream stream) {
        group.on(communicator)
                .allReduce(
                        buffer,
                        buffer,
                        buffer.sizeBytes() / 4,
                        DataType.INT32,
                        ReduceOp.SUM,
                        stream);
    }

    private static void join(Thread thread) {
        try {
            thread.join(10_000);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
        assertThat(thread.isAlive()).isFalse();
    }

    private static void assertRefused(Runnable call, String text) {
        assertThatThrownBy(call::run).isInstanceOf(InvalidArgumentException.class).hasMessage(text);
    }
}
