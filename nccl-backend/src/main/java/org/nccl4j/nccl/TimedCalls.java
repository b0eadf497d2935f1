package org.nccl4j.nccl;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.CollectiveEvent;
import org.nccl4j.collectives.CollectiveException;

/**
 * Operations of a rank that are being timed for the flight recorder: an event before each on its
 * stream and one behind it. The watchdog sees that they have been passed, and commits. What passes
 * on the device between the two is the operation with its wait for the other ranks, of which NCCL
 * tells nothing; before the first it waited for earlier work of its stream.
 *
 * <p>Thread safety: all methods may be called from any thread; a {@link Call} belongs to the thread
 * that enqueues until it is recorded.
 */
final class TimedCalls {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    /** How long an idle stream may take to pass an event that tells the time. */
    private static final long ANCHOR_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

    private static final double NANOS_PER_MILLI = 1e6;

    private final Member member;

    /** Held while some are measured and committed; not by threads that enqueue. */
    private final Object collecting = new Object();

    // ---- guarded by this

    private final List<Call> open = new ArrayList<>();
    private boolean over;

    TimedCalls(Member member) {
        this.member = member;
    }

    /** An operation between its two events. */
    final class Call {
        private final CollectiveEvent event = new CollectiveEvent();
        private final NcclStream stream;
        private final long enqueuedNanos;
        private final EventPool pool;
        private long start;
        private long end;

        private Call(NcclStream stream) {
            this.stream = stream;
            this.pool = stream.device().events();
            event.begin();
            this.enqueuedNanos = System.nanoTime();
        }

        /** It has been enqueued; commits it when its stream has passed it. */
        void enqueued(CallRecord call, BlockLayout sendLayout, BlockLayout recvLayout) {
            FlightRecord.describe(event, member, call, sendLayout, recvLayout);
            try {
                end = mark(stream);
                add(this);
            } catch (CollectiveException e) {
                // The operation itself is on its stream.
                LOG.log(System.Logger.Level.WARNING, "cannot time " + Wording.name(call), e);
                giveUp();
                event.commit();
            }
        }

        /** It is not to be timed after all. */
        void giveUp() {
            if (start != 0) {
                pool.giveBack(start, true);
                start = 0;
            }
            if (end != 0) {
                pool.giveBack(end, true);
                end = 0;
            }
        }

        private boolean isPassed() {
            return CudaRuntime.eventQuery(end, "timing an operation on " + stream);
        }

        /**
         * Measures and commits it.
         *
         * @param anchor an event that was passed later, 0 if there is none
         * @param anchorNanos when
         */
        private void commit(long anchor, long anchorNanos) {
            String doing = "timing an operation on " + stream;
            event.runNanos = nanos(CudaRuntime.elapsedMillis(start, end, doing));
            if (anchor != 0) {
                long startNanos =
                        anchorNanos - nanos(CudaRuntime.elapsedMillis(start, anchor, doing));
                // An idle stream comes to it at once, within the error of two clocks.
                event.waitNanos = Math.max(0, startNanos - enqueuedNanos);
            }
            event.commit();
        }
    }

    private static long nanos(float millis) {
        return Math.round(millis * NANOS_PER_MILLI);
    }

    /** Begins to time what comes next on a stream; null if nobody records it. */
    Call begin(NcclStream stream) {
        if (!FlightRecord.isEnabled()) {
            return null;
        }
        Call call = new Call(stream);
        call.start = mark(stream);
        return call;
    }

    private static long mark(NcclStream stream) {
        EventPool pool = stream.device().events();
        long event = pool.take(true);
        boolean recorded = false;
        try {
            stream.recordRaw(event, "timing an operation on " + stream);
            recorded = true;
            return event;
        } finally {
            if (!recorded) {
                pool.giveBack(event, true);
            }
        }
    }

    private synchronized void add(Call call) {
        if (over) {
            call.giveUp();
        } else {
            open.add(call);
        }
    }

    /** Commits those that have been passed. */
    void collect() {
        PlatformThread.run(() -> {
            long before = CurrentDevice.visit(member.device);
            try {
                collectHere();
            } finally {
                CurrentDevice.leave(before);
            }
        });
    }

    private void collectHere() {
        synchronized (collecting) {
            List<Call> passed = takePassed();
            if (passed.isEmpty()) {
                return;
            }
            try {
                commit(passed);
            } catch (CollectiveException e) {
                // The operations themselves are done.
                LOG.log(
                        System.Logger.Level.WARNING,
                        "cannot tell how long operations of " + member.describe() + " took",
                        e);
            } finally {
                passed.forEach(Call::giveUp);
            }
        }
    }

    private synchronized List<Call> takePassed() {
        List<Call> passed = new ArrayList<>();
        Iterator<Call> calls = open.iterator();
        while (calls.hasNext()) {
            Call call = calls.next();
            if (call.isPassed()) {
                passed.add(call);
                calls.remove();
            }
        }
        return passed;
    }

    /** Times of the device become times of the host by an event that an idle stream passes now. */
    private void commit(List<Call> passed) {
        EventPool pool = member.device.events();
        String doing = "timing operations of " + member.describe();
        long anchor = pool.take(true);
        try {
            CudaRuntime.recordEvent(anchor, member.device.sideStream(), doing);
            Waiting.Outcome outcome =
                    Waiting.untilUninterruptibly(
                            () -> CudaRuntime.eventQuery(anchor, doing),
                            System.nanoTime(),
                            ANCHOR_NANOS);
            long anchorNanos = System.nanoTime();
            for (Call call : passed) {
                call.commit(outcome == Waiting.Outcome.OVER ? anchor : 0, anchorNanos);
            }
        } finally {
            pool.giveBack(anchor, true);
        }
    }

    /** Whether any has not been passed. */
    synchronized boolean isWaiting() {
        return !open.isEmpty();
    }

    private void collectLast() {
        if (member.clique.cause() != null) {
            return;
        }
        try {
            collect();
        } catch (CollectiveException e) {
            LOG.log(
                    System.Logger.Level.WARNING,
                    "cannot tell what operations of " + member.describe() + " are done",
                    e);
        }
    }

    /**
     * The communicator has ended: commits what has been passed, gives up the rest. Nothing is left
     * to be committed afterwards, not even by the watchdog.
     */
    void end() {
        synchronized (collecting) {
            collectLast();
            synchronized (this) {
                over = true;
                open.forEach(Call::giveUp);
                open.clear();
            }
        }
    }
}
