package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.MismatchException;
import org.nccl4j.collectives.WaitInterruptedException;

/** Streams are queues: work in order, events between them, nobody waits in enqueue. */
final class StreamTest {
    @Test
    void enqueueNeverWaitsHoweverMuchIsQueued() {
        try (World world = new World(2)) {
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 1)};
            world.assertWorks();
            int many = 20_000;
            long worst = 0;
            for (int i = 0; i < many; i++) {
                long start = System.nanoTime();
                world.allReduce(0, buffers[0]);
                worst = Math.max(worst, System.nanoTime() - start);
            }
            assertThat(Duration.ofNanos(worst)).isLessThan(Duration.ofMillis(200));
            assertThat(world.stream(0).poll()).isFalse();
            for (int i = 0; i < many; i++) {
                world.allReduce(1, buffers[1]);
            }
            world.synchronize();
            // Doubled 20 000 times, modulo 2^32.
            assertThat(World.toArray(buffers[0])).containsExactly(0);
        }
    }

    @Test
    void workOfOneStreamRunsInOrder() {
        try (World world = new World(2)) {
            int count = 1 << 19;
            DeviceBuffer[] buffers = {world.zeros(0, count), world.zeros(1, count)};
            DeviceBuffer copy = world.zeros(0, count);
            world.stream(0).fill(buffers[0], (byte) 1);
            world.stream(1).fill(buffers[1], (byte) 2);
            world.allReduce(0, buffers[0]);
            world.stream(0).copy(buffers[0], copy, 4L * count);
            world.stream(0).fill(buffers[0], (byte) 9);
            assertThat(world.stream(0).poll()).isFalse();
            world.allReduce(1, buffers[1]);
            world.synchronize();
            assertThat(World.toArray(copy)).containsOnly(0x03030303);
            assertThat(World.toArray(buffers[1])).containsOnly(0x03030303);
            assertThat(World.toArray(buffers[0])).containsOnly(0x09090909);
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 4096, (256 << 10) + 1, (1 << 20) + 5})
    void fillWritesEveryByteAndNoOther(int sizeBytes) {
        try (World world = new World(1)) {
            DeviceBuffer buffer = world.rank(0).device().allocate(sizeBytes + 2);
            world.stream(0).fill(buffer.slice(1, sizeBytes), (byte) 0x5a);
            world.synchronize();
            byte[] expected = new byte[sizeBytes + 2];
            Arrays.fill(expected, 1, sizeBytes + 1, (byte) 0x5a);
            assertThat(buffer.hostSegment().toArray(ValueLayout.JAVA_BYTE)).isEqualTo(expected);
        }
    }

    @Test
    void workBehindAnEventWaitsForWhatItMarks() {
        try (World world = new World(2)) {
            DeviceStream side = world.newStream(0);
            DeviceEvent event = world.rank(0).device().createEvent();
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 2)};
            DeviceBuffer copy = world.ints(0, 7);
            assertThat(event.poll()).isTrue();
            world.allReduce(0, buffers[0]);
            world.stream(0).record(event);
            side.waitFor(event);
            side.copy(buffers[0], copy, 4);
            assertThat(event.poll()).isFalse();
            assertThat(side.poll()).isFalse();
            assertThat(World.toArray(copy)).containsExactly(7);
            assertThatThrownBy(() -> event.synchronize(Duration.ofMillis(20)))
                    .isInstanceOf(CollectiveTimeoutException.class)
                    .hasMessage(
                            "the event's mark was not passed within 0.02s: stream 0 of device 0:"
                                    + " allReduce(count 1, INT32, SUM), #0 of communicator 'world',"
                                    + " is not done: rank 0 joined; rank 1 has not called it and"
                                    + " has called nothing; one thread that drives several ranks"
                                    + " must use Backend.group; nothing has changed, synchronize"
                                    + " again");
            world.allReduce(1, buffers[1]);
            event.synchronize(World.LONG);
            side.synchronize(World.LONG);
            assertThat(World.toArray(copy)).containsExactly(3);
        }
    }

    @Test
    void recordReplacesAndWaitTakesTheMarkOfNow() {
        try (World world = new World(2)) {
            DeviceStream side = world.newStream(0);
            DeviceEvent event = world.rank(0).device().createEvent();
            // No mark: nothing to wait for, whatever is recorded later.
            side.waitFor(event);
            world.rank(0).barrier(world.stream(0));
            world.stream(0).record(event);
            side.synchronize(World.NOW);
            // Replaced by a mark that is passed at once.
            side.record(event);
            assertThat(event.poll()).isTrue();
            DeviceStream third = world.newStream(0);
            third.waitFor(event);
            third.synchronize(World.NOW);
            world.rank(1).barrier(world.stream(1));
            world.synchronize();
        }
    }

    @Test
    void twoStreamsOverlap() {
        try (World world = new World(2)) {
            DeviceBuffer buffer = world.ints(0, 1);
            DeviceStream side = world.newStream(0);
            world.rank(0).barrier(world.stream(0));
            side.fill(buffer, (byte) 5);
            side.synchronize(World.LONG);
            assertThat(World.toArray(buffer)).containsExactly(0x05050505);
            assertThat(world.stream(0).poll()).isFalse();
            world.rank(1).barrier(world.stream(1));
            world.synchronize();
        }
    }

    @Test
    void eventsTellTheTimeBetweenTheirMarks() {
        try (World world = new World(2)) {
            Device device = world.rank(0).device();
            DeviceEvent before = device.createEvent();
            DeviceEvent after = device.createEvent();
            assertThatThrownBy(() -> after.elapsedSince(before))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessage(
                            "elapsedSince: this event has no mark; record it on a stream first");
            world.stream(0).record(before);
            world.rank(0).barrier(world.stream(0));
            world.stream(0).record(after);
            assertThatThrownBy(() -> after.elapsedSince(before))
                    .hasMessage(
                            "elapsedSince: this event has a mark that its stream has not passed;"
                                    + " synchronize first");
            long start = System.nanoTime();
            Awaitility.await()
                    .pollInterval(Duration.ofMillis(1))
                    .until(() -> System.nanoTime() - start > 20_000_000);
            world.rank(1).barrier(world.stream(1));
            world.synchronize();
            assertThat(after.elapsedSince(before))
                    .isBetween(Duration.ofMillis(20), Duration.ofSeconds(10));
            assertThat(before.elapsedSince(after)).isNegative();
        }
    }

    @Test
    void largeCopiesAndFillsAreWhole() {
        try (World world = new World(2)) {
            int count = (3 << 20) + 1;
            DeviceBuffer source = world.zeros(0, count);
            DeviceBuffer target = world.zeros(1, count);
            world.stream(0).fill(source, (byte) 3);
            world.stream(0).copy(source, target, 4L * count - 1);
            world.stream(0).synchronize(World.LONG);
            assertThat(source.hostSegment().mismatch(target.hostSegment()))
                    .isEqualTo(4L * count - 1);
        }
    }

    @Test
    void aCopyWhoseArenaIsClosedFailsItsStreamOnce() {
        try (World world = new World(2)) {
            Arena arena = Arena.ofShared();
            DeviceBuffer source = DeviceBuffer.wrap(arena.allocate(400));
            DeviceEvent event = world.rank(0).device().createEvent();
            world.rank(0).barrier(world.stream(0));
            world.stream(0).copy(source, world.zeros(0, 100), 400);
            world.stream(0).record(event);
            arena.close();
            world.rank(1).barrier(world.stream(1));
            assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessageMatching(
                            "copy of 400 bytes on stream 0 of device 0 failed:"
                                    + " java.lang.IllegalStateException: .*; keep the memory of both"
                                    + " buffers open until the stream is synchronized");
            world.stream(0).synchronize(World.LONG);
            assertThat(event.poll()).isTrue();
            world.assertWorks();
        }
    }

    @Test
    void anInterruptedWaitKeepsTheFlagAndChangesNothing() throws Exception {
        try (World world = new World(2)) {
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 2)};
            world.allReduce(0, buffers[0]);
            AtomicReference<Throwable> thrown = new AtomicReference<>();
            AtomicReference<Boolean> flag = new AtomicReference<>();
            Thread waiting =
                    Thread.ofPlatform()
                            .start(() -> {
                                try {
                                    world.stream(0).synchronize(World.LONG);
                                } catch (WaitInterruptedException e) {
                                    thrown.set(e);
                                }
                                flag.set(Thread.currentThread().isInterrupted());
                            });
            Awaitility.await().until(() -> waiting.getState() == Thread.State.TIMED_WAITING);
            waiting.interrupt();
            waiting.join();
            assertThat(thrown.get())
                    .hasMessage(
                            "interrupted while waiting for stream 0 of device 0; its work is"
                                    + " unchanged, synchronize again");
            assertThat(flag.get()).isTrue();
            world.allReduce(1, buffers[1]);
            world.synchronize();
            assertThat(World.toArray(buffers[0])).containsExactly(3);
        }
    }

    @Test
    void completionRunsUserCodeElsewhereAndTellsFailures() throws Exception {
        try (World world = new World(2)) {
            CompletableFuture<String> thread = new CompletableFuture<>();
            world.rank(0).barrier(world.stream(0));
            world.stream(0)
                    .completion()
                    .thenRun(() -> thread.complete(Thread.currentThread().getName()));
            assertThat(thread).isNotDone();
            world.rank(1).barrier(world.stream(1));
            assertThat(thread.get(10, TimeUnit.SECONDS)).startsWith("ForkJoinPool.commonPool");
            assertThat(world.stream(0).completion().toCompletableFuture()).isCompleted();
            world.rank(0).barrier(world.stream(0));
            CompletableFuture<Void> failing = world.stream(0).completion().toCompletableFuture();
            world.allReduce(1, world.zeros(1, 1));
            assertThatThrownBy(failing::join)
                    .isInstanceOf(CompletionException.class)
                    .hasCauseInstanceOf(MismatchException.class);
            // A stage takes nothing away from those who synchronize.
            assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                    .isInstanceOf(MismatchException.class);
        }
    }

    @Test
    void allWhoWaitGetTheFailure() throws Exception {
        try (World world = new World(2)) {
            world.rank(0).barrier(world.stream(0));
            Thread[] waiting = new Thread[3];
            CountDownLatch thrown = new CountDownLatch(waiting.length);
            for (int i = 0; i < waiting.length; i++) {
                waiting[i] =
                        Thread.ofPlatform()
                                .start(() -> {
                                    try {
                                        world.stream(0).synchronize(World.LONG);
                                    } catch (MismatchException e) {
                                        thrown.countDown();
                                    }
                                });
            }
            for (Thread thread : waiting) {
                Awaitility.await().until(() -> thread.getState() == Thread.State.TIMED_WAITING);
            }
            world.allReduce(1, world.zeros(1, 1));
            assertThat(thrown.await(10, TimeUnit.SECONDS)).isTrue();
        }
    }

    @Test
    void aClosedStreamEndsItsWorkAndRefusesMore() {
        try (World world = new World(2)) {
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 2)};
            DeviceStream stream = world.newStream(0);
            world.allReduce(0, buffers[0], stream);
            stream.close();
            stream.close();
            assertThatThrownBy(() -> stream.synchronize(World.LONG))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessage(
                            "synchronize: stream 2 of device 0 has been closed; make another with"
                                    + " device().createStream()");
            assertThatThrownBy(stream::poll).isInstanceOf(InvalidArgumentException.class);
            world.allReduce(1, buffers[1]);
            world.synchronize();
            assertThat(World.toArray(buffers[0])).containsExactly(3);
        }
    }

    @Test
    void eventsAndStreamsOfOthersAreRefused() {
        try (World world = new World(2)) {
            assertThatThrownBy(() -> world.stream(0).record(null))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessage("record: the event is null; make one with device().createEvent()");
            DeviceEvent closed = world.rank(0).device().createEvent();
            closed.close();
            assertThatThrownBy(() -> world.stream(0).waitFor(closed))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessage(
                            "waitFor: the event has been closed; make another with"
                                    + " device().createEvent()");
        }
    }

    @Test
    void synchronizeAllSharesOneDeadline() {
        try (World world = new World(2)) {
            Backend backend = world.backend;
            world.rank(0).barrier(world.stream(0));
            long start = System.nanoTime();
            assertThatThrownBy(() -> backend.synchronizeAll(world.streams, Duration.ofMillis(50)))
                    .isInstanceOf(CollectiveTimeoutException.class);
            assertThat(Duration.ofNanos(System.nanoTime() - start))
                    .isBetween(Duration.ofMillis(50), Duration.ofSeconds(5));
            world.rank(1).barrier(world.stream(1));
            backend.synchronizeAll(world.streams, World.LONG);
        }
    }
}
