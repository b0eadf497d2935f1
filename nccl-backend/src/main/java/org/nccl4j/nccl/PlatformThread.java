package org.nccl4j.nccl;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Supplier;

/**
 * Where calls run that depend on what native code keeps per thread: the current device, the depth
 * of NCCL's groups. A virtual thread may move to another carrier between two calls, so its calls
 * are made by a platform thread that it waits for.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class PlatformThread {
    private PlatformThread() {}

    /** Its threads end when they have been idle for a minute. */
    private static final class Pool {
        static final ExecutorService THREADS =
                Executors.newCachedThreadPool(
                        Thread.ofPlatform().daemon().name("nccl4j-platform-", 0).factory());
    }

    /**
     * Runs it here, or on a platform thread if this one is virtual; its exceptions come through.
     */
    static <T> T call(Supplier<T> body) {
        if (!Thread.currentThread().isVirtual()) {
            return body.get();
        }
        return await(Pool.THREADS.submit(body::get));
    }

    /** As {@link #call}. */
    static void run(Runnable body) {
        if (!Thread.currentThread().isVirtual()) {
            body.run();
            return;
        }
        await(Pool.THREADS.submit(body));
    }

    /** Not ended by an interrupt, because what runs there cannot be taken back. */
    private static <T> T await(Future<T> running) {
        boolean interrupted = false;
        try {
            while (true) {
                try {
                    return running.get();
                } catch (InterruptedException e) {
                    interrupted = true;
                } catch (ExecutionException e) {
                    throw rethrown(e.getCause());
                }
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static RuntimeException rethrown(Throwable cause) {
        if (cause instanceof Error error) {
            throw error;
        }
        if (cause instanceof RuntimeException exception) {
            return exception;
        }
        throw new AssertionError("a body without checked exceptions threw one", cause);
    }
}
