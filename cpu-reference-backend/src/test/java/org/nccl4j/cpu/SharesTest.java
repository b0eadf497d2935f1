package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.cpu.Engine.Progress;

/** What a share may be, and that of all threads one takes it and one ends the whole. */
@Timeout(60)
final class SharesTest {
    /** Up to 16 have a cache line each. */
    private static final int MANY = 40;

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 16, 17, MANY})
    void nobodyGetsInBeforeTheyAreOpen(int count) {
        Shares shares = shares(count);
        assertAllClosed(shares, count);
        shares.cut(new Pieces(count));
        assertThat(shares.count()).isEqualTo(count);
        assertAllClosed(shares, count);
        shares.open();
        assertThat(shares.haveFree()).isTrue();
        for (int share = 0; share < count; share++) {
            assertThat(shares.claim(share)).isTrue();
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 16, 17, MANY})
    void aShareBelongsToWhoeverHasClaimedIt(int count) {
        Shares shares = opened(count);
        for (int share = 0; share < count; share++) {
            assertThat(shares.isFree(share)).isTrue();
            assertThat(shares.claim(share)).isTrue();
            assertThat(shares.isFree(share)).isFalse();
            assertThat(shares.claim(share)).isFalse();
            assertThat(shares.haveFree()).isEqualTo(share < count - 1);
        }
        for (int share = 0; share < count; share++) {
            shares.release(share, true);
            assertThat(shares.haveFree()).isTrue();
            assertThat(shares.isDone(share)).isFalse();
            assertThat(shares.claim(share)).isTrue();
        }
        for (int share = 0; share < count; share++) {
            shares.finish(share);
            assertThat(shares.isDone(share)).isTrue();
            assertThat(shares.claim(share)).isFalse();
            assertThat(shares.isFree(share)).isFalse();
            assertThat(shares.haveFree()).isFalse();
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 16, 17, MANY})
    void theThreadThatLeadsEndsThem(int count) {
        Shares shares = opened(count);
        for (int share = 0; share < count; share++) {
            assertThat(shares.areLedToTheirEnd()).isFalse();
            assertThat(shares.claim(share)).isTrue();
            assertThat(shares.finish(share)).isFalse();
        }
        assertThat(shares.areLedToTheirEnd()).isTrue();
        assertThat(shares.stopLeading()).isTrue();
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 16, 17, MANY})
    void theLastRunnerEndsThemIfNobodyLeads(int count) {
        Shares shares = opened(count);
        assertThat(shares.stopLeading()).isFalse();
        for (int share = 0; share < count; share++) {
            assertThat(shares.claim(share)).isTrue();
            assertThat(shares.finish(share)).isEqualTo(share == count - 1);
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 16, 17, MANY})
    void whoHasThemAloneEndsThemWithTheLast(int count) {
        Shares shares = shares(count);
        shares.cut(new Pieces(count));
        for (int share = 0; share < count; share++) {
            assertThat(shares.isDone(share)).isFalse();
            assertThat(shares.finishAlone(share)).isEqualTo(share == count - 1);
            assertThat(shares.isDone(share)).isTrue();
        }
    }

    @Test
    void aLifeHasNothingOfTheLast() {
        Shares shares = opened(MANY);
        for (int share = 0; share < MANY; share++) {
            shares.claim(share);
            shares.finish(share);
        }
        shares.stopLeading();
        shares.abandon();
        shares.close();
        assertThat(shares.areAbandoned()).isFalse();
        assertAllClosed(shares, MANY);

        Pieces fewer = new Pieces(3);
        shares.cut(fewer);
        shares.open();
        assertThat(shares.count()).isEqualTo(3);
        for (int share = 3; share < MANY; share++) {
            assertThat(shares.claim(share)).isFalse();
        }
        assertThat(shares.stopLeading()).isFalse();
        for (int share = 0; share < 3; share++) {
            assertThat(shares.claim(share)).isTrue();
            assertThat(shares.advance(share)).isEqualTo(Progress.DONE);
            assertThat(shares.finish(share)).isEqualTo(share == 2);
        }
        assertThat(fewer.advanced).containsExactly(1, 1, 1);
    }

    @Test
    void aLifeThatWasCutShortLeavesNoneFree() {
        Shares shares = opened(MANY);
        shares.claim(2);
        shares.finish(2);
        shares.close();
        assertAllClosed(shares, MANY);
    }

    @Test
    void abandonedSharesAreOfferedToNobody() {
        Shares shares = opened(2);
        shares.stopLeading();
        shares.claim(0);
        shares.abandon();
        assertThat(shares.areAbandoned()).isTrue();
        assertThat(shares.haveFree()).isFalse();
        // Whoever is in one is still seen.
        assertThat(shares.haveThreads()).isTrue();
        shares.release(0, false);
        assertThat(shares.haveFree()).isFalse();
        assertThat(shares.haveThreads()).isFalse();
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 16, 17, MANY})
    void whoRunsLeadsOrEndsThemIsSeen(int count) {
        Shares shares = opened(count);
        assertThat(shares.haveThreads()).as("led").isTrue();
        assertThat(shares.stopLeading()).isFalse();
        assertThat(shares.haveThreads()).as("left alone").isFalse();
        for (int share = 0; share < count; share++) {
            shares.claim(share);
            assertThat(shares.haveThreads()).as("run").isTrue();
            shares.release(share, true);
            assertThat(shares.haveThreads()).as("released").isFalse();
            shares.claim(share);
            boolean last = shares.finish(share);
            assertThat(last).isEqualTo(share == count - 1);
            assertThat(shares.haveThreads()).as("being ended").isEqualTo(last);
        }

        Shares led = opened(count);
        for (int share = 0; share < count; share++) {
            led.claim(share);
            led.finish(share);
            assertThat(led.haveThreads()).as("led").isTrue();
        }
        assertThat(led.stopLeading()).isTrue();
        assertThat(led.haveThreads()).as("being ended").isTrue();
    }

    @Test
    void moreThanWereAnnouncedAreRefused() {
        Shares shares = shares(2);
        assertThatThrownBy(() -> shares.cut(new Pieces(3)))
                .isInstanceOf(IllegalStateException.class)
                .hasMessage(
                        "the engine cuts an operation into 3 shares, more than it said there would"
                                + " be");
    }

    @Test
    void theStampChangesWithWhatHasMoved() {
        Shares shares = opened(2);
        shares.claim(0);
        int stamp = shares.stamp();
        shares.release(0, false);
        assertThat(shares.stamp()).isEqualTo(stamp);
        shares.claim(0);
        assertThat(shares.stamp()).isEqualTo(stamp);
        shares.release(0, true);
        assertThat(shares.stamp()).isNotEqualTo(stamp);
        stamp = shares.stamp();
        shares.claim(0);
        shares.finish(0);
        assertThat(shares.stamp()).isNotEqualTo(stamp);
    }

    /** The stamp and what is left are in one word. */
    @Test
    void aStampThatStartsAgainLeavesTheCountAlone() {
        Shares shares = opened(2);
        for (int i = 0; i < 200_000; i++) {
            shares.claim(i % 2);
            shares.release(i % 2, true);
        }
        shares.claim(0);
        assertThat(shares.finish(0)).isFalse();
        assertThat(shares.areLedToTheirEnd()).isFalse();
        shares.claim(1);
        assertThat(shares.finish(1)).isFalse();
        assertThat(shares.areLedToTheirEnd()).isTrue();
        assertThat(shares.stopLeading()).isTrue();
    }

    @Test
    void moreThanCanBeCountedAreRefused() {
        assertThatThrownBy(() -> shares(1 << 16))
                .isInstanceOf(IllegalArgumentException.class)
                .hasMessage("65536 shares are too many to be counted");
    }

    @ParameterizedTest
    @ValueSource(ints = {2, MANY})
    void oneOfManyThreadsClaimsAShareAndOneEndsThem(int count) throws Exception {
        int lives = 1000;
        int threads = 4;
        Shares shares = shares(count);
        AtomicIntegerArray claims = new AtomicIntegerArray(count);
        AtomicInteger ends = new AtomicInteger();
        // Plain, as what a share moves is: claim and release carry it from thread to thread.
        int[] pieces = new int[count];
        AtomicInteger life = new AtomicInteger();
        Runnable renewed =
                () -> {
                    if (life.getAndIncrement() > 0) {
                        assertThat(ends.getAndSet(0)).isOne();
                        for (int share = 0; share < count; share++) {
                            assertThat(claims.getAndSet(share, 0)).isOne();
                        }
                    }
                    shares.close();
                    shares.cut(new Pieces(count));
                    shares.open();
                };
        CyclicBarrier barrier = new CyclicBarrier(threads, renewed);
        inThreads(
                threads,
                thread -> {
                    for (int i = 0; i < lives; i++) {
                        barrier.await(20, TimeUnit.SECONDS);
                        for (int share = 0; share < count; share++) {
                            // Some give it back first, for somebody else to go on.
                            if (shares.claim(share)) {
                                pieces[share]++;
                                shares.release(share, true);
                            }
                        }
                        boolean ended = false;
                        for (int share = 0; share < count; share++) {
                            while (!shares.isDone(share)) {
                                if (shares.claim(share)) {
                                    pieces[share]++;
                                    claims.incrementAndGet(share);
                                    ended |= shares.finish(share);
                                }
                                Thread.onSpinWait();
                            }
                        }
                        // One of them leads.
                        ended |= thread == 0 && shares.stopLeading();
                        if (ended) {
                            ends.incrementAndGet();
                        }
                    }
                    barrier.await(20, TimeUnit.SECONDS);
                });
        for (int share = 0; share < count; share++) {
            assertThat(pieces[share]).isBetween(2 * lives, (threads + 1) * lives);
        }
    }

    @Test
    void whatOneClaimerWroteTheNextReads() throws Exception {
        int pieces = 100_000;
        Shares shares = opened(1);
        int[] counter = new int[1];
        inThreads(
                3,
                thread -> {
                    for (int i = 0; i < pieces; i++) {
                        while (!shares.claim(0)) {
                            Thread.yield();
                        }
                        counter[0]++;
                        shares.release(0, i % 2 == 0);
                    }
                });
        assertThat(counter[0]).isEqualTo(3 * pieces);
        assertThat(shares.isFree(0)).isTrue();
    }

    // ---- helpers

    private static Shares shares(int most) {
        Scheduler scheduler = new Scheduler(2, new RecordingLog());
        CpuStream stream = (CpuStream) new CpuDevices(scheduler).device(0).createStream();
        return new Shares(new LocalWork(stream), most);
    }

    private static Shares opened(int count) {
        Shares shares = shares(count);
        shares.cut(new Pieces(count));
        shares.open();
        return shares;
    }

    private static void assertAllClosed(Shares shares, int count) {
        assertThat(shares.haveFree()).isFalse();
        for (int share = 0; share < count; share++) {
            assertThat(shares.claim(share)).isFalse();
            assertThat(shares.isDone(share)).isFalse();
        }
    }

    private interface Body {
        void run(int thread) throws Exception;
    }

    private static void inThreads(int threads, Body body) throws Exception {
        List<FutureTask<Void>> tasks = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int thread = i;
            FutureTask<Void> task =
                    new FutureTask<>(() -> {
                        body.run(thread);
                        return null;
                    });
            tasks.add(task);
            Thread.ofPlatform().daemon().start(task);
        }
        for (FutureTask<Void> task : tasks) {
            task.get(30, TimeUnit.SECONDS);
        }
    }

    /** Shares that are done when they are first advanced. */
    private static final class Pieces implements Engine.Pieces {
        private final int[] advanced;

        Pieces(int count) {
            advanced = new int[count];
        }

        @Override
        public int shares() {
            return advanced.length;
        }

        @Override
        public Progress progress(int share) {
            advanced[share]++;
            return Progress.DONE;
        }
    }
}
