package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;

/** Who runs works, and that nobody else does. */
final class WorkersTest {
    private static final int LARGE = 1 << 20;

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3})
    void noMoreThreadsRunThanThereAreCores(int cores) throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        Engine engine =
                new HookedEngine((operation, participant) -> {
                    most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                    Thread.yield();
                    inside.decrementAndGet();
                });
        int ranks = 8;
        try (World world = new World(ranks, cores, engine, config -> config)) {
            DeviceBuffer[] buffers = new DeviceBuffer[ranks];
            for (int rank = 0; rank < ranks; rank++) {
                buffers[rank] = world.zeros(rank, LARGE / 4);
            }
            Thread[] threads = new Thread[ranks];
            for (int rank = 0; rank < ranks; rank++) {
                int self = rank;
                threads[rank] =
                        Thread.ofPlatform()
                                .start(() -> {
                                    for (int i = 0; i < 5; i++) {
                                        world.allReduce(self, buffers[self]);
                                        world.stream(self).synchronize(World.LONG);
                                    }
                                });
            }
            for (Thread thread : threads) {
                thread.join(30_000);
                assertThat(thread.isAlive()).isFalse();
            }
            assertThat(most.get()).isLessThanOrEqualTo(cores);
        }
    }

    @RepeatedTest(5)
    void oneThreadAtATimeAdvancesAParticipantAndSeesWhatTheLastOneWrote() throws Exception {
        int ranks = 6;
        try (World world = new World(ranks, 4, new LockstepEngine(), config -> config)) {
            for (int round = 0; round < 20; round++) {
                for (int rank = 0; rank < ranks; rank++) {
                    world.allReduce(rank, world.zeros(rank, LARGE / 16));
                }
                Thread[] threads = new Thread[ranks];
                for (int rank = 0; rank < ranks; rank++) {
                    DeviceStream stream = world.stream(rank);
                    threads[rank] = Thread.ofPlatform().start(() -> stream.synchronize(World.LONG));
                }
                for (Thread thread : threads) {
                    thread.join(30_000);
                    assertThat(thread.isAlive()).isFalse();
                }
            }
            // A broken rule would have failed the communicator.
            assertThat(world.rank(0).status()).isInstanceOf(CommunicatorStatus.Ready.class);
        }
    }

    /**
     * Participants that keep in step: none is more than one step ahead of its neighbour. Each one's
     * own state is plain, as an engine's is, and breaks when the rules of {@link Engine.Run} are.
     */
    private static final class LockstepEngine implements Engine {
        private static final int STEPS = 300;

        @Override
        public String name() {
            return "lockstep";
        }

        @Override
        public long steps(JoinedOperation operation) {
            return (long) STEPS * operation.participants();
        }

        @Override
        public Run start(JoinedOperation operation) {
            int participants = operation.participants();
            AtomicIntegerArray published = new AtomicIntegerArray(participants);
            AtomicIntegerArray inside = new AtomicIntegerArray(participants);
            int[] steps = new int[participants];
            return new Run() {
                @Override
                public int shares() {
                    return participants;
                }

                @Override
                public Progress progress(int participant) {
                    if (!inside.compareAndSet(participant, 0, 1)) {
                        throw new IllegalStateException("two threads in one participant");
                    }
                    try {
                        if (steps[participant] != published.get(participant)) {
                            throw new IllegalStateException("a step was not visible");
                        }
                        if (steps[participant] == STEPS) {
                            throw new IllegalStateException("called after it was done");
                        }
                        int neighbour = (participant + 1) % participants;
                        if (steps[participant] > published.get(neighbour)) {
                            return Progress.BLOCKED;
                        }
                        published.set(participant, ++steps[participant]);
                        return steps[participant] == STEPS ? Progress.DONE : Progress.ADVANCED;
                    } finally {
                        inside.set(participant, 0);
                    }
                }

                @Override
                public void finish(boolean done) {
                    for (int participant = 0; participant < participants; participant++) {
                        if (steps[participant] != STEPS || inside.get(participant) != 0) {
                            throw new IllegalStateException("finished too early");
                        }
                    }
                }
            };
        }
    }

    @Test
    void aSmallOperationIsRunByTheThreadThatJoinsIt() {
        Set<Thread> runners = ConcurrentHashMap.newKeySet();
        Engine engine =
                new HookedEngine((operation, participant) -> runners.add(Thread.currentThread()));
        try (World world = new World(2, 2, engine, config -> config)) {
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 2)};
            world.allReduce(0, buffers[0]);
            world.allReduce(1, buffers[1]);
            // Complete already, without any wait.
            assertThat(world.stream(0).poll()).isTrue();
            assertThat(World.toArray(buffers[1])).containsExactly(3);
            assertThat(runners).containsExactly(Thread.currentThread());
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {2, 3, 8})
    @Timeout(60)
    void fewRanksRunSmallOperationsWhereTheyAreJoined(int ranks) {
        assertThat(runnersOfOneElement(ranks)).containsExactly(Thread.currentThread());
    }

    /** Four bytes, but a ring of n ranks has 2 n (n - 1) steps. */
    @ParameterizedTest
    @ValueSource(ints = {64, 300})
    @Timeout(60)
    void theEnqueueOfManyRanksIsNotHeldUpByTheirSteps(int ranks) {
        assertThat(runnersOfOneElement(ranks)).isNotEmpty().doesNotContain(Thread.currentThread());
    }

    private static Set<Thread> runnersOfOneElement(int ranks) {
        Set<Thread> runners = ConcurrentHashMap.newKeySet();
        Engine engine =
                new HookedEngine((operation, participant) -> runners.add(Thread.currentThread()));
        try (World world = new World(ranks, 2, engine, config -> config)) {
            DeviceBuffer[] buffers = new DeviceBuffer[ranks];
            for (int rank = 0; rank < ranks; rank++) {
                buffers[rank] = world.ints(rank, rank);
                world.allReduce(rank, buffers[rank]);
            }
            // Without a wait, in which this thread would help.
            Awaitility.await().atMost(World.LONG).until(() -> world.stream(0).poll());
            assertThat(World.toArray(buffers[ranks - 1])).containsExactly(ranks * (ranks - 1) / 2);
        }
        return runners;
    }

    @Test
    void largeOperationsRunWithoutAnybodyWaiting() {
        Set<Thread> runners = ConcurrentHashMap.newKeySet();
        Engine engine =
                new HookedEngine((operation, participant) -> runners.add(Thread.currentThread()));
        try (World world = new World(2, 2, engine, config -> config)) {
            DeviceBuffer[] buffers = {world.zeros(0, LARGE), world.zeros(1, LARGE)};
            world.allReduce(0, buffers[0]);
            world.allReduce(1, buffers[1]);
            Awaitility.await().atMost(World.LONG).until(() -> world.stream(0).poll());
            assertThat(runners)
                    .isNotEmpty()
                    .allMatch(thread -> thread.getName().startsWith("nccl4j-cpu-worker-"))
                    .allMatch(Thread::isDaemon);
        }
    }

    @Test
    void synchronizeMakesProgressAloneWhileAllWorkersAreBusy() throws Exception {
        CountDownLatch busy = new CountDownLatch(1);
        CountDownLatch release = new CountDownLatch(1);
        Set<Thread> helpers = ConcurrentHashMap.newKeySet();
        Engine engine =
                new HookedEngine((operation, participant) -> {
                    if (operation.sequence() == 0) {
                        busy.countDown();
                        await(release);
                    } else {
                        helpers.add(Thread.currentThread());
                    }
                });
        try (World world = new World(1, 2, engine, config -> config)) {
            DeviceStream second = world.newStream(0);
            world.allReduce(0, world.zeros(0, LARGE));
            assertThat(busy.await(10, TimeUnit.SECONDS)).isTrue();
            world.allReduce(0, world.zeros(0, LARGE), second);
            second.synchronize(World.LONG);
            assertThat(world.stream(0).poll()).isFalse();
            release.countDown();
            world.stream(0).synchronize(World.LONG);
            assertThat(helpers).isNotEmpty();
        }
    }

    @Test
    void waitingForAnAbsentPeerCostsNoTime() {
        try (World world = new World(2)) {
            world.rank(0).barrier(world.stream(0));
            ThreadMXBean threads = ManagementFactory.getThreadMXBean();
            long before = threads.getCurrentThreadCpuTime();
            waitInVain(world, Duration.ofMillis(500));
            Duration spent = Duration.ofNanos(threads.getCurrentThreadCpuTime() - before);
            assertThat(spent).isLessThan(Duration.ofMillis(100));
            world.rank(1).barrier(world.stream(1));
        }
    }

    private static void waitInVain(World world, Duration time) {
        try {
            world.stream(0).synchronize(time);
            throw new AssertionError("the barrier is not complete");
        } catch (CollectiveTimeoutException e) {
            assertThat(e).hasMessageContaining("rank 1 has not called it");
        }
    }

    @Test
    @Timeout(60)
    void aChoreThatTakesTheWakeUpOfItsThreadLetsItGoOn() {
        Scheduler scheduler = new Scheduler(2, new RecordingLog());
        WaitList list = new WaitList();
        AtomicBoolean over = new AtomicBoolean();
        Waiter waiter =
                new Waiter() {
                    @Override
                    boolean seemsOver() {
                        return over.get();
                    }
                };
        // As a logger with a lock of its own: what is waited for happens meanwhile, and the
        // thread uses its permit up.
        Chore logging =
                new Chore() {
                    @Override
                    Chore perform(long budgetBytes) {
                        Chore chores;
                        synchronized (scheduler) {
                            over.set(true);
                            list.wake(scheduler);
                            chores = scheduler.takeChores(0);
                        }
                        scheduler.workers().perform(chores);
                        LockSupport.parkNanos(1);
                        return null;
                    }
                };
        synchronized (scheduler) {
            scheduler.defer(logging);
        }
        long startNanos = System.nanoTime();
        Workers.Outcome outcome =
                scheduler.workers().await(waiter, list, startNanos, TimeUnit.SECONDS.toNanos(30));
        assertThat(outcome).isEqualTo(Workers.Outcome.OVER);
        assertThat(Duration.ofNanos(System.nanoTime() - startNanos))
                .isLessThan(Duration.ofSeconds(10));
    }

    @Test
    @Timeout(60)
    void theFailureOfAnEngineIsLoggedByTheThreadThatMetIt() {
        AtomicReference<Thread> thrower = new AtomicReference<>();
        Engine engine =
                new HookedEngine((operation, participant) -> {
                    thrower.set(Thread.currentThread());
                    throw new IllegalStateException("broken on purpose");
                });
        try (World world = new World(2, 2, engine, config -> config)) {
            world.rank(0).barrier(world.stream(0));
            world.rank(1).barrier(world.stream(1));
            assertThat(world.log.entries(System.Logger.Level.ERROR))
                    .singleElement()
                    .satisfies(entry -> assertThat(entry.thread()).isSameAs(thrower.get()));
        }
    }

    @Test
    void aWorkThatIsUsedAgainIsNoLongerAbandoned() {
        Scheduler scheduler = new Scheduler(2, new RecordingLog());
        CpuDevice device = new CpuDevices(scheduler).device(0);
        LocalWork work = new LocalWork((CpuStream) device.createStream());
        synchronized (scheduler) {
            work.shares.abandon();
            work.renew();
        }
        assertThat(work.shares.areAbandoned()).isFalse();
    }

    @Test
    void manyWorksOfManyStreamsAreAllDone() {
        AtomicLong pieces = new AtomicLong();
        Engine engine = new HookedEngine((operation, participant) -> pieces.incrementAndGet());
        try (World world = new World(1, 2, engine, config -> config)) {
            DeviceStream[] streams = new DeviceStream[200];
            for (int i = 0; i < streams.length; i++) {
                streams[i] = world.newStream(0);
                world.allReduce(0, world.zeros(0, 1 << 15), streams[i]);
                streams[i].fill(world.zeros(0, 1 << 15), (byte) 1);
            }
            for (DeviceStream stream : streams) {
                stream.synchronize(World.LONG);
            }
            assertThat(pieces.get()).isGreaterThanOrEqualTo(streams.length);
        }
    }

    @Test
    void noThreadOutlivesItsUse() {
        Set<Thread> before = Thread.getAllStackTraces().keySet();
        try (World world = new World(2)) {
            world.allReduce(0, world.zeros(0, LARGE));
            world.allReduce(1, world.zeros(1, LARGE));
            Awaitility.await().until(() -> world.stream(0).poll());
            assertThat(Thread.getAllStackTraces().keySet())
                    .filteredOn(thread -> !before.contains(thread))
                    .extracting(Thread::getName)
                    .contains("nccl4j-cpu-watchdog");
        }
        Awaitility.await()
                .atMost(Duration.ofSeconds(20))
                .untilAsserted(() ->
                        assertThat(Thread.getAllStackTraces().keySet())
                                .filteredOn(thread -> !before.contains(thread))
                                .noneMatch(thread -> thread.getName().startsWith("nccl4j-")));
    }

    private static void await(CountDownLatch latch) {
        try {
            if (!latch.await(20, TimeUnit.SECONDS)) {
                throw new IllegalStateException("nobody let it go");
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
