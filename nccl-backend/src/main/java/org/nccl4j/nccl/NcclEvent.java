package org.nccl4j.nccl;

import java.time.Duration;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.WaitInterruptedException;
import org.nccl4j.collectives.spi.Durations;

/**
 * A mark, with a CUDA event of the marked stream's device. An event that is recorded again takes
 * another CUDA event if somebody is waiting for the earlier mark.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class NcclEvent implements DeviceEvent {
    /** One CUDA event. Guarded by the event that made it. */
    private static final class Mark {
        final NcclDevice device;
        final long event;

        /** Where it was recorded last. */
        NcclStream stream;

        /** How many threads look at it without the lock. */
        int watchers;

        /** Whether it is not the event's mark any more. */
        boolean replaced;

        Mark(NcclDevice device) {
            this.device = device;
            this.event = device.events().take(true);
        }

        void giveBack() {
            device.events().giveBack(event, true);
        }
    }

    // ---- guarded by this

    private Mark mark;
    private boolean closed;

    static NcclEvent of(String operation, DeviceEvent event) {
        if (event instanceof NcclEvent mine) {
            return mine;
        }
        throw new InvalidArgumentException(
                operation
                        + ": the event is "
                        + (event == null ? "null" : "of another backend")
                        + "; make one with device().createEvent()");
    }

    private void requireOpen(String operation) {
        if (closed) {
            throw new InvalidArgumentException(
                    operation
                            + ": the event has been closed; make another with device().createEvent()");
        }
    }

    // ---- for streams

    synchronized void recordOn(NcclStream stream) {
        requireOpen("record");
        if (mark != null && mark.device == stream.device() && mark.watchers == 0) {
            stream.recordRaw(mark.event, "record");
            mark.stream = stream;
            return;
        }
        Mark next = new Mark(stream.device());
        boolean recorded = false;
        try {
            stream.recordRaw(next.event, "record");
            recorded = true;
        } finally {
            if (!recorded) {
                next.giveBack();
            }
        }
        next.stream = stream;
        replace(next);
    }

    synchronized void holdUp(NcclStream stream) {
        requireOpen("waitFor");
        if (mark != null) {
            stream.waitRaw(mark.event);
        }
    }

    private void replace(Mark next) {
        Mark earlier = mark;
        mark = next;
        if (earlier != null) {
            earlier.replaced = true;
            if (earlier.watchers == 0) {
                earlier.giveBack();
            }
        }
    }

    // ---- watching

    /** The mark that it has now, to be looked at until {@link #leave}; null if it has none. */
    private synchronized Mark watch(String operation) {
        requireOpen(operation);
        if (mark != null) {
            mark.watchers++;
        }
        return mark;
    }

    private synchronized void leave(Mark watched) {
        if (watched != null && --watched.watchers == 0 && watched.replaced) {
            watched.giveBack();
        }
    }

    private static boolean isPassed(Mark watched) {
        if (watched == null) {
            return true;
        }
        long before = CurrentDevice.visit(watched.device);
        try {
            return CudaRuntime.eventQuery(watched.event, "looking at an event");
        } finally {
            CurrentDevice.leave(before);
        }
    }

    // ---- DeviceEvent

    @Override
    public boolean poll() {
        Mark watched = watch("poll");
        try {
            return isPassed(watched);
        } finally {
            leave(watched);
        }
    }

    @Override
    public void synchronize(Duration timeout) {
        long budgetNanos = Durations.saturatedNanos(timeout);
        long startNanos = System.nanoTime();
        if (Thread.currentThread().isInterrupted()) {
            throw interrupted();
        }
        Mark watched = watch("synchronize");
        try {
            if (isPassed(watched)) {
                return;
            }
            switch (Waiting.until(() -> isPassed(watched), startNanos, budgetNanos)) {
                case OVER -> {}
                case INTERRUPTED -> throw interrupted();
                case OUT_OF_TIME ->
                        throw new CollectiveTimeoutException(
                                "the event's mark was not passed within "
                                        + Durations.text(timeout)
                                        + ": "
                                        + watched.stream
                                        + ": "
                                        + watched.stream.workInWords()
                                        + "; nothing has changed, synchronize again",
                                false);
            }
        } finally {
            leave(watched);
        }
    }

    private static WaitInterruptedException interrupted() {
        return new WaitInterruptedException(
                "interrupted while waiting for an event; its mark is unchanged, synchronize again");
    }

    @Override
    public Duration elapsedSince(DeviceEvent earlier) {
        NcclEvent other = of("elapsedSince", earlier);
        Mark to = watch("elapsedSince");
        try {
            Mark from = other.watch("elapsedSince");
            try {
                return elapsed(from, to);
            } finally {
                other.leave(from);
            }
        } finally {
            leave(to);
        }
    }

    private static Duration elapsed(Mark from, Mark to) {
        requirePassed("this event", to);
        requirePassed("the earlier event", from);
        if (from.device != to.device) {
            throw new InvalidArgumentException(
                    "elapsedSince: the marks are of "
                            + from.device
                            + " and "
                            + to.device
                            + ", whose clocks cannot be compared; record both on streams of one"
                            + " device");
        }
        float millis =
                from.device.call(() ->
                        CudaRuntime.elapsedMillis(
                                from.event, to.event, "the time between two events"));
        return Duration.ofNanos(Math.round(millis * 1e6));
    }

    private static void requirePassed(String which, Mark mark) {
        if (mark == null || !isPassed(mark)) {
            throw new InvalidArgumentException(
                    "elapsedSince: "
                            + which
                            + (mark == null
                                    ? " has no mark; record it on a stream first"
                                    : " has a mark that its stream has not passed; synchronize first"));
        }
    }

    @Override
    public synchronized void close() {
        if (!closed) {
            closed = true;
            replace(null);
        }
    }
}
