package org.nccl4j.cpu;

import java.time.Duration;
import java.util.function.Supplier;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.WaitInterruptedException;
import org.nccl4j.collectives.spi.Durations;

/** A rank's view of a {@link HostCall}. Thread safety: any thread may ask. */
final class HostPending<T> implements Pending<T> {
    private final HostCall call;
    private final Supplier<T> value;

    HostPending(HostCall call, Supplier<T> value) {
        this.call = call;
        this.value = value;
    }

    @Override
    public boolean isDone() {
        return call.isDone() || call.clique().cause != null;
    }

    @Override
    public T await(Duration timeout) {
        long startNanos = System.nanoTime();
        Clique clique = call.clique();
        Waiter waiter =
                new Waiter() {
                    @Override
                    boolean seemsOver() {
                        return HostPending.this.isDone();
                    }
                };
        Workers.Outcome outcome =
                clique.scheduler
                        .workers()
                        .await(
                                waiter,
                                clique.waiters,
                                startNanos,
                                Durations.saturatedNanos(timeout));
        String name = Wording.name(call);
        switch (outcome) {
            case INTERRUPTED ->
                    throw new WaitInterruptedException(
                            "interrupted while waiting for " + name + "; await it again");
            case OUT_OF_TIME ->
                    throw new CollectiveTimeoutException(
                            name
                                    + " of communicator '"
                                    + clique.name
                                    + "' was not done within "
                                    + Durations.text(timeout)
                                    + "; nothing has changed, await it again",
                            false);
            case OVER -> {}
        }
        synchronized (clique.scheduler) {
            if (!call.isDone()) {
                throw clique.cause.forThisThread();
            }
            return value.get();
        }
    }
}
