package org.nccl4j.collectives;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

final class InMemoryStoreTest {
    private static final Duration LONG = Duration.ofDays(100_000_000);

    private final InMemoryStore store = new InMemoryStore();

    @Test
    void theFirstValueStays() {
        assertThat(store.setIfAbsent("k", new byte[] {1})).isTrue();
        assertThat(store.setIfAbsent("k", new byte[] {2})).isFalse();

        assertThat(store.get("k", Duration.ZERO)).contains(new byte[] {1});
    }

    @Test
    void valuesAreCopiedInAndOut() {
        byte[] value = {1};
        store.setIfAbsent("k", value);
        value[0] = 2;
        store.get("k", Duration.ZERO).orElseThrow()[0] = 3;

        assertThat(store.get("k", Duration.ZERO)).contains(new byte[] {1});
    }

    @Test
    void zeroAndNegativeTimeoutsAskWithoutWaiting() {
        assertThat(store.get("k", Duration.ZERO)).isEmpty();
        assertThat(store.get("k", Duration.ofNanos(-1))).isEmpty();
    }

    @Test
    void aWaitEndsAtItsDeadlineAndNotBefore() {
        Duration timeout = Duration.ofMillis(20);
        long start = System.nanoTime();

        assertThat(store.get("k", timeout)).isEmpty();
        assertThat(System.nanoTime() - start).isGreaterThanOrEqualTo(timeout.toNanos());
    }

    @Test
    void aTimeoutBelowAMillisecondEnds() {
        assertThat(store.get("k", Duration.ofNanos(1))).isEmpty();
    }

    @Test
    void aWaiterGetsTheValueThatComes() throws Exception {
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Future<byte[]>> waiters =
                    IntStream.range(0, 5)
                            .mapToObj(i -> threads.submit(() -> store.get("k", LONG).orElseThrow()))
                            .toList();
            store.setIfAbsent("other", new byte[] {1});
            store.setIfAbsent("k", new byte[] {7});

            for (Future<byte[]> waiter : waiters) {
                assertThat(waiter.get()).containsExactly(7);
            }
        }
    }

    @Test
    void oneOfManySettersWins() throws Exception {
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Callable<Boolean>> setters =
                    IntStream.range(0, 8)
                            .mapToObj(i ->
                                    (Callable<Boolean>)
                                            () -> store.setIfAbsent("k", new byte[] {(byte) i}))
                            .toList();
            int won = 0;
            for (Future<Boolean> setter : threads.invokeAll(setters)) {
                won += setter.get() ? 1 : 0;
            }
            assertThat(won).isEqualTo(1);
        }
    }

    @Test
    void anInterruptEndsTheWaitAndStaysSet() throws Exception {
        CountDownLatch started = new CountDownLatch(1);
        FutureTask<Boolean> wait =
                new FutureTask<>(() -> {
                    started.countDown();
                    assertThatThrownBy(() -> store.get("rank-1", LONG))
                            .isInstanceOf(WaitInterruptedException.class)
                            .hasMessage(
                                    "interrupted while waiting for the store's key"
                                            + " 'rank-1'; the store is unchanged, get may"
                                            + " be called again")
                            .hasCauseInstanceOf(InterruptedException.class);
                    return Thread.currentThread().isInterrupted();
                });
        Thread thread = Thread.ofPlatform().start(wait);
        started.await();
        // Before or within the wait: both must end it.
        thread.interrupt();

        assertThat(wait.get()).isTrue();
    }

    @Test
    void whatIsThereIsGivenToAnInterruptedThreadToo() throws ExecutionException {
        store.setIfAbsent("k", new byte[] {1});
        Thread.currentThread().interrupt();

        assertThat(store.get("k", LONG)).contains(new byte[] {1});
        assertThat(Thread.interrupted()).isTrue();
    }

    @Test
    void nullsAreRefused() {
        assertThatThrownBy(() -> store.setIfAbsent(null, new byte[0]))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("a store needs a key and a value, got key null");
        assertThatThrownBy(() -> store.setIfAbsent("k", null))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("a store needs a key and a value, got key 'k' without a value");
        assertThatThrownBy(() -> store.get(null, Duration.ZERO))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("a store needs a key, got null");
    }
}
