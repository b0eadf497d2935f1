package org.nccl4j.cpu;

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.nccl4j.collectives.UnsupportedException;

/**
 * Looks at the heads of streams now and then, and fails communicators whose operations take longer
 * than they may. It also logs communicators that were dropped without being closed. Its thread
 * lives while communicators are open.
 *
 * <p>Thread safety: guarded by the scheduler's lock.
 */
final class Watchdog {
    private static final long LONGEST_TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(100);
    private static final long SHORTEST_TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(5);
    private static final int TICKS_PER_TIMEOUT = 20;

    private final Scheduler scheduler;
    private final List<Clique> watched = new ArrayList<>();
    private final ReferenceQueue<CpuCommunicator> dropped = new ReferenceQueue<>();
    private Thread thread;

    /** How long its thread sleeps; only that thread uses it. */
    private long tickNanos = SHORTEST_TICK_NANOS;

    /** What the last look threw, to be reported; only its thread uses it. */
    private Throwable failure;

    Watchdog(Scheduler scheduler) {
        this.scheduler = scheduler;
    }

    /** A communicator's trace of where it was made, until it is closed. */
    static final class Creation extends PhantomReference<CpuCommunicator> {
        private final Member member;
        private final Throwable place;

        private Creation(
                CpuCommunicator communicator,
                Member member,
                Throwable place,
                ReferenceQueue<CpuCommunicator> queue) {
            super(communicator, queue);
            this.member = member;
            this.place = place;
        }
    }

    // ---- lock held

    /** Watches for a communicator that is dropped without being closed. */
    Creation creation(CpuCommunicator communicator, Member member, Throwable place) {
        return new Creation(communicator, member, place, dropped);
    }

    void watch(Clique clique) {
        watched.add(clique);
        // A thread that has ended without saying so is replaced.
        if (thread == null || thread.getState() == Thread.State.TERMINATED) {
            thread = Thread.ofPlatform().daemon().name("nccl4j-cpu-watchdog").unstarted(this::run);
            scheduler.defer(new Start());
        } else {
            scheduler.defer(new WakeUp(thread));
        }
    }

    /** A communicator may need no more watching. */
    void changed() {
        if (thread != null && forgetOver() && watched.isEmpty()) {
            scheduler.defer(new WakeUp(thread));
        }
    }

    private boolean forgetOver() {
        boolean any = false;
        for (Iterator<Clique> cliques = watched.iterator(); cliques.hasNext(); ) {
            Clique clique = cliques.next();
            if (clique.isOver()) {
                endTraces(clique);
                cliques.remove();
                any = true;
            }
        }
        return any;
    }

    /** Of ranks that were dropped, or aborted and may never be closed. Others end their own. */
    private void endTraces(Clique clique) {
        for (Member member : clique.members) {
            if (member.seat.trace() != null && !member.closed && !member.isClosing()) {
                scheduler.defer(new EndOfTrace(member));
            }
        }
    }

    private long tickNanos() {
        long shortest = LONGEST_TICK_NANOS;
        for (int i = 0; i < watched.size(); i++) {
            shortest = Math.min(shortest, watched.get(i).timeoutNanos / TICKS_PER_TIMEOUT);
        }
        return Math.max(SHORTEST_TICK_NANOS, shortest);
    }

    private void look() {
        lookForLeaks();
        forgetOver();
        long now = System.nanoTime();
        // From the end: a failure may take communicators out of the list.
        for (int i = watched.size() - 1; i >= 0; i--) {
            if (i < watched.size()) {
                look(watched.get(i), now);
            }
        }
    }

    private void look(Clique clique, long now) {
        if (clique.cause != null) {
            scheduler.settle(clique);
            return;
        }
        HostCall call = clique.hostCalls.peek();
        if (call != null && now - call.sinceNanos() >= clique.timeoutNanos) {
            scheduler.fail(clique, Wording.timeout(call));
            return;
        }
        for (Member member : clique.members) {
            for (Batch batch = member.oldest; batch != null; batch = batch.newer) {
                if (isOverdue(batch, now)) {
                    scheduler.fail(clique, Wording.timeout(batch));
                    return;
                }
            }
        }
    }

    private static boolean isOverdue(Batch batch, long now) {
        for (int i = 0; i < batch.streams.size(); i++) {
            CpuStream stream = batch.streams.get(i);
            if (stream.headSubject() != batch) {
                continue;
            }
            if (stream.watchedTicket != stream.completed()) {
                stream.watchedTicket = stream.completed();
                stream.watchedSinceNanos = now;
            } else if (now - stream.watchedSinceNanos >= batch.member.clique.timeoutNanos) {
                return true;
            }
        }
        return false;
    }

    private void lookForLeaks() {
        for (Object reference = dropped.poll(); reference != null; reference = dropped.poll()) {
            Creation creation = (Creation) reference;
            Member member = creation.member;
            if (member.closed) {
                continue;
            }
            member.device().close();
            if (!member.clique.aborted) {
                member.leaked = true;
                scheduler.defer(new LeakLog(member.describe(), creation.place));
            }
        }
    }

    // ---- without the lock

    /**
     * Without deadlines everything may hang, so that neither a bug nor a full heap may end the
     * watch: whatever a look throws, there is another.
     */
    private void run() {
        boolean over = false;
        while (!over) {
            try {
                over = tick();
            } catch (RuntimeException | Error e) {
                // Nothing more here: with a full heap even a text constant may be an error.
                failure = e;
            }
            if (!over) {
                LockSupport.parkNanos(this, tickNanos);
            }
        }
    }

    /** Returns true, once, when there is nothing to be watched any more. */
    private boolean tick() {
        if (failure != null) {
            Throwable last = failure;
            failure = null;
            scheduler.report("the watchdog failed; it looks again", last);
        }
        Chore chores;
        boolean over;
        synchronized (scheduler) {
            try {
                look();
            } catch (RuntimeException | Error e) {
                failure = e;
            }
            scheduler.workers().callMissing();
            scheduler.repeat();
            tickNanos = tickNanos();
            chores = scheduler.takeChores(0);
            over = watched.isEmpty() && failure == null;
            if (over) {
                thread = null;
            }
        }
        scheduler.workers().perform(chores);
        return over;
    }

    private final class Start extends Chore {
        @Override
        Chore perform(long budgetBytes) {
            try {
                thread.start();
            } catch (OutOfMemoryError e) {
                scheduler.log().log(
                        System.Logger.Level.ERROR,
                        "cannot start the watchdog: until the next communicator is made, operations"
                                + " have no deadline",
                        e);
                synchronized (scheduler) {
                    thread = null;
                }
            }
            return null;
        }
    }

    private static final class WakeUp extends Chore {
        private final Thread thread;

        WakeUp(Thread thread) {
            this.thread = thread;
        }

        @Override
        Chore perform(long budgetBytes) {
            LockSupport.unpark(thread);
            return null;
        }
    }

    private final class EndOfTrace extends Chore {
        private final Member member;

        EndOfTrace(Member member) {
            this.member = member;
        }

        @Override
        Chore perform(long budgetBytes) {
            try {
                member.closeTrace();
            } catch (UnsupportedException e) {
                // Nobody is there to catch it.
                scheduler.log().log(System.Logger.Level.ERROR, e.getMessage(), e);
            }
            return null;
        }
    }

    private final class LeakLog extends Chore {
        private final String what;
        private final Throwable place;

        LeakLog(String what, Throwable place) {
            this.what = what;
            this.place = place;
        }

        @Override
        Chore perform(long budgetBytes) {
            scheduler.log().log(
                    System.Logger.Level.WARNING,
                    what
                            + " was dropped without close(); it was made here; close communicators"
                            + " when their work is done",
                    place);
            return null;
        }
    }
}
