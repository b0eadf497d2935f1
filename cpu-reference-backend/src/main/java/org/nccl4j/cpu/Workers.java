package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.concurrent.locks.LockSupport;
import org.nccl4j.cpu.Engine.Progress;

/**
 * The threads that move data: a small pool, the threads that wait in {@link #await}, and for small
 * operations the thread that made them ready (or that issues a {@link PersistentGroup}). Workers
 * and waiters that run or spin hold a <em>place</em> each, and there are as many places as cores. A
 * thread that runs small operations alone holds none: it does so instead of returning to its
 * caller. As most callers wait in the end, the last place is kept for one of them; one worker more
 * takes it only where much is left to be done and nobody has been waiting for {@link
 * #ABSENCE_NANOS}, and leaves it to the first who does. Nothing depends on a runner's being there:
 * one that finds nothing to move, or whose share needs that of another first, looks for a while,
 * yields for a while, and parks.
 *
 * <p>Whoever holds place i begins with share i, so that from operation to operation the same core
 * touches the same memory; it goes on with shares that nobody has begun.
 *
 * <pre>
 *   a work      becomes     when
 *   ready       alone       a thread picks it, or the thread that picks another takes it along
 *   alone       open        that thread has begun it
 *   open        complete    all its shares are done: the thread that has begun it leads it to its end,
 *                           or if that has left, the runner of the last share
 *               given up    it was abandoned, and nobody is in it
 *
 *   a thread    becomes     when
 *   outside     holding     fewer threads hold a place than there are
 *               parked      all places are held
 *   holding     running     it picks or joins a work
 *               parked      it has spun and yielded for {@link #IDLE_SPIN_NANOS} and found none
 *               outside     its wait is over (never a worker's), or a waiter needs its place (only a
 *                           worker's)
 *   running     holding     nothing of the work is free, or the wait is over
 *   parked      outside     it is called, or its time, or a nap of {@link #NAP_NANOS}, is over
 * </pre>
 *
 * <p>Thread safety: fields without another word are guarded by the scheduler's lock.
 */
final class Workers {
    enum Outcome {
        OVER,
        OUT_OF_TIME,
        INTERRUPTED
    }

    /** Threads outside of all places. */
    private static final int NOWHERE = -1;

    /**
     * How long a thread that holds a place and has nothing to do looks for something before it
     * parks: somewhat longer than a caller takes from one wait to the next, and about as long as
     * waking it up again would take.
     */
    private static final long IDLE_SPIN_NANOS = TimeUnit.MICROSECONDS.toNanos(60);

    /** For this part of that time it keeps its core; then others may have it. */
    private static final long BUSY_SPIN_NANOS = IDLE_SPIN_NANOS / 2;

    /** References that fill two cache lines. */
    private static final int HOT = 32;

    /** How many times a thread that spins looks for a hot work before it looks at all else. */
    private static final int LOOKS_PER_ROUND = 16;

    /**
     * How long a worker leaves what is ready and not large to a waiter, or if it has run something
     * since it parked, to the caller who may be enqueuing more. Streams, batches and operations are
     * in that thread's cache, where it leads operations from one to the next several times as fast;
     * two threads that change them in turns hold each other up for longer than that, and of what is
     * enqueued meanwhile a {@link Train} can be made.
     */
    private static final long PATIENCE_NANOS = TimeUnit.MICROSECONDS.toNanos(10);

    /** The same while more is being enqueued, and somebody has been waiting a moment ago. */
    private static final long MOST_PATIENCE_NANOS = 6 * PATIENCE_NANOS;

    /** Works of this size are worth beginning at once. */
    private static final long LARGE_BYTES = 2 << 20;

    /**
     * How often the thread that leads a work looks whether the others are done before it leaves.
     */
    private static final int LEADING_LOOKS = 512;

    /** How often a runner of a blocked share looks at it while others run those it waits for. */
    private static final int BLOCKED_LOOKS = 512;

    /** How often a runner of blocked shares yields before it leaves. */
    private static final int YIELDS = 100;

    /** How long a runner that found nothing to move stays away from works that are open. */
    private static final long NAP_NANOS = TimeUnit.MICROSECONDS.toNanos(500);

    private static final long IDLE_NANOS = TimeUnit.SECONDS.toNanos(1);

    /** Taking over another's share of this size is reason enough to call a worker for the next. */
    private static final long LARGE_SHARE_BYTES = 1 << 20;

    /**
     * How long nobody must have been waiting until a worker is called to the last place. Most
     * callers come back after a few microseconds, and then one thread more than there are cores
     * would keep two on one of them until the system moves one, which takes it milliseconds.
     */
    private static final long ABSENCE_NANOS = TimeUnit.MICROSECONDS.toNanos(500);

    private final Scheduler scheduler;
    private final int cores;

    /** Works that nobody runs. */
    private final ChoreList<Work> ready = new ChoreList<>();

    /** Works that threads may join. */
    private Work firstOpen;

    private final List<IdleWorker> idle = new ArrayList<>();

    /** Waiters that found no place and are to have the next one. */
    private final List<Placeless> placeless = new ArrayList<>();

    /** Waiters that are parked because there was nothing to do, and come back if called. */
    private final List<Placeless> resting = new ArrayList<>();

    private final boolean[] taken;

    /** Threads that hold a place. */
    private int active;

    /** Of these, waiters. */
    private int waiting;

    private int threads;
    private int threadNumber;

    /** The thread that ends a work keeps what follows from it, if it has somebody to keep it. */
    private boolean keeping;

    /** The thread that ends a work is a worker and will look for what follows from it. */
    private boolean staying;

    private Work kept;

    /** Whether a caller was waiting when the last work ended, or is now. */
    private boolean awaited;

    // Hints for those who look without the lock.

    /** Whether all places are held. */
    private volatile boolean full;

    private volatile boolean hasReady;

    /** Whether anything that is ready is large; may be late to say no. */
    private volatile boolean hasLargeReady;

    private volatile boolean crowded;

    /** Whether a waiter holds a place. */
    private volatile boolean attended;

    /** Until when one did, if none does now. */
    private volatile long attendedUntilNanos = System.nanoTime() - ABSENCE_NANOS;

    /**
     * The work that was opened last, to be joined without the lock, at {@link #HOT}. Threads that
     * spin look at nothing else most of the time, and nothing else is in its cache line.
     */
    private final AtomicReferenceArray<Shares> hot = new AtomicReferenceArray<>(2 * HOT + 1);

    Workers(Scheduler scheduler, int cores) {
        this.scheduler = scheduler;
        this.cores = cores;
        this.taken = new boolean[cores];
    }

    // ---- with the lock

    /** Takes a work that nobody runs, for whoever is free. */
    void queue(Work work) {
        assert Thread.holdsLock(scheduler);
        if (keeping && kept == null) {
            kept = work;
            work.take();
            return;
        }
        boolean first = ready.isEmpty();
        ready.add(work);
        hasReady = true;
        if (work.costBytes() >= LARGE_BYTES) {
            hasLargeReady = true;
        }
        if (!(first && staying)) {
            callWorker(poolSize());
        }
    }

    /** Takes a work back, if it waits for somebody here. */
    boolean withdraw(Work work) {
        assert Thread.holdsLock(scheduler);
        boolean waited = ready.remove(work);
        noteWhetherReady();
        return waited;
    }

    private void noteWhetherReady() {
        if (hasReady && ready.isEmpty()) {
            hasReady = false;
            hasLargeReady = false;
        }
    }

    /** Makes sure that somebody comes for what there is, unless enough are there. */
    private void callWorker(int most) {
        if (active >= cores || call(resting) || active - waiting >= most) {
            return;
        }
        if (!idle.isEmpty()) {
            IdleWorker called = idle.removeLast();
            // A caller who goes to sleep instead leaves his core to it.
            called.wakesBeside = awaited;
            called.putInHands();
            scheduler.defer(called);
        } else if (threads < most) {
            try {
                scheduler.defer(new NewWorker());
                threads++;
            } catch (OutOfMemoryError e) {
                // The watchdog calls one later; whoever waits meanwhile runs what there is.
                hasReady = true;
            }
        }
    }

    /** Calls a worker for what nobody has come for: none could be made then. */
    void callMissing() {
        if (hasReady || joinable() != null) {
            callWorker(poolSize());
        }
    }

    /** How many workers there are as long as callers wait for what they call. */
    private int poolSize() {
        return Math.max(1, cores - 1);
    }

    /** A work that nobody runs, for the caller alone, or null. */
    private Work pollReady() {
        Work work = ready.poll();
        while (work != null && work.shares.areAbandoned()) {
            work = ready.poll();
        }
        noteWhetherReady();
        if (work != null) {
            work.take();
        }
        return work;
    }

    private Work joinable() {
        for (Work work = firstOpen; work != null; work = work.nextOpen) {
            if (work.shares.haveFree()) {
                return work;
            }
        }
        return null;
    }

    private void addOpen(Work work) {
        work.nextOpen = firstOpen;
        firstOpen = work;
        hot.setRelease(HOT, work.shares);
    }

    /** Lets nobody join any more. */
    void removeOpen(Work work) {
        Work before = null;
        for (Work each = firstOpen; each != null; each = each.nextOpen) {
            if (each.equals(work)) {
                if (before == null) {
                    firstOpen = work.nextOpen;
                } else {
                    before.nextOpen = work.nextOpen;
                }
                work.nextOpen = null;
                if (firstOpen != null) {
                    hot.setRelease(HOT, firstOpen.shares);
                }
                return;
            }
            before = each;
        }
    }

    /** A place for a thread that has none, or {@link #NOWHERE}. Workers come from the far end. */
    private int takePlace(boolean isWorker) {
        if (active >= cores) {
            return NOWHERE;
        }
        int place = isWorker ? cores - 1 : 0;
        while (taken[place]) {
            place += isWorker ? -1 : 1;
        }
        taken[place] = true;
        active++;
        full = active >= cores;
        waiting += isWorker ? 0 : 1;
        attended = waiting > 0;
        awaited |= attended;
        return place;
    }

    private void leavePlace(int place, boolean isWorker, boolean foundSomething) {
        taken[place] = false;
        active--;
        full = false;
        waiting -= isWorker ? 0 : 1;
        if (attended && waiting == 0) {
            attendedUntilNanos = System.nanoTime();
            attended = false;
        }
        if (active == 0 && firstOpen == null) {
            // It may be long until the next one, and what is in it is somebody's memory.
            hot.setRelease(HOT, null);
        }
        callForPlace(foundSomething);
    }

    /** Calls somebody to a place that has become free, if there is something to do there. */
    private void callForPlace(boolean foundSomething) {
        if (call(placeless)) {
            return;
        }
        if (hasReady || (foundSomething && joinable() != null)) {
            callWorker(poolSize());
        }
    }

    /** Whether one of some waiters that have no place comes for one that is free. */
    private boolean call(List<Placeless> waiters) {
        for (int i = waiters.size() - 1; i >= 0; i--) {
            Placeless next = waiters.get(i);
            if (!next.isOver()) {
                if (!next.called) {
                    next.called = true;
                    next.putInHands();
                    scheduler.defer(next);
                }
                return true;
            }
        }
        return false;
    }

    /** Ends a work that all shares are done of, or that was abandoned. */
    private void leave(Work work, boolean finished) {
        assert Thread.holdsLock(scheduler);
        assert !work.complete;
        work.open &= !finished;
        if (work.shares.areAbandoned()) {
            if (!work.isBeingRun()) {
                removeOpen(work);
                work.givenUp();
            }
        } else if (finished) {
            removeOpen(work);
            work.complete = true;
            work.completed();
            work.unused();
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
            chore = followed(performOne(chore, budgetBytes), next);
        }
    }

    /** A list, or null, and behind it another. */
    private static Chore followed(Chore first, Chore next) {
        if (first == null) {
            return next;
        }
        Chore last = first;
        while (last.next != null) {
            last = last.next;
        }
        last.next = next;
        return first;
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
        Shares shares = work.shares;
        boolean finished = false;
        int share = -1;
        Throwable failure = null;
        boolean interruptedBefore = Thread.currentThread().isInterrupted();
        try {
            if (!shares.areAbandoned()) {
                shares.cut(work.begin());
                int count = shares.count();
                boolean moved = true;
                while (moved && !finished && !shares.areAbandoned()) {
                    moved = false;
                    for (share = 0; share < count; share++) {
                        if (shares.isDone(share)) {
                            continue;
                        }
                        Progress progress = shares.advance(share);
                        while (progress == Progress.ADVANCED && !shares.areAbandoned()) {
                            moved = true;
                            progress = shares.advance(share);
                        }
                        if (progress == Progress.DONE) {
                            moved = true;
                            finished = shares.finishAlone(share);
                        }
                    }
                }
                share = -1;
                if (finished) {
                    work.end();
                } else if (!shares.areAbandoned()) {
                    throw stuck();
                }
            }
        } catch (RuntimeException | Error e) {
            failure = e;
            forgetInterrupt(work, interruptedBefore);
        }
        Throwable again;
        Chore chores;
        synchronized (scheduler) {
            work.alone = false;
            again = failure == null ? null : broke(work, share, failure);
            again = leaveWork(work, finished || failure != null, again);
            chores = scheduler.takeChores(budgetBytes);
        }
        report(again);
        return chores;
    }

    /** Tells a work what has been thrown. Lock held; returns what went wrong with that, or null. */
    private static Throwable broke(Work work, int share, Throwable failure) {
        try {
            work.broke(share, failure);
            return null;
        } catch (RuntimeException | Error e) {
            // Such as a full stack. If this throws as well it is never completed, which its
            // deadline tells; but it must not end as if nothing had happened.
            work.brokeWithoutWords(e);
            return e;
        }
    }

    /**
     * Ends a work, or what one thread does for it. Lock held.
     *
     * @return what went wrong with that, or else what had gone wrong before; the caller goes on
     */
    private Throwable leaveWork(Work work, boolean ends, Throwable before) {
        try {
            leave(work, ends);
            return before;
        } catch (RuntimeException | Error e) {
            return e;
        }
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
                "the engine has no share that can move and none that moves: this is a bug of the engine");
    }

    /**
     * Waits until something is over, running what there is to run meanwhile.
     *
     * @param waiter says when it is over; made by this thread
     * @param list where changes are announced
     */
    Outcome await(Waiter waiter, WaitList list, long startNanos, long budgetNanos) {
        if (waiter.runner == null) {
            waiter.runner = new Runner(waiter);
        }
        Runner runner = waiter.runner;
        runner.begin(startNanos, budgetNanos);
        try {
            return await(runner, waiter, list, startNanos, budgetNanos);
        } catch (RuntimeException | Error e) {
            // Such as a full stack: others go on.
            synchronized (scheduler) {
                list.remove(waiter);
                runner.leaveAll();
            }
            performLeftovers();
            throw e;
        }
    }

    /** Wakes those whom a change made by this thread called. */
    private void performLeftovers() {
        Chore chores;
        synchronized (scheduler) {
            chores = scheduler.takeChores(0);
        }
        perform(chores);
    }

    private Outcome await(
            Runner runner, Waiter waiter, WaitList list, long startNanos, long budgetNanos) {
        while (true) {
            Work work = runner.nextWithoutLock();
            boolean parking = false;
            Outcome outcome = null;
            Chore chores = null;
            if (work == null) {
                long leftNanos = left(startNanos, budgetNanos);
                synchronized (scheduler) {
                    if (waiter.isOver()) {
                        outcome = Outcome.OVER;
                    } else if (Thread.currentThread().isInterrupted()) {
                        outcome = Outcome.INTERRUPTED;
                    } else if (leftNanos <= 0) {
                        outcome = Outcome.OUT_OF_TIME;
                    } else {
                        work = runner.nextWithLock();
                        parking = work == null && runner.isTired();
                    }
                    if (outcome != null || parking) {
                        runner.leavePlace();
                        if (outcome != null) {
                            runner.leave();
                        }
                        chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
                    }
                    if (parking && chores == null) {
                        list.add(waiter);
                        runner.rest();
                    }
                }
                if (chores != null) {
                    // Before it is in the list: a user's logger that waits for a lock of its own
                    // would take the wake-up that is meant for us.
                    perform(chores);
                }
                if (outcome != null) {
                    return outcome;
                }
                if (parking && chores == null) {
                    LockSupport.parkNanos(
                            scheduler, runner.mayJoin ? leftNanos : Math.min(leftNanos, NAP_NANOS));
                    synchronized (scheduler) {
                        list.remove(waiter);
                        runner.rested();
                    }
                }
            }
            if (work != null) {
                runner.run(work);
            }
        }
    }

    /**
     * A thread while it waits or is a worker: where it is, and what it does.
     *
     * <p>Thread safety: one thread, with the lock where it says so.
     */
    final class Runner {
        /** Ends the help when over; null for a worker. */
        private final Waiter waiter;

        private long startNanos;
        private long budgetNanos;
        private int place = NOWHERE;

        /** False once it found nothing to move in what is open, until it has rested. */
        boolean mayJoin = true;

        /** What stands for it among those who want a place, or null. */
        private Placeless wish;

        /** What stands for it among those who rest, or null. */
        private Placeless rest;

        /** The last of both, to be used again unless somebody still has it. */
        private Placeless lastPlaceless;

        /** Whether it was called while it rested, and has run nothing since. */
        private boolean calledAtRest;

        /** The last work that was hot. */
        private Shares seen;

        /** A work that this thread has alone and is to begin, or null. */
        private Work mine;

        /** Since when it has had nothing to do; 0 if it does not know. */
        private long idleSinceNanos;

        /** Whether it has run something since it parked: more may be coming. */
        private boolean patient;

        /** Since when a worker has left what is ready to others; 0 if it does not. */
        private long patientSinceNanos;

        /** When it looks whether it still should. */
        private long patientUntilNanos;

        /** What {@link Scheduler#enqueued} was when it looked last. */
        private long seenEnqueued;

        private Runner(Waiter waiter) {
            this.waiter = waiter;
        }

        /** A wait begins. The last one, if any, has {@linkplain #leave left} its place and wish. */
        private void begin(long newStartNanos, long newBudgetNanos) {
            assert place == NOWHERE && mine == null && wish == null && rest == null;
            startNanos = newStartNanos;
            budgetNanos = newBudgetNanos;
            mayJoin = true;
            calledAtRest = false;
            idleSinceNanos = 0;
        }

        private boolean isWorker() {
            return waiter == null;
        }

        /** Something to do; null if the lock is needed for it, or nothing has come for a while. */
        Work nextWithoutLock() {
            if (mine != null) {
                return mine;
            }
            if (!mayJoin || (isWorker() && place == NOWHERE)) {
                return null;
            }
            for (int looks = 0; isWorker() || !waiter.seemsOver(); looks++) {
                if (looks % LOOKS_PER_ROUND == 0) {
                    if (isEnough() || (place == NOWHERE && !full)) {
                        return null;
                    }
                    Shares latest = hot.getAcquire(HOT);
                    // Shares of what it has seen may be free again.
                    if (place != NOWHERE && latest != null && latest.haveFree()) {
                        return latest.work;
                    }
                    long now = System.nanoTime();
                    boolean leaves = leavesToOthers(now);
                    if (hasReady && !leaves && place != NOWHERE) {
                        return null;
                    }
                    if (idleSinceNanos == 0 || leaves) {
                        // To leave something to others is not to be idle.
                        idleSinceNanos = now;
                    } else if (now - idleSinceNanos >= IDLE_SPIN_NANOS) {
                        return null;
                    } else if (now - idleSinceNanos >= BUSY_SPIN_NANOS) {
                        Thread.yield();
                    }
                }
                if (place == NOWHERE) {
                    Thread.yield();
                    continue;
                }
                Shares latest = hot.getAcquire(HOT);
                if (latest != null && !latest.equals(seen)) {
                    // Most likely just opened: a look at its shares first would take as long as
                    // taking one.
                    seen = latest;
                    return latest.work;
                }
                Thread.onSpinWait();
            }
            return null;
        }

        /** Whether it leaves what is ready to others for now; a waiter never does. */
        private boolean leavesToOthers(long now) {
            if (!hasReady) {
                patientSinceNanos = 0;
                return false;
            }
            if (!isWorker() || hasLargeReady || !(patient || attended)) {
                return false;
            }
            if (patientSinceNanos == 0) {
                patientSinceNanos = now;
                patientUntilNanos = now + PATIENCE_NANOS;
                seenEnqueued = scheduler.enqueued();
            } else if (now - patientUntilNanos >= 0
                    && now - patientSinceNanos < MOST_PATIENCE_NANOS
                    && !isAbsent(now)) {
                // No more often, for whoever enqueues writes it all the time.
                long enqueued = scheduler.enqueued();
                if (enqueued != seenEnqueued) {
                    seenEnqueued = enqueued;
                    patientUntilNanos = now + PATIENCE_NANOS;
                }
            }
            return now - patientUntilNanos < 0;
        }

        /** Something to do, with a place to do it, or null. Lock held. */
        Work nextWithLock() {
            if (isWorker() && crowded) {
                return null;
            }
            if (place == NOWHERE) {
                place = takePlace(isWorker());
                if (place == NOWHERE) {
                    wishForPlace();
                    return null;
                }
                noLongerPlaceless();
            }
            // Before it parks it takes what it has left so far: others may not come for it.
            if (!leavesToOthers(System.nanoTime()) || isTired()) {
                mine = pollReady();
                if (mine != null) {
                    return mine;
                }
            }
            return mayJoin ? joinable() : null;
        }

        private void wishForPlace() {
            if (!isWorker()) {
                if (wish == null) {
                    wish = placeless();
                    placeless.add(wish);
                    crowded = true;
                }
                // It is here: whoever leaves next shall call it once more.
                wish.called = false;
            }
        }

        /** What stands for it among others; never two at a time. Lock held. */
        private Placeless placeless() {
            if (lastPlaceless == null || !lastPlaceless.release()) {
                lastPlaceless = new Placeless(waiter);
            } else {
                lastPlaceless.useAgain();
                lastPlaceless.called = false;
            }
            return lastPlaceless;
        }

        /**
         * Its wait is over: if it was called to a place, somebody else may want that. Lock held.
         */
        void leave() {
            boolean called = calledAtRest || (wish != null && wish.called);
            calledAtRest = false;
            // Between waits it would keep a work reachable.
            seen = null;
            noLongerPlaceless();
            if (called) {
                callForPlace(true);
            }
        }

        /** Something was thrown where nothing should be. Lock held. */
        void leaveAll() {
            rested();
            if (mine != null) {
                mine.alone = false;
                queue(mine);
                mine = null;
            }
            leavePlace();
            leave();
        }

        /** It has a place, or wants none any more. Lock held. */
        private void noLongerPlaceless() {
            if (wish != null) {
                placeless.remove(wish);
                wish = null;
                crowded = !placeless.isEmpty();
            }
        }

        /** Whether it has looked for something to do long enough. */
        boolean isTired() {
            return !mayJoin
                    || (isWorker() && (crowded || place == NOWHERE))
                    || (idleSinceNanos != 0
                            && System.nanoTime() - idleSinceNanos >= IDLE_SPIN_NANOS);
        }

        /** Lock held. */
        void leavePlace() {
            if (place != NOWHERE) {
                Workers.this.leavePlace(place, isWorker(), mayJoin);
                place = NOWHERE;
            }
        }

        /** A waiter is about to park, with nothing to do. Lock held. */
        void rest() {
            if (mayJoin && wish == null) {
                rest = placeless();
                resting.add(rest);
            }
        }

        /** It has parked. Lock held. */
        void rested() {
            mayJoin = true;
            idleSinceNanos = 0;
            patientSinceNanos = 0;
            patient = false;
            if (rest != null) {
                calledAtRest = rest.called;
                resting.remove(rest);
                rest = null;
            }
        }

        /** Runs a work together with others. */
        void run(Work work) {
            idleSinceNanos = 0;
            patientSinceNanos = 0;
            calledAtRest = false;
            boolean leads = work.equals(mine);
            patient = true;
            mine = null;
            if (!leads || begin(work)) {
                mayJoin = share(work, leads);
            }
        }

        /** Begins a work that this thread has alone, and lets others in. */
        private boolean begin(Work work) {
            Throwable failure = null;
            boolean interruptedBefore = Thread.currentThread().isInterrupted();
            try {
                if (!work.shares.areAbandoned()) {
                    work.shares.cut(work.begin());
                }
            } catch (RuntimeException | Error e) {
                failure = e;
                forgetInterrupt(work, interruptedBefore);
            }
            boolean begun;
            Throwable again = null;
            Chore chores;
            synchronized (scheduler) {
                work.alone = false;
                begun = failure == null && !work.shares.areAbandoned();
                if (begun) {
                    work.open = true;
                    work.shares.open();
                    addOpen(work);
                    if (work.shares.count() > 1) {
                        callWorker(poolSize());
                    }
                } else {
                    again = failure == null ? null : broke(work, -1, failure);
                    again = leaveWork(work, true, again);
                }
                chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
            }
            report(again);
            perform(chores);
            return begun;
        }

        /**
         * Runs shares of an open work.
         *
         * @param leads whether this thread has begun it
         * @return false if there was nothing to move
         */
        private boolean share(Work work, boolean leads) {
            Shares shares = work.shares;
            boolean leading = leads;
            boolean finished = false;
            boolean useful = true;
            int share = -1;
            Throwable failure = null;
            boolean interruptedBefore = Thread.currentThread().isInterrupted();
            try {
                boolean leaving = false;
                boolean calls = isWorker();
                int yields = 0;
                int stamp = 0;
                while (!leaving && !finished && !shares.areAbandoned()) {
                    // Again each time: it may have been of an earlier life.
                    int count = shares.count();
                    int first = (int) ((long) place * count / cores);
                    boolean moved = false;
                    int claims = 0;
                    int others = 0;
                    for (int i = 0; i < count && !leaving && !finished; i++) {
                        share = first + i < count ? first + i : first + i - count;
                        // The first is most likely free, and a look costs as much as a claim.
                        if ((i > 0 && !shares.isFree(share)) || !shares.claim(share)) {
                            others += shares.isDone(share) ? 0 : 1;
                            share = -1;
                            continue;
                        }
                        // After the claim: either we see it, or who has abandoned it sees us.
                        if (shares.areAbandoned()) {
                            shares.release(share, false);
                            share = -1;
                            break;
                        }
                        if (calls && claims > 0) {
                            calls = !callLastWorker(work, count);
                        }
                        claims++;
                        boolean advanced = false;
                        Progress progress = shares.advance(share);
                        int looks = 0;
                        while (progress != Progress.DONE && !shares.areAbandoned() && !leaving) {
                            if (progress == Progress.ADVANCED) {
                                advanced = true;
                                looks = 0;
                            } else if (++looks == BLOCKED_LOOKS || shares.haveFree()) {
                                break;
                            } else {
                                Thread.onSpinWait();
                            }
                            leaving = looks % LOOKS_PER_ROUND == 0 && isEnough();
                            if (!leaving) {
                                progress = shares.advance(share);
                            }
                        }
                        moved |= advanced;
                        if (progress == Progress.DONE) {
                            moved = true;
                            finished = shares.finish(share);
                        } else {
                            shares.release(share, advanced);
                        }
                        share = -1;
                    }
                    if (moved) {
                        yields = 0;
                    } else if (claims == 0) {
                        leaving = !leading || !awaitOthers(shares);
                    } else if (++yields < YIELDS) {
                        stamp = shares.stamp();
                        Thread.yield();
                        leaving = isEnough();
                    } else if (others == 0 && shares.stamp() == stamp) {
                        throw stuck();
                    } else {
                        useful = false;
                        leaving = true;
                    }
                }
                if (leading) {
                    leading = false;
                    finished = shares.stopLeading();
                }
                if (finished && !shares.areAbandoned()) {
                    work.end();
                }
            } catch (RuntimeException | Error e) {
                // It keeps the share, and leads, until it has the lock: nobody else may end it.
                failure = e;
                forgetInterrupt(work, interruptedBefore);
            }
            if (finished || failure != null || shares.areAbandoned()) {
                leave(work, share, leading, finished, failure);
            }
            return useful;
        }

        /**
         * Waits for those who run what is left of a work that this thread leads.
         *
         * @return whether something of it may be free again
         */
        private boolean awaitOthers(Shares shares) {
            for (int looks = 1; !shares.areLedToTheirEnd() && !shares.areAbandoned(); looks++) {
                Thread.onSpinWait();
                if (looks % LOOKS_PER_ROUND == 0) {
                    // A worker would leave what is not large to others anyway.
                    if ((isWorker() ? hasLargeReady : hasReady)
                            || looks >= LEADING_LOOKS
                            || isEnough()) {
                        return false;
                    }
                    if (shares.haveFree()) {
                        return true;
                    }
                }
            }
            return false;
        }

        /** Ends a work, and takes one that has become ready by that. */
        private void leave(
                Work work, int share, boolean leading, boolean finished, Throwable failure) {
            Throwable again = null;
            Chore chores;
            synchronized (scheduler) {
                boolean ends = finished;
                if (failure != null) {
                    again = broke(work, share, failure);
                    ends |= share >= 0 && work.shares.finish(share);
                    ends |= leading && work.shares.stopLeading();
                }
                // Else it is the turn of others, or of a waiter, who has it in its cache.
                boolean large = work.costBytes() >= LARGE_BYTES;
                keeping = ready.isEmpty() && (!isWorker() || (large && waiting == 0));
                staying = isWorker();
                awaited = waiting > 0;
                try {
                    again = leaveWork(work, ends, again);
                    chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
                } finally {
                    keeping = false;
                    staying = false;
                    mine = kept;
                    kept = null;
                }
                if (mine != null && !isWorker() && (waiter.isOver() || isEnough())) {
                    mine.alone = false;
                    queue(mine);
                    mine = null;
                    chores = followed(chores, scheduler.takeChores(0));
                }
            }
            report(again);
            perform(chores);
        }

        private boolean isEnough() {
            return isWorker()
                    ? crowded
                    : waiter.seemsOver()
                            || left(startNanos, budgetNanos) <= 0
                            || Thread.currentThread().isInterrupted();
        }

        /**
         * Calls a worker to the place that nobody has come to, if it is worth it.
         *
         * @return false if it may be later
         */
        private boolean callLastWorker(Work work, int count) {
            if (work.costBytes() / count < LARGE_SHARE_BYTES) {
                return true;
            }
            if (full || !isAbsent(System.nanoTime())) {
                return false;
            }
            Chore chores;
            synchronized (scheduler) {
                callWorker(cores);
                chores = scheduler.takeChores(0);
            }
            perform(chores);
            return true;
        }
    }

    /** Whether nobody has been waiting for a while. */
    private boolean isAbsent(long now) {
        return !attended && now - attendedUntilNanos >= ABSENCE_NANOS;
    }

    private void report(Throwable failure) {
        if (failure != null) {
            scheduler.report("failed after a change of state", failure);
        }
    }

    /** What is left of a budget that began at a time. */
    static long left(long startNanos, long budgetNanos) {
        return budgetNanos - (System.nanoTime() - startNanos);
    }

    /** A worker's life. One that fails leaves its place; it holds no work then. */
    private void workWhileNeeded() {
        Runner runner = new Runner(null);
        try {
            work(runner);
        } catch (RuntimeException | Error e) {
            synchronized (scheduler) {
                runner.leaveAll();
                threads--;
            }
            performLeftovers();
            scheduler.report("a worker thread failed; another takes its place", e);
        }
    }

    private void work(Runner runner) {
        WorkerThread thread = new WorkerThread();
        IdleWorker spare = new IdleWorker(thread);
        boolean rested = false;
        while (true) {
            Work work = runner.nextWithoutLock();
            Chore chores = null;
            IdleWorker self = null;
            if (work == null) {
                synchronized (scheduler) {
                    work = runner.nextWithLock();
                    boolean parking = work == null && runner.isTired();
                    if (parking) {
                        runner.leavePlace();
                        chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
                    }
                    if (parking && chores == null) {
                        if (rested) {
                            threads--;
                            return;
                        }
                        // The last may still be in the list of who calls it.
                        if (!spare.release()) {
                            spare = new IdleWorker(thread);
                        }
                        self = spare;
                        self.useAgain();
                        idle.add(self);
                        thread.parks();
                    }
                }
                // Before it is idle: as in await, a chore may take a wake-up that is meant for us.
                perform(chores);
            }
            if (work != null) {
                runner.run(work);
                rested = false;
            }
            if (self == null) {
                continue;
            }
            LockSupport.parkNanos(scheduler, runner.mayJoin ? IDLE_NANOS : NAP_NANOS);
            synchronized (scheduler) {
                // Still in the list: nobody has called.
                rested = idle.remove(self) && runner.mayJoin;
                runner.rested();
            }
            thread.hasWoken();
        }
    }

    /** A waiter that has no place, among those who are called when one is free. */
    private static final class Placeless extends Waiter {
        private final Waiter waiter;

        /** Whether it has been called, and has not looked since. */
        private boolean called;

        Placeless(Waiter waiter) {
            this.waiter = waiter;
        }

        @Override
        boolean seemsOver() {
            return waiter.isOver();
        }
    }

    /** A worker that waits for a call. */
    private static final class IdleWorker extends Waiter {
        private final WorkerThread thread;

        /** Whether who calls it will use his core himself. */
        boolean wakesBeside;

        IdleWorker(WorkerThread thread) {
            this.thread = thread;
        }

        @Override
        boolean seemsOver() {
            return false;
        }

        @Override
        Chore perform(long budgetBytes) {
            try {
                if (wakesBeside) {
                    thread.keepOffMyCore();
                }
            } finally {
                super.perform(budgetBytes);
            }
            return null;
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
