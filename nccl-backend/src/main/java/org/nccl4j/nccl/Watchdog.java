package org.nccl4j.nccl;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.nccl4j.collectives.CollectiveException;

/**
 * Looks now and then how far streams are and what state NCCL's communicators are in, and fails
 * those whose operations take longer than they may or that NCCL has given up. The hot path takes no
 * time and records nothing for it. Its thread lives while communicators are open.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class Watchdog {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    private static final long LONGEST_TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(20);
    private static final long SHORTEST_TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(5);
    private static final int TICKS_PER_TIMEOUT = 20;

    /** While nothing is outstanding: it is only about errors that NCCL meets by itself. */
    private static final long IDLE_TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

    /** While somebody waits for what only it finds out. */
    private static final long HURRIED_TICK_NANOS = TimeUnit.MICROSECONDS.toNanos(200);

    /** How often it is looked whether the watchdog itself moves. */
    private static final Duration LISTENING = Duration.ofSeconds(5);

    static final Watchdog SHARED = new Watchdog();

    private final List<Clique> watched = new ArrayList<>();
    private final Heartbeat heartbeat = new Heartbeat();
    private Thread thread;
    private int hurried;

    private Watchdog() {}

    synchronized void watch(Clique clique) {
        if (watched.contains(clique)) {
            return;
        }
        watched.add(clique);
        if (thread == null) {
            Thread watching =
                    NativeThread.start("watchdog", clique.local().getFirst().device, this::run);
            thread = watching;
            Thread.ofPlatform()
                    .daemon()
                    .name("nccl4j-heartbeat")
                    .inheritInheritableThreadLocals(false)
                    .start(() -> listen(watching));
        } else {
            LockSupport.unpark(thread);
        }
    }

    /** Looks as often as it can until {@link #calm}. */
    synchronized void hurry() {
        hurried++;
        LockSupport.unpark(thread);
    }

    synchronized void calm() {
        hurried--;
    }

    /** As long as the watchdog lives; calls nothing native. */
    private void listen(Thread watching) {
        try {
            while (!watching.join(LISTENING)) {
                String overdue = heartbeat.overdue(System.nanoTime());
                if (overdue != null) {
                    LOG.log(System.Logger.Level.ERROR, overdue);
                }
            }
        } catch (InterruptedException e) {
            LOG.log(System.Logger.Level.WARNING, "nobody listens to the watchdog any more", e);
        }
    }

    private void run() {
        while (true) {
            long tickNanos = IDLE_TICK_NANOS;
            try {
                List<Clique> now = open();
                if (now.isEmpty()) {
                    return;
                }
                tickNanos = tickNanos(now, look(now));
            } catch (RuntimeException | Error e) {
                // Without deadlines everything may hang, so that there is always another look.
                LOG.log(System.Logger.Level.ERROR, "the watchdog failed; it looks again", e);
            }
            LockSupport.parkNanos(this, tickNanos);
        }
    }

    /** Those that are not over; its thread ends, and is forgotten, when there are none. */
    private synchronized List<Clique> open() {
        watched.removeIf(Clique::isOver);
        if (watched.isEmpty()) {
            thread = null;
        }
        return List.copyOf(watched);
    }

    private synchronized long tickNanos(List<Clique> cliques, boolean outstanding) {
        if (hurried > 0) {
            return HURRIED_TICK_NANOS;
        }
        if (!outstanding) {
            return IDLE_TICK_NANOS;
        }
        long shortest = LONGEST_TICK_NANOS;
        for (Clique clique : cliques) {
            shortest = Math.min(shortest, clique.timeoutNanos / TICKS_PER_TIMEOUT);
        }
        return Math.max(SHORTEST_TICK_NANOS, shortest);
    }

    /** Returns whether anything is outstanding. */
    private boolean look(List<Clique> cliques) {
        long now = System.nanoTime();
        boolean outstanding = false;
        List<NcclStream> streams = new ArrayList<>();
        for (Clique clique : cliques) {
            String late = clique.lateClosers(now);
            if (late != null) {
                LOG.log(System.Logger.Level.INFO, late);
            }
            for (Member member : clique.local()) {
                if (clique.cause() == null) {
                    outstanding |= look(member, now);
                }
                for (NcclStream stream : member.streams()) {
                    if (!streams.contains(stream)) {
                        streams.add(stream);
                    }
                }
            }
        }
        for (NcclStream stream : streams) {
            outstanding |= look(cliques, stream, now);
        }
        return outstanding;
    }

    private int askState(Member member) {
        heartbeat.asks("ncclCommGetAsyncError", member, System.nanoTime());
        try {
            CurrentDevice.stay(member.device);
            return member.asyncState();
        } finally {
            heartbeat.isAnswered();
        }
    }

    /** Commits timed operations that have been passed; whether there are others. */
    private boolean collect(Member member) {
        heartbeat.asks("cudaEventQuery or cudaEventElapsedTime", member, System.nanoTime());
        try {
            member.timed.collect();
        } finally {
            heartbeat.isAnswered();
        }
        return member.timed.isWaiting();
    }

    private void sample(NcclStream stream, long now) {
        heartbeat.asks(
                "cudaStreamQuery, cudaEventQuery or cudaEventRecord", stream, System.nanoTime());
        try {
            CurrentDevice.stay(stream.device());
            stream.sample(now);
        } finally {
            heartbeat.isAnswered();
        }
    }

    private boolean look(Member member, long now) {
        Clique clique = member.clique;
        boolean timing = false;
        try {
            if (member.timed != null) {
                timing = collect(member);
            }
            int state = askState(member);
            if (state != NcclLibrary.SUCCESS && state != NcclLibrary.IN_PROGRESS) {
                clique.fail(
                        NcclLibrary.failed(
                                "ncclCommGetAsyncError",
                                state,
                                "running the work of "
                                        + member.describe()
                                        + ", last "
                                        + Wording.name(member.lastCall())));
                return true;
            }
        } catch (CollectiveException e) {
            clique.fail(e);
            return true;
        }
        HostCall first;
        synchronized (clique) {
            first = member.hostCalls.peek();
        }
        if (first != null && first.isOverdue(now)) {
            clique.fail(Wording.timeout(first));
            return true;
        }
        long entry = member.insideEntry();
        if (entry < 0 || first != null) {
            // A host call has its own clock.
            member.watchedEntry = -1;
        } else if (entry != member.watchedEntry) {
            member.watchedEntry = entry;
            member.watchedSinceNanos = now;
        } else if (now - member.watchedSinceNanos >= clique.timeoutNanos) {
            clique.fail(Wording.stuck(member, member.lastCall()));
            // Whatever the configuration says: nothing else brings the caller back.
            clique.requestAbort(0);
        }
        return entry >= 0 || first != null || timing;
    }

    private boolean look(List<Clique> cliques, NcclStream stream, long now) {
        final long since;
        try {
            sample(stream, now);
            since = stream.busySinceNanos(now);
        } catch (CollectiveException e) {
            failAllOn(cliques, stream, e);
            return true;
        }
        if (since < 0) {
            return false;
        }
        if (cliques.stream().noneMatch(clique -> now - since >= clique.timeoutNanos)) {
            return true;
        }
        // Whose operation it is that heads the stream; others wait behind it and are not to blame.
        Member head = null;
        CallRecord oldest = null;
        for (Clique clique : cliques) {
            if (clique.cause() != null) {
                continue;
            }
            for (Member member : clique.local()) {
                CallRecord call = member.oldestUnpassed(stream);
                if (call != null && (oldest == null || call.ticket < oldest.ticket)) {
                    head = member;
                    oldest = call;
                }
            }
        }
        if (head != null && now - since >= head.clique.timeoutNanos) {
            head.clique.fail(Wording.timeout(head, oldest));
        }
        return true;
    }

    /** CUDA has given up the stream's device. */
    private static void failAllOn(
            List<Clique> cliques, NcclStream stream, CollectiveException failure) {
        for (Clique clique : cliques) {
            for (Member member : clique.local()) {
                for (NcclStream used : member.streams()) {
                    if (used == stream) {
                        clique.fail(failure);
                    }
                }
            }
        }
    }
}
