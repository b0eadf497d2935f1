package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;

/**
 * Data to be moved by whoever is there: a joined operation, or a stream's own copy or fill. Several
 * threads may run one work, each advancing another participant; they are its runners.
 *
 * <p>Thread safety: fields without another word are guarded by the scheduler's lock. A participant
 * is advanced by the thread that has claimed it; claim and release order what one claimer wrote
 * before what the next reads.
 */
abstract class Work extends Chore {
    private static final int FREE = 0;
    private static final int CLAIMED = 1;
    private static final int DONE = 2;

    /** Smaller works cost as much as this: what it takes to run anything at all. */
    private static final long LEAST_COST_BYTES = 1 << 10;

    /**
     * A step costs as much as this many bytes even if it moves fewer. With many ranks it is steps
     * that take the time: a ring of n ranks has about 2 n^2.
     */
    private static final long STEP_COST_BYTES = 64;

    /** The next of those that somebody runs and others may join. */
    Work nextRunning;

    /** Threads that are in {@link #advance} or about to be. */
    int runners;

    /** Counts changes of {@link #runners}, so that one can tell whether it was alone. */
    int runnerChanges;

    /** Whether {@link #begin} has returned, so that further runners may join. */
    boolean open;

    /** Whether it has been completed while runners may still be leaving. */
    boolean complete;

    /** Set once to stop the runners between two pieces; written with the lock held. */
    volatile boolean abandoned;

    private AtomicIntegerArray states = new AtomicIntegerArray(1);
    private final AtomicInteger unfinished = new AtomicInteger();
    private int participantCount;

    /** Makes it ready for a new life. Lock held. */
    final void renew(int newParticipants) {
        if (states.length() < newParticipants) {
            states = new AtomicIntegerArray(newParticipants);
        }
        for (int i = 0; i < newParticipants; i++) {
            states.setPlain(i, FREE);
        }
        participantCount = newParticipants;
        unfinished.setPlain(newParticipants);
        runners = 0;
        open = false;
        complete = false;
        abandoned = false;
    }

    /** The number of parts that can be advanced side by side. */
    public final int participants() {
        return participantCount;
    }

    /** What running it takes, as bytes to be moved. */
    final long costBytes() {
        return Math.max(LEAST_COST_BYTES, Math.max(sizeBytes(), STEP_COST_BYTES * steps()));
    }

    /** One thread runs small works alone. */
    final int maxRunners() {
        return costBytes() <= Scheduler.SMALL_BYTES ? 1 : participantCount;
    }

    final boolean claim(int participant) {
        return states.get(participant) == FREE && states.compareAndSet(participant, FREE, CLAIMED);
    }

    final void release(int participant) {
        states.setRelease(participant, FREE);
    }

    /**
     * Notes that a claimed participant needs no more.
     *
     * @return true if it was the last
     */
    final boolean finish(int participant) {
        states.setRelease(participant, DONE);
        return unfinished.decrementAndGet() == 0;
    }

    final boolean allFinished() {
        return unfinished.get() == 0;
    }

    /** Bytes that all participants together move, roughly. */
    abstract long sizeBytes();

    /** Steps that all participants together take, roughly. */
    abstract long steps();

    /** Called once, without the lock, before any {@link #advance}. */
    abstract void begin();

    /** Advances a claimed participant by one piece. */
    abstract Engine.Progress advance(int participant);

    /** Called once, without the lock, when nobody advances it any more. */
    abstract void end();

    /** Something threw while a participant (or -1: the whole) was being advanced. Lock held. */
    abstract void broke(int participant, Throwable failure);

    /** Whether memory that it uses has been closed by its owner. Asked by a runner. */
    abstract boolean usesClosedArena();

    /** All participants are done. Lock held. */
    abstract void completed();

    /** It was abandoned and its last runner has left. Lock held. */
    abstract void givenUp();

    /** Complete and without runners: the object may be used again. Lock held. */
    abstract void unused();

    static boolean isClosed(MemorySegment segment) {
        return segment != null && !segment.scope().isAlive();
    }

    /** Runs it whole, alone. */
    @Override
    final Chore perform(long budgetBytes) {
        return scheduler().workers().runAlone(this, budgetBytes);
    }

    abstract Scheduler scheduler();
}
