package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.function.IntConsumer;

/** Runs an operation on an engine without streams: in one thread, or a thread per participant. */
final class Drivers {
    private Drivers() {}

    /**
     * Calls the participants in random order, some of them many times running, until all are done.
     */
    static void inRandomOrder(Engine engine, JoinedOperation operation, long seed) {
        inRandomOrder(engine, operation, seed, done -> {});
    }

    /** The same, and tells at once who is done. */
    static void inRandomOrder(
            Engine engine, JoinedOperation operation, long seed, IntConsumer whenDone) {
        Engine.Run run = engine.start(operation);
        int n = run.shares();
        List<Integer> working = new ArrayList<>();
        for (int p = 0; p < n; p++) {
            working.add(p);
        }
        Random random = new Random(seed);
        boolean[] blocked = new boolean[n];
        int blockedCount = 0;
        int index = 0;
        int burst = 0;
        while (!working.isEmpty()) {
            if (burst-- <= 0 || index >= working.size() || blocked[working.get(index)]) {
                index = random.nextInt(working.size());
                burst = random.nextBoolean() ? 0 : random.nextInt(30);
            }
            int p = working.get(index);
            switch (run.progress(p)) {
                case DONE -> {
                    working.remove(index);
                    whenDone.accept(p);
                    blocked = new boolean[n];
                    blockedCount = 0;
                }
                case ADVANCED -> {
                    blocked = new boolean[n];
                    blockedCount = 0;
                }
                case BLOCKED -> {
                    if (!blocked[p]) {
                        blocked[p] = true;
                        blockedCount++;
                    }
                    if (blockedCount == working.size()) {
                        throw new AssertionError(
                                operation + ", seed " + seed + ": all of " + working + " blocked");
                    }
                }
            }
        }
        run.finish(true);
    }

    /** A thread per participant, which calls until its part is done. */
    static void inThreads(Engine engine, JoinedOperation operation) throws InterruptedException {
        Engine.Run run = engine.start(operation);
        List<FutureTask<Void>> tasks = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int p = 0; p < run.shares(); p++) {
            int participant = p;
            FutureTask<Void> task =
                    new FutureTask<>(() -> {
                        Engine.Progress progress;
                        do {
                            progress = run.progress(participant);
                            if (progress == Engine.Progress.BLOCKED) {
                                Thread.yield();
                            }
                        } while (progress != Engine.Progress.DONE
                                && !Thread.currentThread().isInterrupted());
                        return null;
                    });
            tasks.add(task);
            threads.add(Thread.ofPlatform().daemon().start(task));
        }
        try {
            for (FutureTask<Void> task : tasks) {
                task.get();
            }
        } catch (ExecutionException e) {
            threads.forEach(Thread::interrupt);
            throw new AssertionError(operation.toString(), e.getCause());
        } catch (InterruptedException e) {
            threads.forEach(Thread::interrupt);
            throw e;
        }
        run.finish(true);
    }
}
