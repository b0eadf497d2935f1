package org.nccl4j.nccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

final class PlatformThreadTest {
    @Test
    void aPlatformThreadDoesItItself() {
        assertThat(PlatformThread.call(Thread::currentThread)).isSameAs(Thread.currentThread());
    }

    @Test
    void aVirtualThreadHasItDone() throws Exception {
        try (ExecutorService virtual = Executors.newVirtualThreadPerTaskExecutor()) {
            Thread ran =
                    virtual.submit(() -> PlatformThread.call(Thread::currentThread))
                            .get(20, TimeUnit.SECONDS);

            assertThat(ran.isVirtual()).isFalse();
        }
    }

    @Test
    void whatIsThrownComesThrough() throws Exception {
        try (ExecutorService virtual = Executors.newVirtualThreadPerTaskExecutor()) {
            assertThatThrownBy(() ->
                            virtual.submit(() ->
                                            PlatformThread.run(() -> {
                                                throw new IllegalStateException("thrown inside");
                                            }))
                                    .get(20, TimeUnit.SECONDS))
                    .hasCauseInstanceOf(IllegalStateException.class)
                    .hasMessageContaining("thrown inside");
        }
    }

    @Test
    void anInterruptIsKeptForLater() throws Exception {
        CountDownLatch inside = new CountDownLatch(1);
        CountDownLatch goOn = new CountDownLatch(1);
        AtomicReference<Boolean> interrupted = new AtomicReference<>();
        Thread waiting =
                Thread.ofVirtual()
                        .start(() -> {
                            PlatformThread.run(() -> {
                                inside.countDown();
                                awaitUninterruptibly(goOn);
                            });
                            interrupted.set(Thread.currentThread().isInterrupted());
                        });
        assertThat(inside.await(20, TimeUnit.SECONDS)).isTrue();
        waiting.interrupt();
        goOn.countDown();

        assertThat(waiting.join(Duration.ofSeconds(20))).isTrue();
        assertThat(interrupted.get()).isTrue();
    }

    private static void awaitUninterruptibly(CountDownLatch latch) {
        try {
            if (!latch.await(20, TimeUnit.SECONDS)) {
                throw new IllegalStateException("nobody let it go on");
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException("the thread that does it was interrupted", e);
        }
    }
}
