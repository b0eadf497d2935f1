package org.nccl4j.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntConsumer;
import org.nccl4j.collectives.CollectiveException;

/**
 * Runs the parts of large jobs on every core of the machine.
 *
 * <p>Thread safety: one job at a time per caller; callers may overlap.
 */
final class AllCores implements AutoCloseable {

    private final int cores = Runtime.getRuntime().availableProcessors();
    private final ExecutorService pool =
            Executors.newFixedThreadPool(
                    cores, Thread.ofPlatform().daemon().name("nccl4j-bench-data-", 0).factory());

    int count() {
        return cores;
    }

    /**
     * Runs a job and waits for it.
     *
     * @param parts how many parts there are; they run in any order
     * @param part runs the part of a number
     * @throws InterruptedException if the caller is interrupted; parts that have not begun are
     *     given up
     * @throws CollectiveException what a part failed with
     */
    void run(int parts, IntConsumer part) throws InterruptedException {
        if (parts == 1) {
            part.accept(0);
            return;
        }
        AtomicInteger next = new AtomicInteger();
        List<Callable<Void>> workers = new ArrayList<>();
        for (int worker = 0; worker < Math.min(cores, parts); worker++) {
            workers.add(() -> {
                int index = next.getAndIncrement();
                while (index < parts && !Thread.currentThread().isInterrupted()) {
                    part.accept(index);
                    index = next.getAndIncrement();
                }
                return null;
            });
        }
        // Interrupted, invokeAll cancels the workers by interrupting them.
        for (Future<Void> worker : pool.invokeAll(workers)) {
            try {
                worker.get();
            } catch (ExecutionException failed) {
                if (failed.getCause() instanceof CollectiveException cause) {
                    throw cause;
                }
                throw new IllegalStateException(
                        "the data of a row could not be made or checked: " + failed.getCause(),
                        failed.getCause());
            }
        }
    }

    @Override
    public void close() {
        pool.shutdownNow();
    }
}
