package org.nccl4j.cpu;

import java.util.concurrent.atomic.AtomicIntegerArray;

/**
 * The shares of a {@link Work}, which threads take and give back without the lock.
 *
 * <pre>
 *   a share     becomes     when
 *   closed      free        the work is opened, by the thread that has begun it
 *   free        claimed     a runner takes it; that is all it takes to be one
 *   claimed     free        it is blocked, or its runner has no more time
 *               done        it needs no more
 *   any         closed      the work is made ready for a new life
 * </pre>
 *
 * <p>Runners come and go as they like, so that one may look at a work that has ended meanwhile and
 * lives again: it finds no free share, or one that it may well advance, as whatever it knows of the
 * work it reads after the claim. While a share is claimed the work's life does not end.
 *
 * <p>A thread that spins reads this object and one word of a share again and again. So nothing here
 * is written that is as it was before, and the words of few shares have a cache line each: what
 * another core has written costs a thread about as much as a hundred instructions.
 *
 * <p>Thread safety: any thread, but where it says otherwise. Claim and release order what one
 * claimer wrote before what the next reads.
 */
final class Shares {
    private static final int CLOSED = 0;
    private static final int FREE = 1;
    private static final int CLAIMED = 2;
    private static final int DONE = 3;

    /** So many shares have a cache line each. */
    private static final int FEW = 16;

    private static final int LINE_INTS = 16;

    /**
     * Which word counts, and which is the first of a share: none in the line of the array's length.
     */
    private static final int UNFINISHED = LINE_INTS;

    private static final int SHARES = 2 * LINE_INTS;

    /** The lower half of the first word counts down, the upper half counts what has changed. */
    private static final int CHANGE = 1 << Short.SIZE;

    private static final int COUNT = CHANGE - 1;

    /** Whose they are. */
    final Work work;

    /**
     * First the shares that are not done, and one for the thread that leads; then each share's
     * state.
     */
    private final AtomicIntegerArray words;

    private final int spread;

    /** What is advanced; it may be of an earlier life until a share is claimed. */
    private Engine.Pieces pieces;

    private volatile int count;
    private volatile boolean abandoned;

    /**
     * Shares that are closed.
     *
     * @param most how many there may ever be
     */
    Shares(Work work, int most) {
        if (most >= COUNT) {
            throw new IllegalArgumentException(most + " shares are too many to be counted");
        }
        this.work = work;
        this.spread = most <= FEW ? LINE_INTS : 1;
        this.words = new AtomicIntegerArray(SHARES + most * spread);
    }

    private int word(int share) {
        return SHARES + share * spread;
    }

    /** How many there may ever be. */
    int most() {
        return (words.length() - SHARES) / spread;
    }

    /** Closes all. By a thread that has the scheduler's lock. */
    void close() {
        for (int share = 0; share < count; share++) {
            words.setOpaque(word(share), CLOSED);
        }
        if (abandoned) {
            abandoned = false;
        }
    }

    /** Sets what they are shares of, by the thread that has the work alone and leads it now. */
    void cut(Engine.Pieces whole) {
        int shares = whole.shares();
        if (shares > most()) {
            throw new IllegalStateException(
                    "the engine cuts an operation into "
                            + shares
                            + " shares, more than it said there would be");
        }
        if (count != shares) {
            count = shares;
        }
        if (!whole.equals(pieces)) {
            pieces = whole;
        }
        int changes = words.getOpaque(UNFINISHED) & ~COUNT;
        words.setOpaque(UNFINISHED, changes + CHANGE + shares + 1);
    }

    /** Lets others in. By a thread that has the scheduler's lock. */
    void open() {
        for (int share = count - 1; share >= 0; share--) {
            words.setRelease(word(share), FREE);
        }
    }

    /** How many there are; may be of an earlier life. */
    int count() {
        return count;
    }

    /** Stops the runners between two pieces. By a thread that has the scheduler's lock. */
    void abandon() {
        abandoned = true;
    }

    /** Whether runners shall stop. */
    boolean areAbandoned() {
        return abandoned;
    }

    /** Takes a share for the calling thread, if it is free. */
    boolean claim(int share) {
        // Without a look before, which would have the line brought here twice.
        return words.compareAndSet(word(share), FREE, CLAIMED);
    }

    /** Advances a claimed share by a piece. */
    Engine.Progress advance(int share) {
        return pieces.progress(share);
    }

    /** Gives a claimed share back. */
    void release(int share, boolean moved) {
        if (moved) {
            words.getAndAdd(UNFINISHED, CHANGE);
        }
        words.set(word(share), FREE);
    }

    /**
     * Notes that a claimed share needs no more.
     *
     * @return true if it was the last and nobody leads: then the caller ends the work
     */
    boolean finish(int share) {
        words.setRelease(word(share), DONE);
        return (words.addAndGet(UNFINISHED, CHANGE - 1) & COUNT) == 0;
    }

    /**
     * The same for the thread that has the work alone.
     *
     * @return true if it was the last
     */
    boolean finishAlone(int share) {
        words.setOpaque(word(share), DONE);
        int left = words.getOpaque(UNFINISHED) + CHANGE - 1;
        words.setOpaque(UNFINISHED, left);
        return (left & COUNT) == 1;
    }

    /** Whether all are done and the thread that leads may end the work. */
    boolean areLedToTheirEnd() {
        return (words.get(UNFINISHED) & COUNT) == 1;
    }

    /**
     * The thread that leads goes.
     *
     * @return true if all are done: then it ends the work
     */
    boolean stopLeading() {
        return (words.addAndGet(UNFINISHED, -1) & COUNT) == 0;
    }

    boolean isFree(int share) {
        return words.get(word(share)) == FREE;
    }

    boolean isDone(int share) {
        return words.get(word(share)) == DONE;
    }

    /** Whether somebody who comes now may find something to do. */
    boolean haveFree() {
        for (int share = count - 1; share >= 0; share--) {
            if (words.get(word(share)) == FREE) {
                return !abandoned;
            }
        }
        return false;
    }

    /**
     * Whether any thread advances one, leads, or has found all done and is about to end the work.
     * One that has just gone looks whether they are abandoned afterwards.
     */
    boolean haveThreads() {
        int left = 0;
        for (int share = 0; share < count; share++) {
            int state = words.get(word(share));
            if (state == CLAIMED) {
                return true;
            }
            left += state == DONE ? 0 : 1;
        }
        int unfinished = words.get(UNFINISHED) & COUNT;
        return unfinished == 0 || unfinished > left;
    }

    /** Another one whenever a share has moved or is done. */
    int stamp() {
        return words.get(UNFINISHED) >>> Short.SIZE;
    }
}
