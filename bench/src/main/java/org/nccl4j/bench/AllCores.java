package org.nccl4j.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Runs the parts of large jobs on every core of the machine.
 *
 * <p>Thread safety: one job at a time per caller; callers may overlap.
 */
final class AllCores implements AutoCloseable {

    /** A part of a job. */
    @FunctionalInterface
    interface Part {
        /**
         * Does one part.
         *
         * @return what the job adds up
         */
        long run(int index);
    }

    private final int cores = Runtime.getRuntime().availableProcessors();
    private final ExecutorService pool =
            Executors.newFixedThreadPool(
                    cores, Thread.ofPlatform().daemon().name("nccl4j-bench-data-", 0).factory());

    /**
     * Runs a job and waits for it.
     *
     * @param parts how many parts there are; they run in any order
     * @return the sum of what the parts returned
     * @throws InterruptedException if the caller is interrupted; parts that have not begun are
     *     given up
     */
    long sum(int parts, Part part) throws InterruptedException {
        if (parts == 1) {
            return part.run(0);
        }
        AtomicInteger next = new AtomicInteger();
        List<Callable<Long>> workers = new ArrayList<>();
        for (int worker = 0; worker < Math.min(cores, parts); worker++) {
            workers.add(() -> {
                long sum = 0;
                int index = next.getAndIncrement();
                while (index < parts && !Thread.currentThread().isInterrupted()) {
                    sum += part.run(index);
                    index = next.getAndIncrement();
                }
                return sum;
            });
        }
        long sum = 0;
        // Interrupted, invokeAll cancels the workers by interrupting them.
        for (Future<Long> worker : pool.invokeAll(workers)) {
            try {
                sum += worker.get();
            } catch (ExecutionException failed) {
                throw new IllegalStateException(
                        "the data of a row could not be made or checked: " + failed.getCause(),
                        failed.getCause());
            }
        }
        return sum;
    }

    @Override
    public void close() {
        pool.shutdownNow();
    }
}
