package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowableOfType;

import java.lang.System.Logger.Level;
import java.lang.foreign.Arena;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveException.Recovery;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorAbortedException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.MismatchException;
import org.nccl4j.collectives.RankFailedException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UnsupportedException;

/** One failure ends a communicator on all its ranks, says who did what, and nothing else. */
final class FailureTest {
    private static final Duration SHORT = Duration.ofMillis(300);

    // ---- what cannot be told

    /** What is thrown where nothing is left to put it into words. */
    private static final class Unspeakable extends RuntimeException {
        private static final long serialVersionUID = 1L;
        private final transient Error instead;

        Unspeakable(Error instead) {
            this.instead = instead;
        }

        @Override
        public String toString() {
            throw instead;
        }
    }

    private static List<Error> errors() {
        return List.of(new StackOverflowError(), new OutOfMemoryError(), new InternalError());
    }

    @ParameterizedTest
    @MethodSource("errors")
    void anOperationThatBreaksWithoutWordsDoesNotEndAsASuccess(Error instead) {
        for (int count : new int[] {1, 1 << 20}) {
            HookedEngine engine =
                    new HookedEngine(
                            new DirectEngine(),
                            (operation, share) -> {
                                throw new Unspeakable(instead);
                            });
            try (World world = new World(2, 2, engine, config -> config)) {
                world.allReduce(0, world.zeros(0, count));
                world.allReduce(1, world.zeros(1, count));
                for (int rank = 0; rank < 2; rank++) {
                    DeviceStream stream = world.stream(rank);
                    assertThatThrownBy(() -> stream.synchronize(World.LONG))
                            .isInstanceOf(UnsupportedException.class)
                            .hasMessageContaining("create a new communicator");
                    assertThat(stream.poll()).isTrue();
                }
                assertThat(world.rank(0).status()).isInstanceOf(CommunicatorStatus.Aborted.class);
            }
        }
    }

    // ---- ranks that disagree

    @Test
    void countsThatDifferAreAMismatchOnEveryRank() {
        try (World world = new World(2)) {
            world.allReduce(0, world.zeros(0, 1024));
            world.allReduce(1, world.zeros(1, 1023));
            String text =
                    "communicator 'world': ranks disagree about collective #0: rank 0/2 called"
                            + " allReduce(count 1024, INT32, SUM), rank 1/2 called allReduce(count"
                            + " 1023, INT32, SUM); make the same calls in the same order on every"
                            + " rank and create a new communicator";
            for (int rank = 0; rank < 2; rank++) {
                DeviceStream stream = world.stream(rank);
                assertThatThrownBy(() -> stream.synchronize(World.LONG))
                        .isInstanceOf(MismatchException.class)
                        .hasMessage(text);
                // Thrown once, then the stream is as good as new.
                stream.synchronize(World.NOW);
                assertThat(stream.poll()).isTrue();
                assertThat(world.rank(rank).status())
                        .isInstanceOf(CommunicatorStatus.Aborted.class);
                int number = rank;
                assertThatThrownBy(() -> world.allReduce(number, world.zeros(number, 1)))
                        .isInstanceOf(MismatchException.class)
                        .hasMessage(text);
            }
            assertThat(world.log.entries(Level.ERROR)).hasSize(1);
            assertThat(world.log.entries(Level.ERROR).getFirst().text())
                    .isEqualToNormalizingNewlines(
                            """
                            communicator 'world' failed
                              rank 0 on device 0: last called allReduce #0 and waits for allReduce #0; last completed nothing
                              rank 1 on device 1: last called allReduce #0 and waits for allReduce #0; last completed nothing\
                            """);
        }
    }

    @Test
    void aGroupThatFailsItsCommunicatorHalfwayTellsAllItsStreams() {
        for (boolean abort : new boolean[] {true, false}) {
            try (World world = new World(4, config -> config.withAbortOnFailure(abort))) {
                DeviceBuffer[] buffers = new DeviceBuffer[4];
                for (int rank = 0; rank < 4; rank++) {
                    buffers[rank] = world.zeros(rank, rank == 1 ? 2 : 1);
                }
                world.backend.group(group -> {
                    for (int rank = 0; rank < 4; rank++) {
                        group.on(world.rank(rank))
                                .broadcast(
                                        buffers[rank],
                                        buffers[rank],
                                        rank == 1 ? 2 : 1,
                                        DataType.INT32,
                                        0,
                                        world.stream(rank));
                    }
                });
                for (DeviceStream stream : world.streams) {
                    assertThatThrownBy(() -> stream.synchronize(World.LONG))
                            .isInstanceOf(MismatchException.class);
                }
                world.rank(0).abort(World.LONG);
                for (DeviceBuffer buffer : buffers) {
                    var scope = buffer.hostSegment().scope();
                    buffer.close();
                    assertThat(scope.isAlive()).isFalse();
                }
                if (abort) {
                    world.synchronize();
                }
            }
        }
    }

    @Test
    void everyPartOfACallIsCompared() {
        try (World world = new World(2)) {
            world.rank(0).barrier(world.stream(0));
            world.rank(1)
                    .broadcast(
                            world.zeros(1, 1),
                            world.zeros(1, 1),
                            1,
                            DataType.INT32,
                            1,
                            world.stream(1));
            assertFailure(
                    world,
                    MismatchException.class,
                    "rank 0/2 called barrier(), rank 1/2 called broadcast(count 1, INT32, root 1)");
        }
        try (World world = new World(2)) {
            for (int rank = 0; rank < 2; rank++) {
                world.rank(rank)
                        .reduce(
                                world.zeros(rank, 1),
                                world.zeros(rank, 1),
                                1,
                                DataType.INT32,
                                ReduceOp.MAX,
                                rank,
                                world.stream(rank));
            }
            assertFailure(
                    world, MismatchException.class, "root 0), rank 1/2 called reduce(count 1");
        }
        try (World world = new World(2)) {
            for (int rank = 0; rank < 2; rank++) {
                world.rank(rank)
                        .allReduce(
                                world.zeros(rank, 1),
                                world.zeros(rank, 1),
                                1,
                                rank == 0 ? DataType.INT32 : DataType.FLOAT32,
                                ReduceOp.MAX,
                                world.stream(rank));
            }
            assertFailure(world, MismatchException.class, "INT32, MAX), rank 1/2");
        }
        try (World world = new World(2)) {
            for (int rank = 0; rank < 2; rank++) {
                world.rank(rank)
                        .reduceScatterV(
                                world.zeros(rank, 4),
                                world.zeros(rank, 4),
                                BlockLayout.packed(1 + rank, 3 - rank),
                                DataType.INT32,
                                ReduceOp.preMulSum(DataType.INT32, rank),
                                world.stream(rank));
            }
            assertFailure(
                    world,
                    MismatchException.class,
                    "reduceScatterV(counts [1, 3], INT32, preMulSum), rank 1/2 called"
                            + " reduceScatterV(counts [2, 2], INT32, preMulSum)");
        }
    }

    @Test
    void scalarsOfAPreMultipliedSumMayDiffer() {
        try (World world = new World(2)) {
            DeviceBuffer[] buffers = {world.ints(0, 3), world.ints(1, 5)};
            for (int rank = 0; rank < 2; rank++) {
                world.rank(rank)
                        .allReduce(
                                buffers[rank],
                                buffers[rank],
                                1,
                                DataType.INT32,
                                ReduceOp.preMulSum(DataType.INT32, 10 + rank),
                                world.stream(rank));
            }
            world.synchronize();
            assertThat(World.toArray(buffers[0])).containsExactly(3 * 10 + 5 * 11);
        }
    }

    @Test
    void anAllToAllVNamesThePairAndBothNumbers() {
        try (World world = new World(2)) {
            long expected = 1_597_440;
            DeviceBuffer large = world.zeros(1, (int) expected);
            world.rank(0)
                    .allToAllV(
                            null,
                            null,
                            new AllToAllVPlan(BlockLayout.packed(0, 0), BlockLayout.packed(0, 0)),
                            DataType.INT32,
                            world.stream(0));
            world.rank(1)
                    .allToAllV(
                            null,
                            large,
                            new AllToAllVPlan(
                                    BlockLayout.packed(0, 0), BlockLayout.packed(expected, 0)),
                            DataType.INT32,
                            world.stream(1));
            for (DeviceStream stream : world.streams) {
                assertThatThrownBy(() -> stream.synchronize(World.LONG))
                        .isInstanceOf(MismatchException.class)
                        .hasMessage(
                                "communicator 'world': ranks disagree about allToAllV #0: rank 0"
                                        + " sends 0 elements to rank 1, rank 1 expects 1597440;"
                                        + " make the plans from exchangeCounts and create a new"
                                        + " communicator");
            }
        }
    }

    @Test
    void aSendAndAReceiveMustFit() {
        try (World world = new World(3)) {
            world.rank(2).send(world.zeros(2, 7), 7, DataType.INT32, 0, world.stream(2));
            world.rank(0).recv(world.zeros(0, 8), 8, DataType.INT32, 2, world.stream(0));
            for (int rank : new int[] {0, 2}) {
                DeviceStream stream = world.stream(rank);
                assertThatThrownBy(() -> stream.synchronize(World.LONG))
                        .isInstanceOf(MismatchException.class)
                        .hasMessage(
                                "communicator 'world': the two sides of send/recv #0 from rank 2"
                                        + " to rank 0 disagree: rank 2/3 called send(count 7,"
                                        + " INT32, to rank 0), rank 0/3 called recv(count 8, INT32,"
                                        + " from rank 2); send and receive the same count and type,"
                                        + " in the same order, and create a new communicator");
            }
            // It had no work, so its stream has nothing to tell.
            world.stream(1).synchronize(World.NOW);
            assertThat(world.rank(1).status()).isInstanceOf(CommunicatorStatus.Aborted.class);
        }
    }

    @Test
    void anEmptyCallMustFitToo() {
        try (World world = new World(2)) {
            world.allReduce(0, DeviceBuffer.EMPTY);
            world.stream(0).synchronize(World.NOW);
            world.allReduce(1, world.zeros(1, 5));
            assertThatThrownBy(() -> world.stream(1).synchronize(World.LONG))
                    .isInstanceOf(MismatchException.class)
                    .hasMessageContaining("rank 0/2 called allReduce(count 0, INT32, SUM)");
        }
    }

    // ---- deadlines

    @Test
    void aTimeoutNamesTheRankThatStaysAway() {
        try (World world = new World(3, config -> config.withOperationTimeout(SHORT))) {
            world.assertWorks();
            long start = System.nanoTime();
            world.allReduce(0, world.zeros(0, 10));
            world.rank(1).barrier(world.stream(1));
            assertFailure(world, MismatchException.class, "rank 0/3 called allReduce");
            assertThat(System.nanoTime() - start).isLessThan(SHORT.toNanos());
        }
        try (World world = new World(3, config -> config.withOperationTimeout(SHORT))) {
            world.assertWorks();
            long start = System.nanoTime();
            world.allReduce(0, world.zeros(0, 10));
            world.allReduce(2, world.zeros(2, 10));
            CollectiveTimeoutException thrown =
                    catchThrowableOfType(
                            CollectiveTimeoutException.class,
                            () -> world.stream(0).synchronize(World.LONG));
            assertThat(Duration.ofNanos(System.nanoTime() - start))
                    .isBetween(SHORT, SHORT.plusMillis(1500));
            assertThat(thrown)
                    .hasMessage(
                            "allReduce(count 10, INT32, SUM), #1 of communicator 'world', was not"
                                    + " done on rank 0/3 within 0.3s: rank 0, rank 2 joined; rank 1"
                                    + " has not called it and last called allReduce #0, which is"
                                    + " complete; look for a branch or an exception on rank 1, or"
                                    + " raise operationTimeout if it is only late; create a new"
                                    + " communicator");
            assertThat(thrown.recovery()).isEqualTo(Recovery.RECREATE_COMMUNICATOR);
            assertThatThrownBy(() -> world.stream(2).synchronize(World.LONG))
                    .hasMessage(thrown.getMessage());
            assertThatThrownBy(() -> world.allReduce(1, world.zeros(1, 10)))
                    .isInstanceOf(CollectiveTimeoutException.class);
        }
    }

    @Test
    void aTimeoutSaysWhatKeepsARank() {
        try (World world = new World(2, config -> config.withOperationTimeout(SHORT))) {
            CpuBackend other = world.backend;
            List<Communicator> never =
                    other.createLocal(2, world.rank(0).config().withOperationTimeout(World.LONG));
            DeviceEvent event = world.rank(0).device().createEvent();
            DeviceStream stuck = world.newStream(0);
            never.get(0).barrier(stuck);
            stuck.record(event);
            world.stream(0).waitFor(event);
            world.rank(0).barrier(world.stream(0));
            world.rank(1).barrier(world.stream(1));
            assertThatThrownBy(() -> world.stream(1).synchronize(World.LONG))
                    .isInstanceOf(CollectiveTimeoutException.class)
                    .hasMessage(
                            "barrier(), #0 of communicator 'world', was not done on rank 1/2 within"
                                    + " 0.3s: rank 1 joined; rank 0 has called it, but stream 0 of"
                                    + " device 0 has not come to it: an event of stream"
                                    + " 2 of device 0 is waited for, where barrier #0 of"
                                    + " communicator 'world' is not done; create a new"
                                    + " communicator");
            never.get(0).abort(World.LONG);
        }
    }

    @Test
    void twoRanksThatBothSendFirstGetAHint() {
        try (World world = new World(2, config -> config.withOperationTimeout(SHORT))) {
            int count = 4 << 20;
            DeviceBuffer[] out = {world.zeros(0, count), world.zeros(1, count)};
            DeviceBuffer[] in = {world.zeros(0, count), world.zeros(1, count)};
            for (int rank = 0; rank < 2; rank++) {
                DeviceStream stream = world.stream(rank);
                world.rank(rank).send(out[rank], count, DataType.INT32, 1 - rank, stream);
                world.rank(rank).recv(in[rank], count, DataType.INT32, 1 - rank, stream);
            }
            for (DeviceStream stream : world.streams) {
                assertThatThrownBy(() -> stream.synchronize(World.LONG))
                        .isInstanceOf(CollectiveTimeoutException.class)
                        .hasMessageMatching(
                                "send\\(count 4194304, INT32, to rank (\\d)\\), #0 of communicator"
                                        + " 'world', was not done on rank \\d/2 within 0.3s: rank \\d"
                                        + " joined; rank \\1 has called it, but stream \\d of device \\1"
                                        + " has not come to it: send #0 to rank \\d of"
                                        + " communicator 'world' is not done; both"
                                        + " send first: put send and recv in one Backend.group or use"
                                        + " sendRecv; create a new communicator");
            }
        }
        try (World world = new World(2)) {
            int count = 4 << 20;
            DeviceBuffer[] out = {world.zeros(0, count), world.zeros(1, count)};
            DeviceBuffer[] in = {world.zeros(0, count), world.zeros(1, count)};
            for (int rank = 0; rank < 2; rank++) {
                out[rank].hostSegment().fill((byte) (rank + 1));
                int self = rank;
                world.backend.group(group -> {
                    DeviceStream stream = world.stream(self);
                    var operations = group.on(world.rank(self));
                    operations.send(out[self], count, DataType.INT32, 1 - self, stream);
                    operations.recv(in[self], count, DataType.INT32, 1 - self, stream);
                });
            }
            world.synchronize();
            assertThat(in[0].hostSegment().mismatch(out[1].hostSegment())).isEqualTo(-1);
            assertThat(in[1].hostSegment().mismatch(out[0].hostSegment())).isEqualTo(-1);
        }
    }

    @Test
    void synchronizeThatRunsOutOfTimeChangesNothing() {
        try (World world = new World(2)) {
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 2)};
            world.allReduce(0, buffers[0]);
            CollectiveTimeoutException thrown =
                    catchThrowableOfType(
                            CollectiveTimeoutException.class,
                            () -> world.stream(0).synchronize(Duration.ofMillis(30)));
            assertThat(thrown)
                    .hasMessage(
                            "stream 0 of device 0 was not done within 0.03s: allReduce(count 1,"
                                    + " INT32, SUM), #0 of communicator 'world', is not done: rank 0"
                                    + " joined; rank 1 has not called it and has called nothing;"
                                    + " one thread that drives several ranks must use"
                                    + " Backend.group; nothing has changed, synchronize again or abort the"
                                    + " communicator");
            assertThat(thrown.recovery()).isEqualTo(Recovery.RETRY);
            world.allReduce(1, buffers[1]);
            world.synchronize();
            assertThat(World.toArray(buffers[0])).containsExactly(3);
        }
    }

    // ---- failures without automatic abort

    @Test
    void withoutAutomaticAbortWorkStaysUntilTheUserAborts() {
        try (World world = new World(2, config -> config.withAbortOnFailure(false))) {
            DeviceStream stream = world.stream(0);
            DeviceBuffer after = world.ints(0, 7);
            world.allReduce(0, world.zeros(0, 1));
            stream.fill(after, (byte) 0);
            world.rank(1).barrier(world.stream(1));
            for (int i = 0; i < 2; i++) {
                assertThatThrownBy(() -> stream.synchronize(World.LONG))
                        .isInstanceOf(MismatchException.class);
                assertThatThrownBy(stream::poll).isInstanceOf(MismatchException.class);
            }
            assertThat(world.rank(1).status()).isInstanceOf(CommunicatorStatus.Failed.class);
            assertThat(World.toArray(after)).containsExactly(7);
            world.rank(0).abort(World.LONG);
            for (Communicator rank : world.ranks) {
                assertThat(rank.status())
                        .isInstanceOfSatisfying(
                                CommunicatorStatus.Aborted.class,
                                aborted ->
                                        assertThat(aborted.cause())
                                                .isInstanceOf(MismatchException.class));
            }
            assertThatThrownBy(() -> stream.synchronize(World.LONG))
                    .isInstanceOf(MismatchException.class);
            stream.synchronize(World.LONG);
            assertThat(World.toArray(after)).containsExactly(0);
        }
    }

    // ---- abort

    @Test
    void abortFromAnotherThreadEndsEveryRank() throws Exception {
        try (World world = new World(2)) {
            DeviceBuffer after = world.ints(0, 7);
            world.allReduce(0, world.zeros(0, 10));
            world.stream(0).fill(after, (byte) 0);
            Thread aborter =
                    Thread.ofVirtual().start(() -> world.rank(1).abort(Duration.ofSeconds(5)));
            assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                    .isInstanceOf(CommunicatorAbortedException.class)
                    .hasMessage(
                            "rank 1/2 aborted communicator 'world' after nothing; its unfinished"
                                    + " work was given up on every rank; create a new communicator");
            aborter.join();
            world.stream(0).synchronize(World.LONG);
            assertThat(World.toArray(after)).containsExactly(0);
            assertThatThrownBy(() -> world.allReduce(0, world.zeros(0, 10)))
                    .isInstanceOf(CommunicatorAbortedException.class);
            world.rank(0).abort(World.NOW);
            assertThat(world.log.entries(Level.ERROR)).isEmpty();
        }
    }

    @Test
    void abortWaitsUntilNoDataIsMovedAnyMore() throws Exception {
        CountDownLatch moving = new CountDownLatch(1);
        CountDownLatch release = new CountDownLatch(1);
        Engine engine =
                new HookedEngine((operation, participant) -> {
                    moving.countDown();
                    awaitUninterrupted(release);
                });
        try (World world = new World(2, 2, engine, config -> config)) {
            world.allReduce(0, world.zeros(0, 100_000));
            world.allReduce(1, world.zeros(1, 100_000));
            assertThat(moving.await(10, TimeUnit.SECONDS)).isTrue();
            assertThatThrownBy(() -> world.rank(0).abort(Duration.ofMillis(50)))
                    .isInstanceOf(CollectiveTimeoutException.class)
                    .hasMessage(
                            "the abort of rank 0/2 of communicator 'world' did not come through"
                                    + " within 0.05s: data of its operations is still being moved;"
                                    + " call it again to go on waiting");
            assertThat(world.rank(0).status()).isInstanceOf(CommunicatorStatus.Failed.class);
            assertThatThrownBy(() -> world.stream(1).synchronize(Duration.ofMillis(50)))
                    .isInstanceOf(CommunicatorAbortedException.class);
            release.countDown();
            world.rank(0).abort(World.LONG);
            assertThat(world.rank(1).status()).isInstanceOf(CommunicatorStatus.Aborted.class);
        }
    }

    // ---- a rank that breaks

    /** What a share stands for, a rank or a part of the data, is the engine's own business. */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void anEngineThatThrowsBlamesNoRank(boolean direct) {
        IllegalStateException thrown = new IllegalStateException("no more");
        for (int count : new int[] {10, 1 << 20}) {
            // The last share of the direct engine is number 0 if the data is short, else 1.
            int broken = !direct ? 2 : count == 10 ? 0 : 1;
            Engine engine =
                    new HookedEngine(
                            direct
                                    ? new DirectEngine(2, KernelChoice.plain(), 256 << 10, 4 << 10)
                                    : new ReferenceEngine(),
                            (operation, share) -> {
                                if (share == broken && operation.sequence() == 1) {
                                    throw thrown;
                                }
                            });
            try (World world = new World(3, 2, engine, config -> config)) {
                for (int i = 0; i < 2; i++) {
                    for (int rank = 0; rank < 3; rank++) {
                        world.allReduce(rank, world.zeros(rank, count));
                    }
                }
                for (DeviceStream stream : world.streams) {
                    assertThatThrownBy(() -> stream.synchronize(World.LONG))
                            .isInstanceOfSatisfying(
                                    RankFailedException.class,
                                    failure -> {
                                        assertThat(failure.failedRank())
                                                .isEqualTo(RankFailedException.NO_RANK);
                                        assertThat(failure.recovery())
                                                .isEqualTo(
                                                        CollectiveException.Recovery
                                                                .RECREATE_COMMUNICATOR);
                                    })
                            .hasMessage(
                                    "communicator 'world': engine 'hooked' broke in allReduce #1 of"
                                            + " 3 ranks, share "
                                            + broken
                                            + ": java.lang.IllegalStateException: no more; no rank"
                                            + " did anything wrong, this is a bug of nccl4j: report"
                                            + " it with this exception and its causes; create a new"
                                            + " communicator, and to go on meanwhile let it run"
                                            + " another algorithm, by"
                                            + " CommunicatorConfig.withAlgorithm(\"reference\"),"
                                            + " NCCL4J_CPU_ALGORITHM=reference or --algo reference"
                                            + " of bench")
                            .hasRootCause(thrown);
                }
            }
        }
    }

    /** The heap is full, or the file behind a buffer was shortened: no bug of the engine. */
    @Test
    void whatTheMachineLacksIsNotTheEnginesFault() {
        Map<Error, String> faults =
                Map.of(
                        new OutOfMemoryError("Java heap space"),
                        "communicator 'world' failed because the heap was full; give the JVM more",
                        new InternalError("a fault occurred in an unsafe memory access operation"),
                        "see whether a file that it is mapped from was shortened");
        faults.forEach((fault, words) -> {
            Engine engine =
                    new HookedEngine((operation, share) -> {
                        throw fault;
                    });
            try (World world = new World(2, 2, engine, config -> config)) {
                world.allReduce(0, world.zeros(0, 10));
                world.allReduce(1, world.zeros(1, 10));
                assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                        .isInstanceOf(CollectiveException.class)
                        .hasMessageContaining(words)
                        .hasMessageNotContaining("bug");
            }
        });
    }

    @Test
    void anEngineThatIsStuckIsAFailureNotAWait() {
        Engine engine =
                new Engine() {
                    @Override
                    public String name() {
                        return "stuck";
                    }

                    @Override
                    public long steps(JoinedOperation operation) {
                        return operation.participants();
                    }

                    @Override
                    public Run start(JoinedOperation operation) {
                        return new Run() {
                            @Override
                            public int shares() {
                                return operation.participants();
                            }

                            @Override
                            public Progress progress(int share) {
                                return Progress.BLOCKED;
                            }

                            @Override
                            public void finish(boolean done) {}
                        };
                    }
                };
        for (int count : new int[] {10, 1 << 20}) {
            try (World world = new World(2, 2, engine, config -> config)) {
                world.allReduce(0, world.zeros(0, count));
                world.allReduce(1, world.zeros(1, count));
                assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                        .isInstanceOf(RankFailedException.class)
                        .hasMessageContaining("this is a bug of the engine");
            }
        }
    }

    @Test
    void aSharedArenaClosedEarlyNamesItsRank() throws Exception {
        CountDownLatch closed = new CountDownLatch(1);
        CountDownLatch moving = new CountDownLatch(1);
        Engine engine =
                new HookedEngine((operation, participant) -> {
                    moving.countDown();
                    awaitUninterrupted(closed);
                });
        try (World world = new World(2, 2, engine, config -> config);
                Arena open = Arena.ofShared()) {
            Arena early = Arena.ofShared();
            int count = 1 << 20;
            world.allReduce(0, DeviceBuffer.wrap(open.allocate(4L * count, 64)));
            world.allReduce(1, DeviceBuffer.wrap(early.allocate(4L * count, 64)));
            assertThat(moving.await(10, TimeUnit.SECONDS)).isTrue();
            early.close();
            closed.countDown();
            for (DeviceStream stream : world.streams) {
                assertThatThrownBy(() -> stream.synchronize(World.LONG))
                        .isInstanceOfSatisfying(
                                RankFailedException.class,
                                failure -> assertThat(failure.failedRank()).isEqualTo(1))
                        .hasMessage(
                                "rank 1/2 of communicator 'world' broke in allReduce #0: the arena"
                                        + " of its buffer was closed before the operation was"
                                        + " complete; keep it open until the stream is"
                                        + " synchronized; create a new communicator");
            }
        }
    }

    /** The JVM interrupts who uses an arena that another thread closes. */
    @Test
    void aSharedArenaClosedEarlyLeavesNobodyInterrupted() {
        AtomicReference<Arena> early = new AtomicReference<>();
        Engine engine =
                new HookedEngine((operation, participant) -> {
                    // Whoever moves another's data may well not come to this memory for a while.
                    Arena arena = participant == 1 ? early.getAndSet(null) : null;
                    if (arena != null) {
                        arena.close();
                        Thread.currentThread().interrupt();
                    }
                });
        for (int count : new int[] {10, 1 << 20}) {
            for (boolean interrupted : new boolean[] {false, true}) {
                try (World world = new World(2, 2, engine, config -> config)) {
                    Arena arena = Arena.ofShared();
                    DeviceBuffer buffer = DeviceBuffer.wrap(arena.allocate(4L * count, 64));
                    early.set(arena);
                    world.allReduce(0, world.zeros(0, count));
                    if (interrupted) {
                        Thread.currentThread().interrupt();
                    }
                    world.allReduce(1, buffer);
                    assertThat(Thread.interrupted()).isEqualTo(interrupted);
                    assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                            .isInstanceOf(RankFailedException.class);
                    assertThat(Thread.interrupted()).isFalse();
                }
            }
        }
    }

    @Test
    void anArenaClosedWhileItsOperationWaitsNamesItsRank() {
        try (World world = new World(2)) {
            Arena early = Arena.ofShared();
            world.allReduce(0, DeviceBuffer.wrap(early.allocate(400, 64)));
            early.close();
            world.allReduce(1, world.zeros(1, 100));
            assertThatThrownBy(() -> world.stream(1).synchronize(World.LONG))
                    .isInstanceOfSatisfying(
                            RankFailedException.class,
                            failure -> assertThat(failure.failedRank()).isEqualTo(0));
        }
    }

    // ---- wrong arguments

    @Test
    void wrongArgumentsLeaveTheCommunicatorUsable() {
        try (World world = new World(2)) {
            Communicator rank = world.rank(0);
            DeviceStream stream = world.stream(0);
            DeviceBuffer ten = world.zeros(0, 10);
            DeviceBuffer other = world.zeros(0, 10);
            assertRefused(
                    () -> rank.broadcast(ten, ten, 1, DataType.INT32, -1, stream),
                    "broadcast on rank 0/2: root is -1, must be 0 to 1; nothing was enqueued");
            assertRefused(
                    () -> rank.broadcast(ten, ten, 1, DataType.INT32, 2, stream),
                    "broadcast on rank 0/2: root is 2, must be 0 to 1; nothing was enqueued");
            assertRefused(
                    () -> rank.send(ten, 1, DataType.INT32, 2, stream),
                    "send on rank 0/2: peer is 2, must be 0 to 1; nothing was enqueued");
            assertRefused(
                    () -> rank.allReduce(ten, ten, -1, DataType.INT32, ReduceOp.SUM, stream),
                    "allReduce on rank 0/2: count is -1, must be at least 0; nothing was enqueued");
            assertThatThrownBy(() ->
                            rank.allReduce(ten, ten, 11, DataType.INT32, ReduceOp.SUM, stream))
                    .isInstanceOf(InvalidArgumentException.class);
            assertThatThrownBy(() ->
                            rank.allReduce(
                                    ten.slice(0, 32),
                                    ten.slice(4, 32),
                                    8,
                                    DataType.INT32,
                                    ReduceOp.SUM,
                                    stream))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessageContaining("overlaps");
            assertRefused(
                    () -> rank.send(ten, 1, DataType.INT32, 0, stream),
                    "send and recv on rank 0/2 of communicator 'world': the peer is the rank"
                            + " itself, which needs a send and a recv in one group; nothing was"
                            + " enqueued");
            other.close();
            assertThatThrownBy(() ->
                            rank.allReduce(ten, other, 8, DataType.INT32, ReduceOp.SUM, stream))
                    .isInstanceOf(InvalidArgumentException.class);
            assertThatThrownBy(() ->
                            rank.allReduce(
                                    ten, ten, 8, DataType.INT32, ReduceOp.SUM, world.stream(1)))
                    .isInstanceOf(InvalidArgumentException.class);
            stream.close();
            assertRefused(
                    () -> rank.barrier(stream),
                    "barrier: stream 0 of device 0 has been closed; make another with"
                            + " device().createStream()");
            world.streams.set(0, world.newStream(0));
            world.assertWorks();
        }
    }

    // ---- close

    @Test
    void aRankThatClosesTooEarlyIsNamed() {
        try (World world = new World(2)) {
            world.assertWorks();
            world.allReduce(0, world.zeros(0, 3));
            world.rank(1).close();
            world.rank(1).close();
            assertThat(world.rank(1).status()).isInstanceOf(CommunicatorStatus.Closed.class);
            assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                    .isInstanceOfSatisfying(
                            RankFailedException.class,
                            failure -> assertThat(failure.failedRank()).isEqualTo(1))
                    .hasMessage(
                            "rank 1/2 closed its communicator 'world' before joining allReduce #1,"
                                    + " which rank 0 called; look for an exception on rank 1, and"
                                    + " close a communicator when its last operation is complete"
                                    + " on every rank");
            world.rank(0).close();
        }
        try (World world = new World(2)) {
            world.rank(1).close();
            world.allReduce(0, DeviceBuffer.EMPTY);
            world.stream(0).synchronize(World.NOW);
            world.rank(0).send(world.zeros(0, 1), 1, DataType.INT32, 1, world.stream(0));
            assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                    .isInstanceOf(RankFailedException.class)
                    .hasMessageStartingWith(
                            "rank 1/2 closed its communicator 'world' before joining send/recv #0"
                                    + " from rank 0 to rank 1");
            DeviceStream stream = world.stream(1);
            DeviceBuffer buffer = world.zeros(1, 1);
            String closed =
                    " on rank 1/2 of communicator 'world': it has been closed; nothing was enqueued;"
                            + " create a new communicator";
            assertRefused(() -> world.rank(1).barrier(stream), "barrier" + closed);
            assertRefused(
                    () -> world.rank(1).send(buffer, 1, DataType.INT32, 0, stream),
                    "send" + closed);
            assertRefused(
                    () -> world.rank(1).recv(buffer, 1, DataType.INT32, 0, stream),
                    "recv" + closed);
        }
    }

    @Test
    void oneFailureStandsForAllOperationsThatARankLeaves() {
        try (World world = new World(2)) {
            DeviceBuffer buffer = world.zeros(0, 3);
            for (int i = 0; i < 1000; i++) {
                world.allReduce(0, buffer);
            }
            world.rank(1).close();
            assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                    .isInstanceOf(RankFailedException.class)
                    .hasMessageContaining("before joining allReduce #0")
                    .hasNoSuppressedExceptions()
                    .cause()
                    .hasNoSuppressedExceptions();
        }
    }

    @Test
    void closeWithWorkThatCannotEndThrowsItsFailureAndCloses() {
        try (World world = new World(2, config -> config.withOperationTimeout(SHORT))) {
            world.allReduce(0, world.zeros(0, 3));
            long start = System.nanoTime();
            assertThatThrownBy(() -> world.rank(0).close())
                    .isInstanceOf(CollectiveTimeoutException.class)
                    .hasMessageContaining("rank 1 has not called it");
            assertThat(Duration.ofNanos(System.nanoTime() - start))
                    .isLessThan(SHORT.plusMillis(1500));
            assertThat(world.rank(0).status()).isInstanceOf(CommunicatorStatus.Aborted.class);
            world.rank(0).close();
            world.rank(1).close();
        }
    }

    @Test
    void closeWaitsForWorkThatEnds() throws Exception {
        try (World world = new World(2)) {
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 2)};
            world.allReduce(0, buffers[0]);
            Thread closer = Thread.ofPlatform().start(() -> world.rank(0).close());
            Awaitility.await()
                    .atMost(World.LONG)
                    .until(() -> world.rank(0).status() instanceof CommunicatorStatus.Closing);
            world.allReduce(1, buffers[1]);
            closer.join();
            world.stream(0).synchronize(World.NOW);
            assertThat(World.toArray(buffers[0])).containsExactly(3);
        }
    }

    @Test
    void anInterruptedCloseCanBeRepeated() {
        try (World world = new World(2)) {
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 2)};
            world.allReduce(0, buffers[0]);
            Thread.currentThread().interrupt();
            assertThatThrownBy(() -> world.rank(0).close())
                    .hasMessage(
                            "interrupted while closing rank 0/2 of communicator 'world', whose work"
                                    + " is not complete; it is still open, close it again");
            assertThat(Thread.interrupted()).isTrue();
            world.allReduce(1, buffers[1]);
            world.synchronize();
        }
    }

    @Test
    void closeAllTellsTheFirstFailureAndClosesAll() {
        World world = new World(2, config -> config.withOperationTimeout(SHORT));
        world.allReduce(0, world.zeros(0, 3));
        assertThatThrownBy(world::close).isInstanceOf(CollectiveTimeoutException.class);
        for (Communicator rank : world.ranks) {
            assertThat(rank.status()).isInstanceOf(CommunicatorStatus.Aborted.class);
        }
        world.close();
    }

    @Test
    void aStreamThatHasThrownAFailureForgetsItsCommunicator() {
        CpuBackend backend =
                new CpuBackend(
                        new ReferenceEngine(),
                        new CpuDevices(new Scheduler(2, new RecordingLog())));
        DeviceStream stream = backend.device(0).createStream();
        WeakReference<Clique> clique = failAndClose(backend, stream);
        assertThatThrownBy(() -> stream.synchronize(World.LONG))
                .isInstanceOf(CommunicatorAbortedException.class);
        Awaitility.await()
                .atMost(World.LONG)
                .until(() -> {
                    System.gc();
                    return clique.refersTo(null);
                });
        assertThat(stream.poll()).isTrue();
    }

    private static WeakReference<Clique> failAndClose(CpuBackend backend, DeviceStream stream) {
        List<Communicator> ranks = backend.createLocal(2, CommunicatorConfig.defaults());
        ranks.get(0).barrier(stream);
        ranks.get(0).abort(World.LONG);
        backend.closeAll(ranks);
        return new WeakReference<>(CpuCommunicator.of("test", ranks.get(0)).member().clique);
    }

    @Test
    void aStreamOfManyFailedCommunicatorsTellsThemAtOnce() {
        CpuBackend backend =
                new CpuBackend(
                        new ReferenceEngine(),
                        new CpuDevices(new Scheduler(2, new RecordingLog())));
        DeviceStream stream = backend.device(0).createStream();
        for (int i = 0; i < 100; i++) {
            failAndClose(backend, stream);
        }
        assertThatThrownBy(() -> stream.synchronize(World.LONG))
                .isInstanceOf(CommunicatorAbortedException.class)
                .satisfies(e -> assertThat(e.getSuppressed()).hasSize(10));
        stream.synchronize(World.LONG);
        assertThat(stream.poll()).isTrue();
    }

    @Test
    void aDroppedCommunicatorIsLoggedWithThePlaceWhereItWasMade() {
        RecordingLog log = new RecordingLog();
        CpuBackend backend =
                new CpuBackend(new ReferenceEngine(), new CpuDevices(new Scheduler(2, log)));
        makeAndDrop(backend);
        Awaitility.await()
                .atMost(World.LONG)
                .until(() -> {
                    System.gc();
                    return log.entries(Level.WARNING).size() == 2;
                });
        RecordingLog.Entry entry = log.entries(Level.WARNING).getFirst();
        assertThat(entry.text())
                .matches(
                        "rank \\d/2 of communicator 'lost' was dropped without close\\(\\); it was"
                                + " made here; close communicators when their work is done");
        assertThat(entry.thrown().getStackTrace())
                .anyMatch(frame -> frame.getMethodName().equals("makeAndDrop"));
    }

    private static void makeAndDrop(CpuBackend backend) {
        assertThat(backend.createLocal(2, CommunicatorConfig.defaults().withName("lost")))
                .hasSize(2);
    }

    private static void assertRefused(Runnable call, String text) {
        assertThatThrownBy(call::run).isInstanceOf(InvalidArgumentException.class).hasMessage(text);
    }

    private static void assertFailure(
            World world, Class<? extends CollectiveException> type, String text) {
        for (int rank = 0; rank < 2; rank++) {
            DeviceStream stream = world.stream(rank);
            assertThatThrownBy(() -> stream.synchronize(World.LONG))
                    .isInstanceOf(type)
                    .hasMessageContaining(text);
        }
    }

    private static void awaitUninterrupted(CountDownLatch latch) {
        try {
            if (!latch.await(20, TimeUnit.SECONDS)) {
                throw new IllegalStateException("nobody let it go");
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
