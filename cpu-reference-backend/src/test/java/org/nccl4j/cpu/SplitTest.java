package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.locks.LockSupport;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.MismatchException;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.RankFailedException;
import org.nccl4j.collectives.ReduceOp;

/** Split and exchange of counts: joined on the host, numbered with the operations. */
final class SplitTest {
    @Test
    void colorsFormCommunicatorsAndKeysOrderThem() {
        try (World world = new World(4)) {
            List<Optional<Communicator>> children =
                    world.backend
                            .split(
                                    world.ranks,
                                    new int[] {1, 0, 1, Communicator.NO_COLOR},
                                    new int[] {5, 0, -5, 0})
                            .await(World.LONG);
            assertThat(children.get(3)).isEmpty();
            assertThat(children.get(0).orElseThrow().rank()).isEqualTo(1);
            assertThat(children.get(2).orElseThrow().rank()).isZero();
            assertThat(children.get(2).orElseThrow().size()).isEqualTo(2);
            assertThat(children.get(2).orElseThrow().device()).isEqualTo(world.rank(2).device());
            assertThat(children.get(1).orElseThrow().size()).isEqualTo(1);
            DeviceBuffer[] buffers = {world.ints(0, 10), world.ints(2, 20)};
            int i = 0;
            for (int rank : new int[] {0, 2}) {
                children.get(rank)
                        .orElseThrow()
                        .allReduce(
                                buffers[i],
                                buffers[i++],
                                1,
                                DataType.INT32,
                                ReduceOp.SUM,
                                world.stream(rank));
            }
            world.synchronize();
            assertThat(World.toArray(buffers[0])).containsExactly(30);
            world.assertWorks();
            // A child outlives its parent.
            world.backend.closeAll(world.ranks);
            children.get(1).orElseThrow().barrier(world.newStream(1));
            List<Communicator> open = new ArrayList<>();
            children.forEach(child -> child.ifPresent(open::add));
            world.backend.closeAll(open);
        }
    }

    @Test
    void theNextOperationWaitsForTheSplit() {
        try (World world = new World(3)) {
            DeviceBuffer[] buffers = {world.ints(0, 7), world.ints(1, 8)};
            Pending<Optional<Communicator>> first = world.rank(0).split(0, 0);
            Pending<Optional<Communicator>> second = world.rank(1).split(0, 0);
            // Rank 2 is not needed for this, but the split before it is.
            world.rank(0).send(buffers[0], 1, DataType.INT32, 1, world.stream(0));
            world.rank(1).recv(buffers[1], 1, DataType.INT32, 0, world.stream(1));
            assertThat(first.isDone()).isFalse();
            assertThat(world.stream(1).poll()).isFalse();
            assertThatThrownBy(() -> second.await(Duration.ofMillis(20)))
                    .isInstanceOf(CollectiveTimeoutException.class)
                    .hasMessage(
                            "split #0 of communicator 'world' was not done within 0.02s; nothing"
                                    + " has changed, await it again");
            Pending<Optional<Communicator>> third = world.rank(2).split(1, 0);
            world.synchronize();
            assertThat(World.toArray(buffers[1])).containsExactly(7);
            List<Communicator> children = new ArrayList<>();
            for (Pending<Optional<Communicator>> pending : List.of(first, second, third)) {
                children.add(pending.await(World.NOW).orElseThrow());
                assertThat(pending.await(World.NOW).orElseThrow()).isSameAs(children.getLast());
            }
            assertThat(children.get(1).size()).isEqualTo(2);
            world.backend.closeAll(children);
        }
    }

    @Test
    void countsAreExchanged() {
        try (World world = new World(2)) {
            long[][] rows =
                    world.backend
                            .exchangeCounts(world.ranks, new long[][] {{1, 2}, {3, 4}})
                            .await(World.LONG);
            assertThat(rows).isDeepEqualTo(new long[][] {{1, 3}, {2, 4}});
            Pending<long[]> pending = world.rank(0).exchangeCounts(new long[] {5, 6});
            world.rank(1).exchangeCounts(new long[] {7, 8});
            long[] counts = pending.await(World.LONG);
            assertThat(counts).containsExactly(5, 7);
            counts[0] = 0;
            assertThat(pending.await(World.NOW)).containsExactly(5, 7);
        }
    }

    @Test
    void wrongArgumentsChangeNothing() {
        try (World world = new World(2)) {
            assertRefused(
                    () -> world.rank(0).split(-2, 0),
                    "split: color is -2, must be at least 0, or Communicator.NO_COLOR to join no"
                            + " group; nothing has changed");
            assertRefused(
                    () -> world.rank(0).exchangeCounts(new long[] {1, -1}),
                    "exchangeCounts on rank 0/2 of communicator 'world': needs 2 counts of at least"
                            + " 0, got [1, -1]; nothing has changed");
            assertRefused(
                    () -> world.backend.split(world.ranks, new int[1], new int[2]),
                    "split: 2 communicators need as many colors and keys, got 1 and 2; nothing has"
                            + " changed");
            assertRefused(
                    () ->
                            world.backend.split(
                                    List.of(world.rank(0), world.rank(0)), new int[2], new int[2]),
                    "split: rank 0/2 of communicator 'world' is given twice; nothing has changed");
            world.assertWorks();
        }
    }

    @Test
    void aSplitThatMeetsAnOperationIsAMismatch() {
        try (World world = new World(2)) {
            Pending<Optional<Communicator>> pending = world.rank(0).split(0, 0);
            world.rank(1).barrier(world.stream(1));
            assertThatThrownBy(() -> pending.await(World.LONG))
                    .isInstanceOf(MismatchException.class)
                    .hasMessageContaining("rank 0/2 called split(), rank 1/2 called barrier()");
            assertThatThrownBy(() -> world.stream(1).synchronize(World.LONG))
                    .isInstanceOf(MismatchException.class);
        }
    }

    @Test
    void aSplitThatARankStaysAwayFromTimesOut() {
        try (World world =
                new World(2, config -> config.withOperationTimeout(Duration.ofMillis(200)))) {
            Pending<Optional<Communicator>> pending = world.rank(0).split(0, 0);
            world.allReduce(0, world.zeros(0, 1));
            assertThatThrownBy(() -> pending.await(World.LONG))
                    .isInstanceOf(CollectiveTimeoutException.class)
                    .hasMessage(
                            "split #0 of communicator 'world' was not done within 0.2s: rank 0"
                                    + " joined; rank 1 has not called it and has called nothing;"
                                    + " look for a branch or an exception on rank 1, or raise"
                                    + " operationTimeout if it is only late; create a new"
                                    + " communicator");
            assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                    .isInstanceOf(CollectiveTimeoutException.class);
        }
    }

    @Test
    void aRankThatIsAlwaysOneHostCallAheadDoesNotTimeOut() {
        Duration timeout = Duration.ofMillis(400);
        try (World world = new World(2, config -> config.withOperationTimeout(timeout))) {
            long start = System.nanoTime();
            Pending<long[]> current = world.rank(0).exchangeCounts(new long[] {0, 0});
            for (int step = 0; System.nanoTime() - start < 3 * timeout.toNanos(); step++) {
                Pending<long[]> next = world.rank(0).exchangeCounts(new long[] {0, step + 1});
                LockSupport.parkNanos(Duration.ofMillis(20).toNanos());
                Pending<long[]> peer = world.rank(1).exchangeCounts(new long[2]);
                current.await(World.LONG);
                assertThat(peer.await(World.LONG)).containsExactly(step, 0);
                current = next;
            }
            world.rank(1).exchangeCounts(new long[2]).await(World.LONG);
            world.assertWorks();
        }
    }

    @Test
    void theOldestOfSeveralHostCallsIsBlamed() {
        try (World world =
                new World(2, config -> config.withOperationTimeout(Duration.ofMillis(200)))) {
            Pending<Optional<Communicator>> split = world.rank(0).split(0, 0);
            Pending<long[]> counts = world.rank(0).exchangeCounts(new long[2]);
            String text =
                    "split #0 of communicator 'world' was not done within 0.2s: rank 0 joined;"
                            + " rank 1 has not called it and has called nothing; look for a branch or an"
                            + " exception on rank 1, or raise operationTimeout if it is only late;"
                            + " create a new communicator";
            for (Pending<?> pending : List.of(split, counts)) {
                assertThatThrownBy(() -> pending.await(World.LONG))
                        .isInstanceOf(CollectiveTimeoutException.class)
                        .hasMessage(text);
            }
            assertTable(
                    world,
                    """
                    communicator 'world' failed
                      rank 0 on device 0: last called exchangeCounts #1 and waits for split #0; last completed nothing
                      rank 1 on device 1: has called nothing; last completed nothing\
                    """);
        }
    }

    @Test
    void theLogSaysWhichHostCallsAndOperationsARankWaitsFor() {
        try (World world =
                new World(3, config -> config.withOperationTimeout(Duration.ofMillis(200)))) {
            DeviceBuffer buffer = world.zeros(0, 1);
            world.rank(0).send(buffer, 1, DataType.INT32, 1, world.stream(0));
            Pending<long[]> counts = world.rank(0).exchangeCounts(new long[3]);
            world.rank(1).exchangeCounts(new long[3]);
            world.rank(1).barrier(world.stream(1));
            assertThatThrownBy(() -> counts.await(World.LONG))
                    .isInstanceOf(CollectiveTimeoutException.class);
            assertTable(
                    world,
                    """
                    communicator 'world' failed
                      rank 0 on device 0: last called exchangeCounts #0 and waits for send #0 to rank 1 and exchangeCounts #0; last completed nothing
                      rank 1 on device 1: last called barrier #1 and waits for exchangeCounts #0; last completed nothing
                      rank 2 on device 2: has called nothing; last completed nothing\
                    """);
        }
    }

    private static void assertTable(World world, String table) {
        // It is logged after those who wait have been woken.
        Awaitility.await()
                .atMost(World.LONG)
                .until(() -> !world.log.entries(System.Logger.Level.ERROR).isEmpty());
        assertThat(world.log.entries(System.Logger.Level.ERROR).getFirst().text())
                .isEqualToNormalizingNewlines(table);
    }

    @Test
    void aSplitThatNeedsARankThatHasClosedFails() {
        try (World world = new World(2)) {
            Pending<Optional<Communicator>> pending = world.rank(0).split(0, 0);
            world.rank(1).close();
            assertThatThrownBy(() -> pending.await(World.LONG))
                    .isInstanceOf(RankFailedException.class);
            assertThat(world.rank(0).status()).isInstanceOf(CommunicatorStatus.Aborted.class);
        }
    }

    private static void assertRefused(Runnable call, String text) {
        assertThatThrownBy(call::run).isInstanceOf(InvalidArgumentException.class).hasMessage(text);
    }
}
