package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.nccl4j.cpu.Engine.Progress;

/**
 * The threads that move data: a small pool, the threads that wait in {@link #await}, and for small
 * operations the thread that made them ready. Workers and waiters that run or spin are never more
 * than there are cores: a helping waiter takes a worker's place. A thread that runs small
 * operations alone is not counted: it does so instead of returning to its caller. Runners never
 * wait for one another: one that finds every participant claimed or blocked yields for a while and
 * leaves, unless it is the last.
 *
 * <pre>
 *   a work      becomes     when
 *   ready       running     a thread picks it
 *   running     ready       its last runner leaves before it is done: their waits were over
 *               complete    a runner finishes its last participant
 *               given up    it was abandoned, and its last runner leaves
 *   complete    unused      its last runner leaves
 *
 *   a thread    becomes     when
 *   outside     holding     fewer threads hold a core than there are
 *               parked      all cores are held
 *   holding     sharing     it picks a work
 *               parked      it has yielded {@link #YIELDS} times and found none
 *               outside     its wait is over (never a worker's)
 *   sharing     holding     the work is done or has nothing to move, or the wait is over
 *   parked      outside     it is called, or its time, or a nap of {@link #NAP_NANOS}, is over
 * </pre>
 *
 * <p>Thread safety: fields are guarded by the scheduler's lock.
 */
final class Workers {
    enum Outcome {
        OVER,
        OUT_OF_TIME,
        INTERRUPTED
    }

    /**
     * How often a thread without anything to do yields before it parks: about as long as waking it
     * up again would take.
     */
    private static final int YIELDS = 100;

    /** How long a runner that found nothing to move stays away from works that others run. */
    private static final long NAP_NANOS = TimeUnit.MICROSECONDS.toNanos(500);

    private static final long IDLE_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final Scheduler scheduler;
    private final int cores;

    /** Works that nobody runs. */
    private final ChoreList<Work> ready = new ChoreList<>();

    /** Works that somebody runs and others may join. */
    private Work firstRunning;

    private final List<IdleWorker> idle = new ArrayList<>();

    /** Threads that run or spin. */
    private int active;

    private int threads;
    private int threadNumber;

    /** A hint for those who spin. */
    private volatile boolean hasReady;

    Workers(Scheduler scheduler, int cores) {
        this.scheduler = scheduler;
        this.cores = cores;
    }

    // ---- with the lock

    /** Takes a work that nobody runs, for whoever is free. */
    void queue(Work work) {
        assert Thread.holdsLock(scheduler);
        ready.add(work);
        hasReady = true;
        callWorker();
    }

    /** Makes sure that somebody comes for what is ready, unless all cores are busy. */
    private void callWorker() {
        if (active >= cores) {
            return;
        }
        if (!idle.isEmpty()) {
            scheduler.defer(idle.removeLast());
        } else if (threads < cores) {
            try {
                scheduler.defer(new NewWorker());
                threads++;
            } catch (OutOfMemoryError e) {
                // The watchdog calls one later; whoever waits meanwhile runs what there is.
                hasReady = true;
            }
        }
    }

    /** Calls a worker for what has been ready for a while: none could be made then. */
    void callMissing() {
        if (hasReady) {
            callWorker();
        }
    }

    /** A work to run, with the caller counted as its runner, or null. */
    private Work pick(boolean mayJoin) {
        Work work = ready.poll();
        while (work != null && work.abandoned) {
            work = ready.poll();
        }
        hasReady = !ready.isEmpty();
        if (work == null && mayJoin) {
            work = joinable();
        }
        if (work != null) {
            if (work.open && work.runners == 0 && work.maxRunners() > 1) {
                addRunning(work);
            }
            work.runners++;
            work.runnerChanges++;
        }
        return work;
    }

    private Work joinable() {
        for (Work work = firstRunning; work != null; work = work.nextRunning) {
            if (!work.abandoned && !work.complete && work.runners < work.maxRunners()) {
                return work;
            }
        }
        return null;
    }

    private void addRunning(Work work) {
        work.nextRunning = firstRunning;
        firstRunning = work;
    }

    /** They are few: one for each core at most. */
    private void removeRunning(Work work) {
        Work before = null;
        for (Work each = firstRunning; each != null; each = each.nextRunning) {
            if (each.equals(work)) {
                if (before == null) {
                    firstRunning = work.nextRunning;
                } else {
                    before.nextRunning = work.nextRunning;
                }
                work.nextRunning = null;
                return;
            }
            before = each;
        }
    }

    /** Gives a core back. */
    private void retire(boolean foundSomething) {
        active--;
        if (hasReady || (foundSomething && joinable() != null)) {
            callWorker();
        }
    }

    /** The caller no longer runs a work. */
    private void leave(Work work, boolean finished) {
        assert Thread.holdsLock(scheduler);
        work.runners--;
        work.runnerChanges++;
        if (work.abandoned) {
            if (work.runners == 0) {
                removeRunning(work);
                work.givenUp();
            }
            return;
        }
        if (finished) {
            removeRunning(work);
            work.complete = true;
            work.completed();
        }
        if (work.runners > 0) {
            return;
        }
        if (work.complete) {
            work.unused();
        } else {
            removeRunning(work);
            ready.addFirst(work);
            hasReady = true;
        }
    }

    // ---- without the lock

    /** Does what {@link Scheduler#takeChores} gave. */
    void perform(Chore chores) {
        long budgetBytes = Scheduler.SMALL_BYTES;
        Chore chore = chores;
        while (chore != null) {
            Chore next = chore.next;
            chore.next = null;
            if (chore instanceof Work work) {
                budgetBytes -= work.costBytes();
            }
            Chore following = performOne(chore, budgetBytes);
            if (following == null) {
                chore = next;
            } else {
                chore = following;
                while (following.next != null) {
                    following = following.next;
                }
                following.next = next;
            }
        }
    }

    private Chore performOne(Chore chore, long budgetBytes) {
        try {
            return chore.perform(budgetBytes);
        } catch (RuntimeException | Error e) {
            // Others in the list may be what somebody waits for.
            scheduler.report("failed after a change of state", e);
            return null;
        }
    }

    /** Runs a work that belongs to this thread alone. */
    Chore runAlone(Work work, long budgetBytes) {
        boolean finished = false;
        int participant = -1;
        Throwable failure = null;
        boolean interruptedBefore = Thread.currentThread().isInterrupted();
        try {
            if (!work.abandoned) {
                work.begin();
                work.open = true;
                int participants = work.participants();
                boolean moved = true;
                while (moved && !finished && !work.abandoned) {
                    moved = false;
                    for (participant = 0; participant < participants; participant++) {
                        if (!work.claim(participant)) {
                            continue;
                        }
                        Progress progress = work.advance(participant);
                        while (progress == Progress.ADVANCED && !work.abandoned) {
                            moved = true;
                            progress = work.advance(participant);
                        }
                        if (progress == Progress.DONE) {
                            moved = true;
                            finished = work.finish(participant);
                        } else {
                            work.release(participant);
                        }
                    }
                }
                participant = -1;
                if (finished) {
                    work.end();
                } else if (!work.abandoned) {
                    throw stuck();
                }
            }
        } catch (RuntimeException | Error e) {
            failure = e;
            forgetInterrupt(work, interruptedBefore);
        }
        return end(work, participant, finished, failure, budgetBytes);
    }

    /** Leaves a work; whatever goes wrong with that, the caller goes on. */
    private Chore end(
            Work work, int participant, boolean finished, Throwable failure, long budgetBytes) {
        Throwable again = null;
        Chore chores;
        synchronized (scheduler) {
            if (failure != null) {
                try {
                    work.broke(participant, failure);
                } catch (RuntimeException | Error e) {
                    again = e;
                }
            }
            try {
                leave(work, finished || failure != null);
            } catch (RuntimeException | Error e) {
                again = e;
            }
            chores = scheduler.takeChores(budgetBytes);
        }
        if (again != null) {
            scheduler.report("failed after a change of state", again);
        }
        return chores;
    }

    /**
     * The JVM interrupts a thread in whose hands another thread closes an arena, and leaves it
     * interrupted: nobody has asked for that.
     */
    private static void forgetInterrupt(Work work, boolean interruptedBefore) {
        if (!interruptedBefore && work.usesClosedArena()) {
            Thread.interrupted();
        }
    }

    private static IllegalStateException stuck() {
        return new IllegalStateException(
                "the engine has no participant that can move and none that moves: this is a bug of the engine");
    }

    /**
     * Waits until something is over, running what there is to run meanwhile.
     *
     * @param waiter says when it is over; made by this thread
     * @param list where changes are announced
     */
    Outcome await(Waiter waiter, WaitList list, long startNanos, long budgetNanos) {
        int yields = 0;
        boolean holding = false;
        boolean mayJoin = true;
        while (true) {
            Work work = null;
            boolean parking = false;
            Outcome outcome = null;
            Chore chores = null;
            long leftNanos = left(startNanos, budgetNanos);
            synchronized (scheduler) {
                if (waiter.isOver()) {
                    outcome = Outcome.OVER;
                } else if (Thread.currentThread().isInterrupted()) {
                    outcome = Outcome.INTERRUPTED;
                } else if (leftNanos <= 0) {
                    outcome = Outcome.OUT_OF_TIME;
                } else if (holding || active < cores) {
                    work = pick(mayJoin);
                    if (work != null || yields < YIELDS) {
                        if (!holding) {
                            holding = true;
                            active++;
                        }
                    }
                }
                parking = outcome == null && work == null && yields >= YIELDS;
                parking |= outcome == null && !holding;
                if (holding && (outcome != null || parking)) {
                    holding = false;
                    retire(mayJoin);
                }
                if (outcome != null || parking) {
                    chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
                }
                if (parking && chores == null) {
                    list.add(waiter);
                }
            }
            if (chores != null) {
                // Before it is in the list: a user's logger that waits for a lock of its own would
                // take the wake-up that is meant for us.
                perform(chores);
            }
            if (outcome != null) {
                return outcome;
            }
            if (work != null) {
                mayJoin = share(work, waiter, startNanos, budgetNanos);
                // It has yielded enough if there was nothing to move.
                yields = mayJoin ? 0 : YIELDS;
            } else if (parking) {
                if (chores == null) {
                    LockSupport.parkNanos(
                            scheduler, mayJoin ? leftNanos : Math.min(leftNanos, NAP_NANOS));
                    synchronized (scheduler) {
                        list.remove(waiter);
                    }
                    mayJoin = true;
                }
            } else {
                while (yields < YIELDS && !hasReady && !waiter.seemsOver()) {
                    Thread.yield();
                    yields++;
                }
                if (yields < YIELDS) {
                    // Something is there to be looked at; what it is may be gone when we look.
                    yields++;
                }
            }
        }
    }

    /** Wakes those whom a change made by this thread called. */
    private void performLeftovers() {
        Chore chores;
        synchronized (scheduler) {
            chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
        }
        perform(chores);
    }

    /**
     * Runs a work together with others.
     *
     * @param waiter ends the help when over, or null
     * @return false if there was nothing to move
     */
    private boolean share(Work work, Waiter waiter, long startNanos, long budgetNanos) {
        boolean finished = false;
        boolean useful = true;
        int participant = -1;
        Throwable failure = null;
        boolean interruptedBefore = Thread.currentThread().isInterrupted();
        try {
            if (!work.open && !work.abandoned) {
                work.begin();
                synchronized (scheduler) {
                    work.open = true;
                    if (work.maxRunners() > 1 && !work.abandoned) {
                        addRunning(work);
                        callWorker();
                    }
                }
                performLeftovers();
            }
            int participants = work.participants();
            participant = Math.floorMod(work.runnerChanges, participants);
            int yields = 0;
            int changesWhenAlone = -1;
            boolean leaving = false;
            while (!leaving && !finished && !work.abandoned && !work.allFinished()) {
                boolean moved = false;
                for (int i = 0; i < participants && !leaving && !finished; i++) {
                    participant = participant + 1 == participants ? 0 : participant + 1;
                    if (!work.claim(participant)) {
                        continue;
                    }
                    Progress progress = work.advance(participant);
                    while (progress == Progress.ADVANCED && !work.abandoned && !leaving) {
                        moved = true;
                        leaving = isEnough(waiter, startNanos, budgetNanos);
                        if (!leaving) {
                            progress = work.advance(participant);
                        }
                    }
                    if (progress == Progress.DONE) {
                        moved = true;
                        finished = work.finish(participant);
                    } else {
                        work.release(participant);
                    }
                }
                if (moved) {
                    yields = 0;
                    changesWhenAlone = -1;
                } else if (++yields < YIELDS) {
                    Thread.yield();
                    leaving = isEnough(waiter, startNanos, budgetNanos);
                } else {
                    synchronized (scheduler) {
                        if (work.runners > 1) {
                            useful = false;
                            leaving = true;
                        } else if (changesWhenAlone == work.runnerChanges) {
                            // Alone during a whole round, and nothing could move.
                            participant = -1;
                            throw stuck();
                        } else {
                            changesWhenAlone = work.runnerChanges;
                        }
                    }
                }
            }
            if (finished) {
                participant = -1;
                work.end();
            }
        } catch (RuntimeException | Error e) {
            failure = e;
            forgetInterrupt(work, interruptedBefore);
        }
        perform(end(work, participant, finished, failure, Scheduler.SMALL_BYTES));
        return useful;
    }

    /** What is left of a budget that began at a time. */
    static long left(long startNanos, long budgetNanos) {
        return budgetNanos - (System.nanoTime() - startNanos);
    }

    private static boolean isEnough(Waiter waiter, long startNanos, long budgetNanos) {
        return waiter != null
                && (waiter.seemsOver()
                        || left(startNanos, budgetNanos) <= 0
                        || Thread.currentThread().isInterrupted());
    }

    /** A worker's life. One that fails holds no core and no work then, only its place. */
    private void workWhileNeeded() {
        try {
            work();
        } catch (RuntimeException | Error e) {
            synchronized (scheduler) {
                threads--;
            }
            scheduler.report("a worker thread failed; another takes its place", e);
        }
    }

    private void work() {
        boolean holding = false;
        boolean mayJoin = true;
        boolean rested = false;
        while (true) {
            Work work = null;
            Chore chores;
            IdleWorker self = null;
            synchronized (scheduler) {
                if (holding || active < cores) {
                    work = pick(mayJoin);
                }
                if (work != null && !holding) {
                    active++;
                    holding = true;
                } else if (work == null && holding) {
                    holding = false;
                    retire(mayJoin);
                }
                chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
                if (work == null && chores == null) {
                    if (rested) {
                        threads--;
                        return;
                    }
                    // A new one each time: the last may still be in the list of who calls it.
                    self = new IdleWorker();
                    idle.add(self);
                }
            }
            // Before it is idle: as in await, a chore may take a wake-up that is meant for us.
            perform(chores);
            if (work != null) {
                mayJoin = share(work, null, 0, 0);
                rested = false;
            }
            if (self == null) {
                continue;
            }
            LockSupport.parkNanos(scheduler, mayJoin ? IDLE_NANOS : NAP_NANOS);
            synchronized (scheduler) {
                // Still in the list: nobody has called.
                rested = idle.remove(self) && mayJoin;
            }
            mayJoin = true;
        }
    }

    /** A worker that waits for a call. */
    private static final class IdleWorker extends Waiter {
        @Override
        boolean seemsOver() {
            return false;
        }
    }

    private final class NewWorker extends Chore {
        @Override
        Chore perform(long budgetBytes) {
            int number;
            synchronized (scheduler) {
                number = threadNumber++;
            }
            try {
                Thread.ofPlatform()
                        .daemon()
                        .name("nccl4j-cpu-worker-" + number)
                        .start(Workers.this::workWhileNeeded);
            } catch (OutOfMemoryError e) {
                // Threads that wait move data as well, so that work goes on without this one.
                synchronized (scheduler) {
                    threads--;
                }
                scheduler.log().log(System.Logger.Level.WARNING, "cannot start a worker thread", e);
            }
            return null;
        }
    }
}
