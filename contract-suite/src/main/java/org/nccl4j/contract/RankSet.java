package org.nccl4j.contract;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DeviceStream;

/**
 * The ranks of one communicator, each with a thread of its own, plus one thread that may drive them
 * all. Every wait has a deadline, and what hangs is shown with its stack.
 */
final class RankSet implements AutoCloseable {
    /** How long any step of a test may take. */
    static final Duration DEADLINE = Duration.ofSeconds(30);

    private final Backend backend;
    private final List<Rank> ranks = new ArrayList<>();
    private final List<Thread> threads = new ArrayList<>();
    private final List<ExecutorService> executors = new ArrayList<>();

    private RankSet(Backend backend, List<Communicator> communicators) {
        this.backend = backend;
        for (Communicator communicator : communicators) {
            ranks.add(new Rank(communicator));
        }
        for (int i = 0; i <= ranks.size(); i++) {
            String name = i < ranks.size() ? "rank-" + i : "all-ranks";
            executors.add(
                    Executors.newSingleThreadExecutor(task -> {
                        Thread thread = Thread.ofPlatform().daemon().name(name).unstarted(task);
                        synchronized (threads) {
                            threads.add(thread);
                        }
                        return thread;
                    }));
        }
    }

    static RankSet local(Backend backend, int ranks, CommunicatorConfig config) {
        return new RankSet(backend, backend.createLocal(ranks, config));
    }

    /** Ranks of communicators that were made in another way; they are closed with the set. */
    static RankSet of(Backend backend, List<Communicator> communicators) {
        return new RankSet(backend, communicators);
    }

    Backend backend() {
        return backend;
    }

    int size() {
        return ranks.size();
    }

    Rank rank(int rank) {
        return ranks.get(rank);
    }

    List<Rank> ranks() {
        return ranks;
    }

    List<Communicator> communicators() {
        return ranks.stream().map(Rank::communicator).toList();
    }

    /** Starts something on a rank's thread. */
    Future<?> start(int rank, Consumer<Rank> action) {
        return executors.get(rank).submit(() -> action.accept(ranks.get(rank)));
    }

    /** Does something on a rank's thread. */
    void on(int rank, Consumer<Rank> action) {
        await(start(rank, action), DEADLINE);
    }

    /** Does something on some ranks' threads at the same time. */
    void on(List<Integer> some, Consumer<Rank> action) {
        awaitAll(some.stream().<Future<?>>map(rank -> start(rank, action)).toList(), DEADLINE);
    }

    /** Does something on every rank's thread at the same time. */
    void onEvery(Consumer<Rank> action) {
        awaitAll(startOnEvery(action), DEADLINE);
    }

    List<Future<?>> startOnEvery(Consumer<Rank> action) {
        List<Future<?>> started = new ArrayList<>();
        for (int r = 0; r < ranks.size(); r++) {
            started.add(start(r, action));
        }
        return started;
    }

    /** Does something on the one thread that drives all ranks. */
    void onOneThread(Runnable action, Duration deadline) {
        await(executors.getLast().submit(action), deadline);
    }

    /** Waits for all; throws the first failure with the others suppressed. */
    void awaitAll(List<Future<?>> started, Duration deadline) {
        Throwable first = null;
        long end = System.nanoTime() + deadline.toNanos();
        for (Future<?> future : started) {
            try {
                await(future, Duration.ofNanos(Math.max(1, end - System.nanoTime())));
            } catch (RuntimeException | AssertionError e) {
                if (first == null) {
                    first = e;
                } else {
                    first.addSuppressed(e);
                }
            }
        }
        if (first instanceof RuntimeException e) {
            throw e;
        }
        if (first instanceof AssertionError e) {
            throw e;
        }
    }

    void await(Future<?> future, Duration deadline) {
        try {
            future.get(deadline.toNanos(), TimeUnit.NANOSECONDS);
        } catch (ExecutionException e) {
            switch (e.getCause()) {
                case RuntimeException cause -> throw cause;
                case AssertionError cause -> throw cause;
                default -> throw new AssertionError("a rank's thread failed", e.getCause());
            }
        } catch (TimeoutException e) {
            throw new AssertionError("not done within " + deadline + stacks(), e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AssertionError(
                    "interrupted: the test's own deadline has passed" + stacks(), e);
        }
    }

    private String stacks() {
        StringBuilder text = new StringBuilder();
        synchronized (threads) {
            for (Thread thread : threads) {
                text.append("\n").append(thread.getName()).append(" ").append(thread.getState());
                for (StackTraceElement frame : thread.getStackTrace()) {
                    text.append("\n    at ").append(frame);
                }
            }
        }
        for (Rank rank : ranks) {
            text.append("\nrank ").append(rank.rank()).append(": ");
            text.append(rank.communicator().status());
        }
        return text.toString();
    }

    void synchronizeAll() {
        List<DeviceStream> streams = ranks.stream().map(Rank::stream).toList();
        backend.synchronizeAll(streams, DEADLINE);
    }

    /** Whether the communicator can still be used. */
    boolean isReady() {
        return ranks.stream()
                .allMatch(rank -> rank.communicator().status() instanceof CommunicatorStatus.Ready);
    }

    /** Gives up all work, so that nobody waits for a rank that has stopped. */
    void abandon() {
        for (Rank rank : ranks) {
            rank.communicator().abort(DEADLINE);
        }
    }

    @Override
    public void close() {
        try {
            if (isReady()) {
                backend.closeAll(communicators());
            } else {
                for (Rank rank : ranks) {
                    if (!(rank.communicator().status() instanceof CommunicatorStatus.Closed)) {
                        rank.communicator().abort(DEADLINE);
                    }
                    rank.communicator().close();
                }
            }
        } finally {
            for (Rank rank : ranks) {
                rank.close();
            }
            for (ExecutorService executor : executors) {
                executor.shutdownNow();
            }
        }
    }
}
