package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.ValueLayout;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
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
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.WaitInterruptedException;
import org.nccl4j.cpu.Engine.Progress;
import org.nccl4j.cpu.ScriptedEngine.Script;

/** Who runs works, and that nobody else does. */
final class WorkersTest {
    private static final int LARGE = 1 << 20;

    /** Too large to be run where it gets ready, too small for a share to bring more workers. */
    private static final int MEDIUM = 1 << 16;

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
            // A broken rule would have failed the communicator, or been logged.
            assertThat(world.rank(0).status()).isInstanceOf(CommunicatorStatus.Ready.class);
            assertThat(world.log.entries(System.Logger.Level.ERROR)).isEmpty();
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
            AtomicBoolean finished = new AtomicBoolean();
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
                    if (!finished.compareAndSet(false, true)) {
                        throw new IllegalStateException("finished twice");
                    }
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

    // ---- who runs which share

    /** Each share needs a thread of its own: its runner waits for the other's. */
    @Test
    @Timeout(60)
    void aCallerAndAWorkerRunAWorkTogetherEachItsOwnShare() {
        int operations = 50;
        Map<Long, CountDownLatch> bothInside = new ConcurrentHashMap<>();
        Thread[][] runners = new Thread[2][operations];
        HookedEngine engine =
                scripted(
                        2,
                        (operation, share) -> {
                            runners[share][(int) operation.sequence()] = Thread.currentThread();
                            meet(
                                    bothInside.computeIfAbsent(
                                            operation.sequence(), number -> new CountDownLatch(2)));
                            return Progress.DONE;
                        });
        try (World world = new World(1, 2, engine, config -> config)) {
            DeviceBuffer buffer = world.zeros(0, MEDIUM);
            for (int i = 0; i < operations; i++) {
                world.allReduce(0, buffer);
                world.stream(0).synchronize(World.LONG);
            }
        }
        // Callers take the first place, workers the last.
        assertThat(runners[0]).containsOnly(Thread.currentThread());
        assertThat(runners[1]).allMatch(WorkersTest::isWorker);
        engine.assertRulesKept();
    }

    /** Whoever comes first stays in its share until all others are done. */
    @Test
    @Timeout(60)
    void sharesThatNobodyHasBegunAreRunByWhoeverIsFree() {
        int operations = 50;
        int shares = 5;
        Map<Long, CountDownLatch> othersDone = new ConcurrentHashMap<>();
        Map<Long, Thread> first = new ConcurrentHashMap<>();
        Map<Long, Set<Thread>> others = new ConcurrentHashMap<>();
        HookedEngine engine =
                scripted(
                        shares,
                        (operation, share) -> {
                            long number = operation.sequence();
                            CountDownLatch latch =
                                    othersDone.computeIfAbsent(
                                            number, each -> new CountDownLatch(shares - 1));
                            if (first.putIfAbsent(number, Thread.currentThread()) == null) {
                                await(latch);
                            } else {
                                others.computeIfAbsent(
                                                number, each -> ConcurrentHashMap.newKeySet())
                                        .add(Thread.currentThread());
                                latch.countDown();
                            }
                            return Progress.DONE;
                        });
        try (World world = new World(1, 2, engine, config -> config)) {
            DeviceBuffer buffer = world.zeros(0, MEDIUM);
            for (int i = 0; i < operations; i++) {
                world.allReduce(0, buffer);
                world.stream(0).synchronize(World.LONG);
            }
        }
        for (long number = 0; number < operations; number++) {
            assertThat(others.get(number)).hasSize(1).doesNotContain(first.get(number));
        }
        engine.assertRulesKept();
    }

    @Test
    @Timeout(60)
    void aCallerRunsTheSharesOfAWorkerThatIsBusyElsewhere() throws Exception {
        CountDownLatch busy = new CountDownLatch(1);
        CountDownLatch release = new CountDownLatch(1);
        AtomicBoolean isFirst = new AtomicBoolean(true);
        Queue<Thread> runners = new ConcurrentLinkedQueue<>();
        HookedEngine engine =
                scripted(
                        4,
                        (operation, share) -> {
                            if (operation.sequence() > 0) {
                                runners.add(Thread.currentThread());
                            } else if (isFirst.getAndSet(false)) {
                                busy.countDown();
                                await(release);
                            }
                            return Progress.DONE;
                        });
        try (World world = new World(1, 2, engine, config -> config)) {
            DeviceStream second = world.newStream(0);
            DeviceBuffer buffer = world.zeros(0, MEDIUM);
            world.allReduce(0, world.zeros(0, MEDIUM));
            assertThat(busy.await(10, TimeUnit.SECONDS)).isTrue();
            for (int i = 0; i < 20; i++) {
                world.allReduce(0, buffer, second);
                second.synchronize(World.LONG);
            }
            assertThat(runners).hasSize(20 * 4).containsOnly(Thread.currentThread());
            assertThat(world.stream(0).poll()).isFalse();
            release.countDown();
            world.stream(0).synchronize(World.LONG);
        }
        engine.assertRulesKept();
    }

    /** It is the runner of the last share that ends it then. */
    @Test
    @Timeout(60)
    void aWorkWhoseLeaderHasLeftIsEndedByAnother() {
        int ledByCaller = 0;
        for (int i = 0; i < 500 && ledByCaller < 10; i++) {
            Thread caller = Thread.currentThread();
            AtomicReference<Thread> leader = new AtomicReference<>();
            CountDownLatch bothInside = new CountDownLatch(2);
            CountDownLatch callerLeft = new CountDownLatch(1);
            Script script =
                    new Script() {
                        @Override
                        public void start(JoinedOperation operation) {
                            leader.set(Thread.currentThread());
                        }

                        @Override
                        public Progress progress(JoinedOperation operation, int share) {
                            if (leader.get().equals(caller)) {
                                meet(bothInside);
                                if (!Thread.currentThread().equals(caller)) {
                                    await(callerLeft);
                                }
                            }
                            return Progress.DONE;
                        }
                    };
            HookedEngine engine = scripted(2, script);
            // No worker is there yet: most often the caller comes first.
            try (World world = new World(1, 2, engine, config -> config)) {
                world.allReduce(0, world.zeros(0, MEDIUM));
                try {
                    world.stream(0).synchronize(Duration.ofMillis(30));
                } catch (CollectiveTimeoutException e) {
                    assertThat(leader.get()).isSameAs(caller);
                    ledByCaller++;
                }
                assertThat(engine.completed).hasValue(bothInside.getCount() > 0 ? 1 : 0);
                callerLeft.countDown();
                Awaitility.await()
                        .pollInterval(Duration.ofMillis(1))
                        .atMost(World.LONG)
                        .until(() -> world.stream(0).poll());
                assertThat(engine.completed).hasValue(1);
            }
            engine.assertRulesKept();
        }
        assertThat(ledByCaller).isEqualTo(10);
    }

    @Test
    @Timeout(60)
    void aCallerWhoseTimeIsUpLeavesItsShareToOthers() {
        AtomicBoolean enough = new AtomicBoolean();
        HookedEngine engine =
                scripted(2, (operation, share) -> enough.get() ? Progress.DONE : Progress.ADVANCED);
        try (World world = new World(1, 2, engine, config -> config)) {
            world.allReduce(0, world.zeros(0, MEDIUM));
            for (int i = 0; i < 10; i++) {
                assertThatThrownBy(() -> world.stream(0).synchronize(Duration.ofMillis(5)))
                        .isInstanceOf(CollectiveTimeoutException.class);
            }
            Thread.currentThread().interrupt();
            assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                    .isInstanceOf(WaitInterruptedException.class);
            assertThat(Thread.interrupted()).isTrue();
            enough.set(true);
            Awaitility.await().atMost(World.LONG).until(() -> world.stream(0).poll());
            world.stream(0).synchronize(World.LONG);
        }
        assertThat(engine.completed).hasValue(1);
        engine.assertRulesKept();
    }

    /** The only worker is held up, so that the caller runs all that the pump enqueues. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    @Timeout(60)
    void aCallerHasItsTimeoutsAndInterruptsWhileOthersKeepItBusy(boolean interrupts)
            throws Exception {
        Thread caller = Thread.currentThread();
        CountDownLatch busy = new CountDownLatch(1);
        CountDownLatch release = new CountDownLatch(1);
        CountDownLatch helping = new CountDownLatch(100);
        AtomicBoolean isFirst = new AtomicBoolean(true);
        HookedEngine engine =
                scripted(
                        2,
                        (operation, share) -> {
                            if (isFirst.getAndSet(false)) {
                                busy.countDown();
                                await(release);
                            } else if (Thread.currentThread().equals(caller)) {
                                helping.countDown();
                            }
                            return Progress.DONE;
                        });
        AtomicBoolean over = new AtomicBoolean();
        try (World world = new World(2, 2, engine, config -> config)) {
            Communicator other =
                    world.backend.createLocal(1, CommunicatorConfig.defaults()).getFirst();
            List<DeviceStream> streams = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                streams.add(other.device().createStream());
            }
            DeviceBuffer buffer = other.device().allocate(4L * MEDIUM);
            enqueue(other, buffer, streams.get(2), 1);
            assertThat(busy.await(10, TimeUnit.SECONDS)).isTrue();
            FutureTask<Boolean> pump =
                    new FutureTask<>(() -> {
                        long startNanos = System.nanoTime();
                        boolean interrupted = !interrupts;
                        for (int i = 0; !over.get(); i = 1 - i) {
                            if (System.nanoTime() - startNanos > World.LONG.toNanos() / 2) {
                                return false;
                            }
                            if (streams.get(i).poll()) {
                                enqueue(other, buffer, streams.get(i), 100);
                            }
                            if (!interrupted && helping.getCount() == 0) {
                                interrupted = true;
                                caller.interrupt();
                            }
                            Thread.yield();
                        }
                        return true;
                    });
            enqueue(other, buffer, streams.get(0), 100);
            enqueue(other, buffer, streams.get(1), 100);
            // The other rank does not come until all is over.
            world.rank(0).barrier(world.stream(0));
            Thread.ofPlatform().daemon().start(pump);
            if (interrupts) {
                assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                        .isInstanceOf(WaitInterruptedException.class);
            } else {
                assertThatThrownBy(() -> world.stream(0).synchronize(Duration.ofMillis(300)))
                        .isInstanceOf(CollectiveTimeoutException.class);
            }
            over.set(true);
            assertThat(Thread.interrupted()).isEqualTo(interrupts);
            assertThat(pump.get(30, TimeUnit.SECONDS))
                    .as("it was heard while there was more to do")
                    .isTrue();
            assertThat(helping.getCount()).isZero();
            release.countDown();
            world.rank(1).barrier(world.stream(1));
            world.synchronize();
            world.backend.synchronizeAll(streams, World.LONG);
            world.backend.closeAll(List.of(other));
        }
        engine.assertRulesKept();
    }

    private static void enqueue(
            Communicator communicator, DeviceBuffer buffer, DeviceStream stream, int operations) {
        for (int i = 0; i < operations; i++) {
            communicator.allReduce(buffer, buffer, MEDIUM, DataType.INT32, ReduceOp.SUM, stream);
        }
    }

    @Test
    @Timeout(60)
    void manyCallersOnFewCoresAllComeToTheirEnd() throws Exception {
        int callers = 8;
        long seed = System.nanoTime();
        HookedEngine engine =
                new HookedEngine(
                        new DirectEngine(3, KernelChoice.ofThisProcess(), 16 << 10, 64),
                        (operation, share) -> {});
        RecordingLog log = new RecordingLog();
        CpuBackend backend = new CpuBackend(engine, new CpuDevices(new Scheduler(2, log)));
        List<FutureTask<Void>> tasks = new ArrayList<>();
        for (int i = 0; i < callers; i++) {
            long own = seed + i;
            FutureTask<Void> task =
                    new FutureTask<>(() -> {
                        call(backend, new SplittableRandom(own));
                        return null;
                    });
            tasks.add(task);
            Thread.ofPlatform().daemon().start(task);
        }
        for (FutureTask<Void> task : tasks) {
            try {
                task.get(40, TimeUnit.SECONDS);
            } catch (ExecutionException | TimeoutException e) {
                throw new AssertionError("seed " + seed, e);
            }
        }
        assertThat(engine.givenUp).hasValue(0);
        assertThat(engine.completed).hasValue(engine.started.get());
        engine.assertRulesKept();
        assertThat(log.entries()).isEmpty();
    }

    /** 200 operations on an own communicator, each followed by a copy on another stream. */
    private static void call(CpuBackend backend, SplittableRandom random) {
        List<Communicator> ranks =
                backend.createLocal(
                        2, CommunicatorConfig.defaults().withOperationTimeout(World.LONG));
        int most = 40_000;
        List<DeviceBuffer> buffers = new ArrayList<>();
        List<DeviceStream> streams = new ArrayList<>();
        for (Communicator rank : ranks) {
            buffers.add(rank.device().allocate(4L * most));
            streams.add(rank.device().createStream());
        }
        CpuDevice device = (CpuDevice) ranks.getFirst().device();
        DeviceBuffer copy = device.allocate(4L * most);
        streams.add(device.createStream());
        DeviceStream first = streams.get(0);
        DeviceStream side = streams.get(2);
        try (DeviceEvent reduced = device.createEvent();
                DeviceEvent copied = device.createEvent()) {
            for (int i = 0; i < 200; i++) {
                int count = random.nextBoolean() ? 1 + random.nextInt(100) : most;
                int value = random.nextInt(100);
                first.fill(buffers.get(0).slice(0, 4L * count), (byte) value);
                streams.get(1).fill(buffers.get(1).slice(0, 4L * count), (byte) 1);
                backend.group(group -> {
                    for (int rank = 0; rank < 2; rank++) {
                        DeviceBuffer buffer = buffers.get(rank);
                        group.on(ranks.get(rank))
                                .allReduce(
                                        buffer,
                                        buffer,
                                        count,
                                        DataType.INT32,
                                        ReduceOp.SUM,
                                        streams.get(rank));
                    }
                });
                first.record(reduced);
                side.waitFor(reduced);
                side.copy(buffers.get(0), copy, 4L * count);
                side.record(copied);
                first.waitFor(copied);
                switch (random.nextInt(4)) {
                    case 0 -> side.synchronize(World.LONG);
                    case 1 -> first.synchronize(World.LONG);
                    case 2 -> backend.synchronizeAll(streams, World.LONG);
                    default -> {
                        continue;
                    }
                }
                assertThat(copy.hostSegment().asSlice(0, 4L * count).toArray(ValueLayout.JAVA_INT))
                        .containsOnly(0x01010101 * (value + 1));
            }
        }
        backend.synchronizeAll(streams, World.LONG);
        backend.closeAll(ranks);
        streams.forEach(DeviceStream::close);
        buffers.forEach(DeviceBuffer::close);
        copy.close();
    }

    private static HookedEngine scripted(int shares, Script script) {
        return new HookedEngine(new ScriptedEngine(shares, script), (operation, share) -> {});
    }

    private static boolean isWorker(Thread thread) {
        return thread.getName().startsWith("nccl4j-cpu-worker-");
    }

    private static void meet(CountDownLatch latch) {
        latch.countDown();
        await(latch);
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

    static void await(CountDownLatch latch) {
        try {
            if (!latch.await(20, TimeUnit.SECONDS)) {
                throw new IllegalStateException("nobody let it go");
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
