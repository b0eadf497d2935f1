package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.BitSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
final class WorkerThreadTest {
    @Test
    void isKeptOffOneCoreIfThereIsAnotherFromTheCallUntilItHasWoken() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        FutureTask<WorkerThread> made = new FutureTask<>(WorkerThread::new);
        FutureTask<Integer> number = new FutureTask<>(PosixCalls::currentThread);
        Thread thread =
                Thread.ofPlatform()
                        .start(() -> {
                            number.run();
                            made.run();
                            WorkersTest.await(end);
                        });
        try {
            WorkerThread worker = made.get(20, TimeUnit.SECONDS);
            int id = number.get();
            BitSet before = cores(id);
            int others = Math.max(Math.min(1, before.cardinality()), before.cardinality() - 1);

            worker.keepOffMyCore();
            assertThat(cores(id)).as("it has not parked").isEqualTo(before);

            worker.parks();
            worker.keepOffMyCore();
            BitSet kept = cores(id);
            assertThat(kept.cardinality()).isEqualTo(others);
            assertThat(before.intersects(kept)).isEqualTo(others > 0);
            // By a second caller, perhaps elsewhere.
            worker.keepOffMyCore();
            assertThat(cores(id)).isEqualTo(kept);

            worker.hasWoken();
            assertThat(cores(id)).isEqualTo(before);
            worker.keepOffMyCore();
            assertThat(cores(id)).as("the call came late").isEqualTo(before);
        } finally {
            end.countDown();
            thread.join();
        }
    }

    /** Those that a thread may use; none where the system does not tell. */
    private static BitSet cores(int thread) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cores = arena.allocate(128, Long.BYTES);
            PosixCalls.allowedCores(thread, cores);
            return BitSet.valueOf(cores.toArray(ValueLayout.JAVA_BYTE));
        }
    }
}
