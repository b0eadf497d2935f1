package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;

/**
 * Another engine with somebody who may wait or throw before each piece, and who watches that the
 * rules of {@link Engine} are kept by those that call it.
 *
 * <p>Thread safety: any thread.
 */
final class HookedEngine implements Engine {
    /** Called by the runner of a share. */
    interface Hook {
        void beforeProgress(JoinedOperation operation, int share);
    }

    /** What stands for the share where an operation is carried out at once. */
    static final int WHOLE = -1;

    /** Runs that were made. */
    final AtomicInteger started = new AtomicInteger();

    /** Runs that were told that all is done. */
    final AtomicInteger completed = new AtomicInteger();

    /** Runs that were told that they were given up. */
    final AtomicInteger givenUp = new AtomicInteger();

    /** Operations that were prepared to be carried out at once. */
    final AtomicInteger prepared = new AtomicInteger();

    /** How often one of them was carried out. */
    final AtomicInteger atOnce = new AtomicInteger();

    private final Engine engine;
    private final Hook hook;
    private final Queue<String> violations = new ConcurrentLinkedQueue<>();

    /** The reference engine. */
    HookedEngine(Hook hook) {
        this(new ReferenceEngine(), hook);
    }

    HookedEngine(Engine engine, Hook hook) {
        this.engine = engine;
        this.hook = hook;
    }

    /** Fails if a rule was broken, even if nobody minded then. */
    void assertRulesKept() {
        assertThat(violations).isEmpty();
    }

    @Override
    public String name() {
        return "hooked";
    }

    @Override
    public long steps(JoinedOperation operation) {
        return engine.steps(operation);
    }

    @Override
    public int mostShares(int participants) {
        return engine.mostShares(participants);
    }

    @Override
    public Run start(JoinedOperation operation) {
        Run run = engine.start(operation);
        started.incrementAndGet();
        return new WatchedRun(operation, run);
    }

    @Override
    public Persistent prepare(JoinedOperation operation) {
        Persistent persistent = engine.prepare(operation);
        if (persistent == null) {
            return null;
        }
        prepared.incrementAndGet();
        AtomicBoolean inside = new AtomicBoolean();
        return () -> {
            if (!inside.compareAndSet(false, true)) {
                violations.add(operation.kind() + ": two threads carry it out at once");
            }
            try {
                hook.beforeProgress(operation, WHOLE);
                persistent.run();
            } finally {
                inside.set(false);
            }
            atOnce.incrementAndGet();
        };
    }

    /** A run whose callers are watched. */
    private final class WatchedRun implements Run {
        private static final int FREE = 0;
        private static final int INSIDE = 1;
        private static final int DONE = 2;

        private final JoinedOperation operation;
        private final String name;
        private final Run run;
        private final int count;
        private final AtomicIntegerArray states;
        private final AtomicBoolean ended = new AtomicBoolean();

        WatchedRun(JoinedOperation operation, Run run) {
            this.operation = operation;
            // Kept, for the operation may be another one when something is wrong.
            this.name = operation.kind() + " #" + operation.sequence();
            this.run = run;
            this.count = run.shares();
            this.states = new AtomicIntegerArray(count);
        }

        @Override
        public int shares() {
            return count;
        }

        @Override
        public Progress progress(int share) {
            check(!ended.get(), "share " + share + " called after the end");
            int before = states.compareAndExchange(share, FREE, INSIDE);
            check(before != INSIDE, "two threads in share " + share);
            check(before != DONE, "share " + share + " called after it was done");
            int after = FREE;
            try {
                hook.beforeProgress(operation, share);
                Progress progress = run.progress(share);
                after = progress == Progress.DONE ? DONE : FREE;
                return progress;
            } finally {
                states.set(share, after);
            }
        }

        @Override
        public void finish(boolean done) {
            check(ended.compareAndSet(false, true), "ended twice, now with " + done);
            for (int share = 0; share < count; share++) {
                int state = states.get(share);
                check(state != INSIDE, "ended while somebody is in share " + share);
                check(!done || state == DONE, "ended before share " + share + " was done");
            }
            (done ? completed : givenUp).incrementAndGet();
            run.finish(done);
        }

        @Override
        public boolean canRepeatAs(JoinedOperation other) {
            return run.canRepeatAs(other);
        }

        @Override
        public void repeat(int share) {
            check(!ended.get(), "share " + share + " repeated after the end");
            check(
                    states.compareAndSet(share, DONE, FREE),
                    "share " + share + " repeated before it was done");
            run.repeat(share);
        }

        @Override
        public void repeated(int times) {
            run.repeated(times);
            completed.addAndGet(times - 1);
        }

        private void check(boolean kept, String violation) {
            if (!kept) {
                violations.add(name + ": " + violation);
                throw new IllegalStateException(violation);
            }
        }
    }
}
