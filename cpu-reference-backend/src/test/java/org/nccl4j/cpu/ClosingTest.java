package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.RankFailedException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.collectives.WaitInterruptedException;

/** Several communicators are closed, and something goes wrong on the way. */
final class ClosingTest {
    private static final Duration SOON = Duration.ofSeconds(20);
    private static final CommunicatorConfig CONFIG =
            CommunicatorConfig.defaults().withOperationTimeout(SOON);

    private final RecordingLog log = new RecordingLog();
    private final CpuBackend backend =
            new CpuBackend(new ReferenceEngine(), new CpuDevices(new Scheduler(2, log)));

    @Test
    void aTraceThatCannotBeWrittenIsToldWhenItsCommunicatorIsClosed() {
        Path full = Path.of("/dev/full");
        assumeTrue(Files.exists(full), "unsupported: no /dev/full here");
        List<Communicator> traced =
                backend.createLocal(2, CONFIG.withName("traced").withTraceFile(full));
        List<Communicator> others = backend.createLocal(2, CONFIG);
        List<DeviceBuffer> buffers = new ArrayList<>();
        List<DeviceStream> streams = new ArrayList<>();
        for (Communicator communicator : traced) {
            buffers.add(communicator.device().allocate(64));
            streams.add(communicator.device().createStream());
        }
        backend.group(group -> {
            for (int rank = 0; rank < 2; rank++) {
                group.on(traced.get(rank))
                        .allReduce(
                                buffers.get(rank),
                                buffers.get(rank),
                                16,
                                DataType.INT32,
                                ReduceOp.SUM,
                                streams.get(rank));
            }
        });
        backend.synchronizeAll(streams, SOON);

        List<Communicator> all = new ArrayList<>(traced);
        all.addAll(others);
        assertThatThrownBy(() -> backend.closeAll(all))
                .isInstanceOf(UnsupportedException.class)
                .hasMessageStartingWith(
                        "rank 0/2 of communicator 'traced' is closed, but its trace /dev/full is"
                                + " incomplete: ")
                .hasMessageEndingWith("; free space, or name another file");
        assertThat(log.entries()).isEmpty();
        assertThat(all).allMatch(each -> each.status() instanceof CommunicatorStatus.Closed);
        streams.forEach(DeviceStream::close);
        buffers.forEach(DeviceBuffer::close);
    }

    @Test
    void aSecondThreadThatClosesWaitsForTheFirst() {
        try (World world = new World(2)) {
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 2)};
            world.allReduce(0, buffers[0]);
            List<Call> closers = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                closers.add(Call.of(() -> world.rank(0).close()));
            }
            closers.forEach(Call::awaitParked);
            assertThat(world.rank(0).status()).isInstanceOf(CommunicatorStatus.Closing.class);
            world.allReduce(1, buffers[1]);
            closers.forEach(Call::get);
            assertThat(world.rank(0).status()).isInstanceOf(CommunicatorStatus.Closed.class);
            world.synchronize();
            assertThat(World.toArray(buffers[1])).containsExactly(3);
        }
    }

    @Test
    void theSecondThreadClosesIfTheFirstIsInterrupted() {
        try (World world = new World(2)) {
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 2)};
            world.allReduce(0, buffers[0]);
            Call first = Call.of(() -> world.rank(0).close());
            first.awaitParked();
            Call second = Call.of(() -> world.rank(0).close());
            second.awaitParked();
            first.thread().interrupt();
            assertThatThrownBy(first::get).hasRootCauseInstanceOf(WaitInterruptedException.class);
            Awaitility.await()
                    .atMost(SOON)
                    .until(() -> world.rank(0).status() instanceof CommunicatorStatus.Closing);
            world.allReduce(1, buffers[1]);
            second.get();
            assertThat(world.rank(0).status()).isInstanceOf(CommunicatorStatus.Closed.class);
        }
    }

    @Test
    void twoThreadsMayCloseTheSameRanksInDifferentOrders() {
        try (World world = new World(2)) {
            world.rank(0).barrier(world.stream(0));
            Call first = Call.of(() -> world.backend.closeAll(world.ranks));
            first.awaitParked();
            Call second = Call.of(() -> world.backend.closeAll(world.ranks.reversed()));
            // It has closed rank 1, which the first had not come to, and waits for rank 0.
            assertThatThrownBy(() -> world.stream(0).synchronize(SOON))
                    .isInstanceOf(RankFailedException.class);
            second.get();
            assertThatThrownBy(first::get).hasRootCauseInstanceOf(RankFailedException.class);
        }
    }

    @Test
    void closeWaitsOnceForWorkThatCannotBeGivenUp() {
        Duration timeout = Duration.ofSeconds(3);
        CountDownLatch entered = new CountDownLatch(1);
        CountDownLatch released = new CountDownLatch(1);
        Engine stuck =
                new HookedEngine((operation, participant) -> {
                    if (participant == 0) {
                        entered.countDown();
                        await(released);
                    }
                });
        World world = new World(2, 2, stuck, config -> config.withOperationTimeout(timeout));
        world.allReduce(0, world.zeros(0, 1));
        Call runner = Call.of(() -> world.allReduce(1, world.zeros(1, 1)));
        await(entered);
        long startNanos = System.nanoTime();
        assertThatThrownBy(() -> world.rank(0).close())
                .isInstanceOf(CollectiveTimeoutException.class)
                .hasMessageStartingWith(
                        "rank 0/2 of communicator 'world' is closed, but its work could not be given"
                                + " up within 3s: data of its operations is still being moved;");
        assertThat(Duration.ofNanos(System.nanoTime() - startNanos))
                .isBetween(timeout, timeout.multipliedBy(2).minusMillis(300));
        released.countDown();
        runner.get();
        world.close();
    }

    /** Something that another thread does. */
    private record Call(Thread thread, CompletableFuture<Void> done) {
        static Call of(Runnable body) {
            CompletableFuture<Void> done = new CompletableFuture<>();
            Thread thread =
                    Thread.ofPlatform()
                            .daemon()
                            .start(() -> {
                                try {
                                    body.run();
                                    done.complete(null);
                                } catch (RuntimeException e) {
                                    done.completeExceptionally(e);
                                }
                            });
            return new Call(thread, done);
        }

        void awaitParked() {
            Awaitility.await()
                    .atMost(SOON)
                    .until(() -> thread.getState() == Thread.State.TIMED_WAITING);
        }

        void get() {
            done.orTimeout(SOON.toSeconds(), TimeUnit.SECONDS).join();
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            assertThat(latch.await(SOON.toSeconds(), TimeUnit.SECONDS)).isTrue();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void anInterruptWhileWorkIsLeftClosesNothing() {
        List<Communicator> communicators = backend.createLocal(2, CONFIG);
        DeviceStream first = communicators.get(0).device().createStream();
        DeviceStream second = communicators.get(1).device().createStream();
        communicators.get(0).barrier(first);

        Thread.currentThread().interrupt();
        assertThatThrownBy(() -> backend.closeAll(communicators))
                .isInstanceOf(WaitInterruptedException.class);
        assertThat(Thread.interrupted()).isTrue();
        assertThat(communicators)
                .noneMatch(each -> each.status() instanceof CommunicatorStatus.Closed);

        // The work can still be completed, and then both close.
        communicators.get(1).barrier(second);
        backend.closeAll(communicators);
        assertThat(communicators)
                .allMatch(each -> each.status() instanceof CommunicatorStatus.Closed);
        first.close();
        second.close();
    }
}
