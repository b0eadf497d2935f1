package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorAbortedException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.RankFailedException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.cpu.Engine.Progress;

/** However a work ends, and whoever is in it then, it ends once, and all else goes on. */
@Timeout(60)
final class EndOfWorkTest {
    /** Run where it gets ready. */
    private static final int SMALL = 10;

    /** Run by workers and by threads that wait. */
    private static final int LARGE = 1 << 16;

    /** No more rounds of a race begin after this. */
    private static final long RACE_NANOS = Duration.ofMillis(2500).toNanos();

    private final Arena arena = Arena.ofShared();

    @AfterEach
    void closeArena() {
        arena.close();
    }

    /** What a share does in a round of a race; at least one of each round breaks. */
    private enum Fate {
        BREAKS,
        IS_DONE,
        IS_BLOCKED,
        GOES_ON
    }

    /** What is drawn for a round. */
    private record Round(Fate[] fates, int[] spins, boolean works) {}

    @ParameterizedTest
    @ValueSource(ints = {2, 3})
    void aWorkOfWhichAShareBreaksEndsOnce(int shares) {
        long seed = System.nanoTime();
        SplittableRandom random = new SplittableRandom(seed);
        AtomicReference<Round> round = new AtomicReference<>();
        HookedEngine engine =
                new HookedEngine(
                        new ScriptedEngine(
                                shares, (operation, share) -> progress(round.get(), share)),
                        (operation, share) -> {});
        RecordingLog log = new RecordingLog();
        CpuBackend backend = new CpuBackend(engine, new CpuDevices(new Scheduler(2, log)));
        DeviceBuffer buffer = DeviceBuffer.wrap(arena.allocate(4L * LARGE, 64));
        long startNanos = System.nanoTime();
        int rounds = 0;
        while (rounds < 3000 && System.nanoTime() - startNanos < RACE_NANOS) {
            round.set(draw(random, shares));
            Communicator rank = rank(backend);
            DeviceStream stream = rank.device().createStream();
            allReduce(rank, buffer, stream);
            assertThatThrownBy(() -> stream.synchronize(World.LONG))
                    .as("seed %d, round %d", seed, rounds)
                    .isInstanceOf(RankFailedException.class)
                    .hasMessageContaining("broken on purpose");
            assertThat(stream.poll()).as("seed %d, round %d", seed, rounds).isTrue();
            rank.close();
            stream.close();
            rounds++;
        }
        assertThat(engine.completed).as("seed %d", seed).hasValue(0);
        int started = engine.started.get();
        assertThat(started).isEqualTo(rounds);
        Awaitility.await()
                .alias("seed " + seed)
                .atMost(World.LONG)
                .until(() -> engine.givenUp.get() == started);
        engine.assertRulesKept();
        assertThat(log.entries())
                .as("seed %d", seed)
                .allMatch(entry -> entry.text().startsWith("communicator '"))
                .hasSize(rounds);

        round.set(new Round(null, null, true));
        Communicator rank = rank(backend);
        try (DeviceStream stream = rank.device().createStream()) {
            for (int i = 0; i < 20; i++) {
                allReduce(rank, buffer, stream);
                stream.synchronize(World.LONG);
            }
        }
        rank.close();
        assertThat(engine.completed).hasValue(20);
        engine.assertRulesKept();
    }

    private static Round draw(SplittableRandom random, int shares) {
        Fate[] fates = new Fate[shares];
        int[] spins = new int[shares];
        int breaking = random.nextInt(shares);
        // Only one, so that some thread is left for the share that breaks.
        boolean mayGoOn = true;
        for (int share = 0; share < shares; share++) {
            Fate fate = Fate.values()[random.nextInt(Fate.values().length)];
            // Most often the others are done, at once or a little later.
            boolean done = random.nextBoolean() || (fate == Fate.GOES_ON && !mayGoOn);
            fates[share] = share == breaking ? Fate.BREAKS : done ? Fate.IS_DONE : fate;
            mayGoOn &= fates[share] != Fate.GOES_ON;
            spins[share] = random.nextInt(3) == 0 ? 0 : random.nextInt(2000);
        }
        return new Round(fates, spins, false);
    }

    private static Progress progress(Round round, int share) {
        if (round.works()) {
            return Progress.DONE;
        }
        for (int i = 0; i < round.spins()[share]; i++) {
            Thread.onSpinWait();
        }
        return switch (round.fates()[share]) {
            case BREAKS -> throw new IllegalStateException("broken on purpose");
            case IS_DONE -> Progress.DONE;
            case IS_BLOCKED -> Progress.BLOCKED;
            case GOES_ON -> Progress.ADVANCED;
        };
    }

    @ParameterizedTest
    @ValueSource(ints = {SMALL, LARGE})
    void anAbortWhileAWorkIsBeingEndedEndsItNoSecondTime(int count) {
        AtomicReference<Communicator> current = new AtomicReference<>();
        AtomicReference<FutureTask<Void>> abort = new AtomicReference<>();
        ScriptedEngine.Script script =
                new ScriptedEngine.Script() {
                    @Override
                    public Progress progress(JoinedOperation operation, int share) {
                        return Progress.DONE;
                    }

                    @Override
                    public void finish(JoinedOperation operation, boolean done) {
                        if (done) {
                            abort.set(abortMeanwhile(current.get()));
                        }
                    }
                };
        HookedEngine engine =
                new HookedEngine(new ScriptedEngine(2, script), (operation, share) -> {});
        RecordingLog log = new RecordingLog();
        CpuBackend backend = new CpuBackend(engine, new CpuDevices(new Scheduler(2, log)));
        DeviceBuffer buffer = DeviceBuffer.wrap(arena.allocate(4L * count, 64));
        int rounds = 200;
        for (int i = 0; i < rounds; i++) {
            Communicator rank = rank(backend);
            current.set(rank);
            DeviceStream stream = rank.device().createStream();
            allReduce(rank, buffer, stream);
            try {
                stream.synchronize(World.LONG);
            } catch (CommunicatorAbortedException e) {
                assertThat(e).hasMessageContaining("aborted communicator");
            }
            Awaitility.await()
                    .pollDelay(Duration.ZERO)
                    .pollInterval(Duration.ofMillis(1))
                    .atMost(World.LONG)
                    .until(() -> abort.get() != null);
            join(abort.getAndSet(null));
            assertThat(rank.status()).isInstanceOf(CommunicatorStatus.Aborted.class);
            forget(stream);
            assertThat(stream.poll()).isTrue();
            rank.close();
            stream.close();
        }
        assertThat(engine.completed).hasValue(rounds);
        assertThat(engine.givenUp).hasValue(0);
        engine.assertRulesKept();
        assertThat(log.entries(System.Logger.Level.ERROR)).isEmpty();
    }

    /** Returns when the communicator has heard of it, so that the caller is in the middle. */
    private static FutureTask<Void> abortMeanwhile(Communicator rank) {
        FutureTask<Void> task =
                new FutureTask<>(() -> {
                    rank.abort(World.LONG);
                    return null;
                });
        Thread.ofPlatform().daemon().start(task);
        long startNanos = System.nanoTime();
        while (rank.status() instanceof CommunicatorStatus.Ready) {
            if (System.nanoTime() - startNanos > World.LONG.toNanos()) {
                throw new IllegalStateException("the abort was not heard of");
            }
            Thread.onSpinWait();
        }
        return task;
    }

    @ParameterizedTest
    @ValueSource(ints = {SMALL, LARGE})
    void anEngineThatBreaksWhenItIsToldOfTheEndIsToldOnce(int count) {
        ScriptedEngine.Script script =
                new ScriptedEngine.Script() {
                    @Override
                    public Progress progress(JoinedOperation operation, int share) {
                        return Progress.DONE;
                    }

                    @Override
                    public void finish(JoinedOperation operation, boolean done) {
                        throw new IllegalStateException("broken on purpose");
                    }
                };
        HookedEngine engine =
                new HookedEngine(new ScriptedEngine(2, script), (operation, share) -> {});
        CpuBackend backend =
                new CpuBackend(engine, new CpuDevices(new Scheduler(2, new RecordingLog())));
        DeviceBuffer buffer = DeviceBuffer.wrap(arena.allocate(4L * count, 64));
        for (int i = 0; i < 100; i++) {
            Communicator rank = rank(backend);
            DeviceStream stream = rank.device().createStream();
            allReduce(rank, buffer, stream);
            assertThatThrownBy(() -> stream.synchronize(World.LONG))
                    .isInstanceOf(RankFailedException.class)
                    .hasMessageContaining("broken on purpose");
            rank.close();
            stream.close();
        }
        assertThat(engine.completed).hasValue(100);
        assertThat(engine.givenUp).hasValue(0);
        engine.assertRulesKept();
    }

    @Test
    void aCopyWhoseArenaIsClosedMidwayFailsAndLeavesItsStreamUsable() {
        RecordingLog log = new RecordingLog();
        CpuDevices devices = new CpuDevices(new Scheduler(2, log));
        long bytes = 32 << 20;
        MemorySegment target = arena.allocate(bytes, 64);
        DeviceBuffer destination = DeviceBuffer.wrap(target);
        int cut = 0;
        try (DeviceStream stream = devices.device(0).createStream()) {
            // A copy may be over before this thread has closed the arena.
            for (int i = 0; i < 50 && cut < 3; i++) {
                byte value = (byte) (i + 1);
                Arena early = Arena.ofShared();
                MemorySegment source = early.allocate(bytes, 64);
                source.fill(value);
                stream.copy(DeviceBuffer.wrap(source), destination, bytes);
                AtomicReference<Boolean> interrupted = new AtomicReference<>();
                FutureTask<Boolean> caller =
                        new FutureTask<>(() -> {
                            try {
                                stream.synchronize(World.LONG);
                                return false;
                            } catch (InvalidArgumentException e) {
                                assertThat(e)
                                        .hasMessageContaining("copy of " + bytes + " bytes")
                                        .hasMessageContaining("keep the memory of both buffers");
                                return true;
                            } finally {
                                interrupted.set(Thread.interrupted());
                            }
                        });
                Thread.ofPlatform().daemon().start(caller);
                awaitByte(target, value);
                early.close();
                if (join(caller)) {
                    cut++;
                }
                assertThat(interrupted.get()).isFalse();
                assertThat(stream.poll()).isTrue();
            }
            assertThat(cut).isPositive();
            stream.fill(destination, (byte) 77);
            stream.synchronize(World.LONG);
            assertThat(target.get(ValueLayout.JAVA_BYTE, bytes - 1)).isEqualTo((byte) 77);
        }
        assertThat(log.entries()).isEmpty();
    }

    /** Waits until the first piece has come. */
    private static void awaitByte(MemorySegment target, byte value) {
        long startNanos = System.nanoTime();
        while ((byte) ValueLayout.JAVA_BYTE.varHandle().getVolatile(target, 0L) != value) {
            if (System.nanoTime() - startNanos > World.LONG.toNanos()) {
                throw new IllegalStateException("the copy does not begin");
            }
            Thread.onSpinWait();
        }
    }

    // ---- helpers

    private static Communicator rank(CpuBackend backend) {
        List<Communicator> ranks =
                backend.createLocal(
                        1, CommunicatorConfig.defaults().withOperationTimeout(World.LONG));
        return ranks.getFirst();
    }

    private static void allReduce(Communicator rank, DeviceBuffer buffer, DeviceStream stream) {
        rank.allReduce(
                buffer, buffer, buffer.sizeBytes() / 4, DataType.INT32, ReduceOp.SUM, stream);
    }

    /** What a stream remembers is told once. */
    private static void forget(DeviceStream stream) {
        try {
            stream.synchronize(World.LONG);
        } catch (CollectiveException e) {
            assertThat(e).isInstanceOf(CommunicatorAbortedException.class);
        }
    }

    private static <T> T join(FutureTask<T> task) {
        try {
            return task.get(30, TimeUnit.SECONDS);
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }
}
