package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.ValueLayout;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.WaitInterruptedException;

/** What stands for a thread that waits is used again when nobody else has it. */
@Timeout(60)
final class WaiterTest {
    private static final com.sun.management.ThreadMXBean THREADS =
            (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();

    private final long seed = new Random().nextLong();
    private final SplittableRandom random = new SplittableRandom(seed);

    @Test
    void oneThatSomebodyIsAboutToWakeIsNotReleased() {
        Scheduler scheduler = new Scheduler(2, new RecordingLog());
        WaitList list = new WaitList();
        Waiter waiter =
                new Waiter() {
                    @Override
                    boolean seemsOver() {
                        return true;
                    }
                };
        Chore chores;
        synchronized (scheduler) {
            list.add(waiter);
            list.wake(scheduler);
            chores = scheduler.takeChores(0);
        }
        assertThat(chores).isSameAs(waiter);
        // Its thread has been woken by something else, and is gone before it is performed.
        assertThat(waiter.release()).isFalse();
        scheduler.workers().perform(chores);
        assertThat(waiter.release()).isTrue();
        waiter.useAgain();
        assertThat(waiter.release()).isTrue();
    }

    /** On one core there are no workers: who waits runs what there is. */
    @Test
    void whoRunsWhatHeWaitsForAllocatesNothing() {
        try (World world = new World(2, 1, new DirectEngine(), config -> config)) {
            DeviceBuffer[] buffers = {world.zeros(0, 1 << 15), world.zeros(1, 1 << 15)};
            long least = Long.MAX_VALUE;
            for (int round = 0; round < 30; round++) {
                int waits = 0;
                long before = THREADS.getCurrentThreadAllocatedBytes();
                for (int i = 0; i < 20; i++) {
                    world.allReduce(0, buffers[0]);
                    world.allReduce(1, buffers[1]);
                    waits += world.stream(0).poll() ? 0 : 1;
                    world.stream(0).synchronize(World.LONG);
                }
                long allocated = THREADS.getCurrentThreadAllocatedBytes() - before;
                if (waits == 20) {
                    least = Math.min(least, allocated);
                }
            }
            assertThat(least).isZero();
        }
    }

    /** Waits of all lengths by all sorts of threads for one stream, whose waiters are shared. */
    @Test
    void waitersThatAreUsedAgainWakeWhoWaitsNow() throws Exception {
        Duration most = Duration.ofSeconds(3);
        long start = System.nanoTime();
        try (World world = new World(2, 2, new DirectEngine(), config -> config)) {
            AtomicBoolean over = new AtomicBoolean();
            List<FutureTask<Void>> tasks = new ArrayList<>();
            for (int each = 0; each < 4; each++) {
                int self = each;
                SplittableRandom own = random.split();
                FutureTask<Void> task =
                        new FutureTask<>(() -> {
                            while (!over.get()) {
                                waitALittle(world.stream(self % 2), own);
                            }
                            return null;
                        });
                tasks.add(task);
                (self < 2 ? Thread.ofPlatform().daemon() : Thread.ofVirtual()).start(task);
            }
            for (int rank = 0; rank < 2; rank++) {
                int self = rank;
                SplittableRandom own = random.split();
                FutureTask<Void> task =
                        new FutureTask<>(() -> {
                            callAndWait(world, self, own, start + most.toNanos());
                            return null;
                        });
                tasks.add(task);
                Thread.ofPlatform().daemon().start(task);
            }
            for (FutureTask<Void> task : tasks.subList(4, 6)) {
                task.get(30, TimeUnit.SECONDS);
            }
            over.set(true);
            for (FutureTask<Void> task : tasks) {
                task.get(30, TimeUnit.SECONDS);
            }
        }
    }

    private static void waitALittle(DeviceStream stream, SplittableRandom random) {
        if (random.nextInt(8) == 0) {
            Thread.currentThread().interrupt();
        }
        try {
            stream.synchronize(Duration.ofNanos(random.nextLong(200_000)));
        } catch (CollectiveTimeoutException | WaitInterruptedException e) {
            assertThat(e).hasMessageContaining("synchronize again");
        }
        Thread.interrupted();
    }

    /** The last call of both is the same, so that they end together. */
    private void callAndWait(World world, int rank, SplittableRandom random, long endNanos) {
        DeviceBuffer buffer = world.zeros(rank, 2);
        for (int i = 1; ; i++) {
            boolean last = System.nanoTime() - endNanos >= 0;
            buffer.hostSegment().setAtIndex(ValueLayout.JAVA_INT, 0, i);
            buffer.hostSegment().setAtIndex(ValueLayout.JAVA_INT, 1, last ? 1 : 0);
            for (int spins = random.nextInt(1 << random.nextInt(14)); spins > 0; spins--) {
                Thread.onSpinWait();
            }
            world.allReduce(rank, buffer);
            world.stream(rank).synchronize(World.LONG);
            int[] sums = World.toArray(buffer);
            assertThat(sums[0]).as("seed %d", seed).isEqualTo(2 * i);
            if (sums[1] > 0) {
                return;
            }
        }
    }
}
