package org.nccl4j.cpu;

import java.time.Duration;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.WaitInterruptedException;
import org.nccl4j.collectives.spi.Durations;

/** A mark: a stream and the ticket of its entry. Thread safety: guarded by the scheduler's lock. */
final class CpuEvent implements DeviceEvent {
    private final Scheduler scheduler;
    private CpuStream stream;
    private long ticket;
    private long passedNanos;
    private boolean closed;

    CpuEvent(Scheduler scheduler) {
        this.scheduler = scheduler;
    }

    static CpuEvent of(String operation, DeviceEvent event) {
        if (event instanceof CpuEvent mine) {
            return mine;
        }
        throw new InvalidArgumentException(
                operation
                        + ": the event is "
                        + (event == null ? "null" : "of another backend")
                        + "; make one with device().createEvent()");
    }

    // ---- lock held

    void mark(CpuStream newStream, long newTicket) {
        stream = newStream;
        ticket = newTicket;
    }

    /** The stream of the latest mark, or null. */
    CpuStream markedStream() {
        return stream;
    }

    long markedTicket() {
        return ticket;
    }

    /** A stream has come to a mark; it may have been replaced since. */
    void passed(CpuStream by, long passedTicket) {
        if (by == stream && passedTicket == ticket) {
            passedNanos = System.nanoTime();
        }
    }

    void requireOpen(String operation) {
        if (closed) {
            throw new InvalidArgumentException(
                    operation
                            + ": the event has been closed; make another with device().createEvent()");
        }
    }

    private boolean isPassed() {
        return stream == null || stream.completed() >= ticket;
    }

    // ---- DeviceEvent

    @Override
    public boolean poll() {
        synchronized (scheduler) {
            requireOpen("poll");
            return isPassed();
        }
    }

    @Override
    public void synchronize(Duration timeout) {
        long budgetNanos = Durations.saturatedNanos(timeout);
        long startNanos = System.nanoTime();
        if (Thread.currentThread().isInterrupted()) {
            throw interrupted();
        }
        CpuStream source;
        MarkWaiter waiter;
        synchronized (scheduler) {
            requireOpen("synchronize");
            if (isPassed()) {
                return;
            }
            source = stream;
            waiter = new MarkWaiter(source, ticket);
        }
        Workers.Outcome outcome =
                scheduler.workers().await(waiter, source.waiters, startNanos, budgetNanos);
        switch (outcome) {
            case OVER -> {}
            case INTERRUPTED -> throw interrupted();
            case OUT_OF_TIME -> {
                synchronized (scheduler) {
                    throw new CollectiveTimeoutException(
                            "the event's mark was not passed within "
                                    + Durations.text(timeout)
                                    + ": "
                                    + source
                                    + ": "
                                    + Wording.head(source)
                                    + "; nothing has changed, synchronize again",
                            false);
                }
            }
        }
    }

    private static WaitInterruptedException interrupted() {
        return new WaitInterruptedException(
                "interrupted while waiting for an event; its mark is unchanged, synchronize again");
    }

    @Override
    public Duration elapsedSince(DeviceEvent earlier) {
        CpuEvent other = of("elapsedSince", earlier);
        synchronized (scheduler) {
            requirePassed("this event");
            other.requirePassed("the earlier event");
            return Duration.ofNanos(passedNanos - other.passedNanos);
        }
    }

    private void requirePassed(String which) {
        requireOpen("elapsedSince");
        if (stream == null || !isPassed()) {
            throw new InvalidArgumentException(
                    "elapsedSince: "
                            + which
                            + (stream == null
                                    ? " has no mark; record it on a stream first"
                                    : " has a mark that its stream has not passed; synchronize first"));
        }
    }

    @Override
    public void close() {
        synchronized (scheduler) {
            closed = true;
        }
    }

    private static final class MarkWaiter extends Waiter {
        private final CpuStream stream;
        private final long ticket;

        MarkWaiter(CpuStream stream, long ticket) {
            this.stream = stream;
            this.ticket = ticket;
        }

        @Override
        boolean seemsOver() {
            return stream.completed() >= ticket;
        }
    }
}
