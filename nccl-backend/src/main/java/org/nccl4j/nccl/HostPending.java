package org.nccl4j.nccl;

import java.time.Duration;
import java.util.function.Supplier;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.WaitInterruptedException;
import org.nccl4j.collectives.spi.Durations;

/**
 * The outcome of a {@link HostCall}.
 *
 * <p>Thread safety: any thread may ask.
 */
final class HostPending<T> implements Pending<T> {
    private final HostCall call;

    /** Gives the value, or null while it is not there. */
    private final Supplier<T> source;

    private volatile T value;

    HostPending(HostCall call, Supplier<T> source) {
        this.call = call;
        this.source = source;
    }

    @Override
    public boolean isDone() {
        return isThere() || call.clique().cause() != null;
    }

    private boolean isThere() {
        if (value == null) {
            synchronized (this) {
                if (value == null) {
                    value = source.get();
                }
            }
        }
        return value != null;
    }

    @Override
    public T await(Duration timeout) {
        long startNanos = System.nanoTime();
        long budgetNanos = Durations.saturatedNanos(timeout);
        Waiting.Outcome outcome = Waiting.until(this::isDone, startNanos, budgetNanos);
        String name =
                call.kind().operation()
                        + " #"
                        + call.number()
                        + " of "
                        + call.members().getFirst().describe();
        return switch (outcome) {
            case INTERRUPTED ->
                    throw new WaitInterruptedException(
                            "interrupted while waiting for " + name + "; await it again");
            case OUT_OF_TIME ->
                    throw new CollectiveTimeoutException(
                            name
                                    + " was not done within "
                                    + Durations.text(timeout)
                                    + "; nothing has changed, await it again",
                            false);
            case OVER -> {
                CollectiveException cause = call.clique().cause();
                if (!isThere()) {
                    throw cause.forThisThread();
                }
                yield value;
            }
        };
    }
}
