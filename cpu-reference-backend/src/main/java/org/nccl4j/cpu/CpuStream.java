package org.nccl4j.cpu;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.atomic.AtomicLong;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.collectives.WaitInterruptedException;
import org.nccl4j.collectives.spi.ArgumentChecks;
import org.nccl4j.collectives.spi.Durations;

/**
 * A queue of entries, run by whoever is there; it has no thread. Entries are numbered from 1: the
 * ticket of an entry is passed when {@code completed >= ticket}.
 *
 * <p>Thread safety: state is guarded by the scheduler's lock; volatile and atomic fields may also
 * be read without it.
 */
final class CpuStream implements DeviceStream {
    enum EntryKind {
        /** Operations of one communicator; the subject is a {@link Batch}. */
        BATCH,
        /** A copy or fill; the subject is a {@link LocalWork}. */
        LOCAL,
        /** A mark to be passed; the subject is a {@link CpuEvent}. */
        RECORD,
        /** Waits for a ticket of another stream, which is the subject. */
        WAIT
    }

    private static final int MOST_SUPPRESSED = 10;

    /** What is remembered of a failure until it has been thrown. */
    private record Failure(Clique clique, CollectiveException cause) {
        boolean isForgottenOnceThrown() {
            return clique == null || clique.aborted;
        }
    }

    final WaitList waiters = new WaitList();

    /** Whether it is in the scheduler's list of streams to be driven. */
    boolean touched;

    /** The next in that list. */
    CpuStream nextTouched;

    /** Whether the head has been looked at and has not been passed yet. */
    boolean headVisited;

    /** For the watchdog: the head that it saw last, and since when. */
    long watchedTicket = -1;

    long watchedSinceNanos;

    private final Scheduler scheduler;
    private final CpuDevice device;
    private final int number;
    private final List<Failure> failures = new ArrayList<>(1);
    private final ChoreList<LocalWork> spareWorks = new ChoreList<>();

    /** To be used by the next who waits, or null. */
    private StreamWaiter spareWaiter;

    /** For when there is no memory for the failure of a copy or fill. */
    private final Failure outOfMemory;

    /** The same for when there is no room on the stack. */
    private final Failure outOfStack;

    /** Streams whose heads wait for this one, linked: a head waits for one stream. */
    private CpuStream firstDependent;

    private CpuStream nextDependent;
    private EntryKind[] kinds = new EntryKind[8];
    private Object[] subjects = new Object[8];
    private long[] tickets = new long[8];

    // Written with the lock held. Release and acquire are enough: a full fence per entry is not
    // cheap.
    private final AtomicLong completed = new AtomicLong();
    private final AtomicLong enqueued = new AtomicLong();
    private volatile int failureCount;
    private volatile boolean hasFailures;
    private CollectiveException lastFailure;
    private boolean progressed;
    private volatile boolean closed;

    CpuStream(Scheduler scheduler, CpuDevice device, int number) {
        this.scheduler = scheduler;
        this.device = device;
        this.number = number;
        device.open();
        this.outOfMemory =
                localFailure("the heap was full; give the JVM more memory (-Xmx), and repeat it");
        this.outOfStack =
                localFailure(
                        "the stack of a thread was full; give threads a larger one (-Xss) or call"
                                + " from less deep, and repeat it");
    }

    private Failure localFailure(String reason) {
        return new Failure(
                null,
                new UnsupportedException(
                        "a copy or fill on " + this + " failed because " + reason));
    }

    // ---- the queue; lock held

    boolean isEmpty() {
        return completed() == enqueued();
    }

    /** Whether it is open and nothing is enqueued. */
    boolean isIdle() {
        assert Thread.holdsLock(scheduler);
        return isEmpty() && !closed;
    }

    long completed() {
        return completed.getAcquire();
    }

    long enqueued() {
        return enqueued.getAcquire();
    }

    EntryKind headKind() {
        return kinds[slot(completed() + 1)];
    }

    Object headSubject() {
        return isEmpty() ? null : subjects[slot(completed() + 1)];
    }

    long headTicket() {
        return tickets[slot(completed() + 1)];
    }

    /**
     * The batch so many entries behind the head, or null if there is something else, or nothing.
     */
    Batch batchBehindHead(int entries) {
        long ticket = completed() + 1 + entries;
        int slot = slot(ticket);
        return ticket <= enqueued() && kinds[slot] == EntryKind.BATCH
                ? (Batch) subjects[slot]
                : null;
    }

    /** Makes room for one more, so that {@link #push} needs no memory. */
    void reserve() {
        assert Thread.holdsLock(scheduler);
        if (enqueued() - completed() == kinds.length) {
            grow();
        }
    }

    void push(EntryKind kind, Object subject, long ticket) {
        reserve();
        long mine = enqueued() + 1;
        kinds[slot(mine)] = kind;
        subjects[slot(mine)] = subject;
        tickets[slot(mine)] = ticket;
        enqueued.setRelease(mine);
    }

    /** The head is over. Follow with {@link Scheduler#touch} unless being driven. */
    void pass() {
        assert Thread.holdsLock(scheduler);
        subjects[slot(completed() + 1)] = null;
        completed.setRelease(completed() + 1);
        headVisited = false;
        progressed = true;
    }

    /** Another stream's head waits for a ticket of this one. */
    void addDependent(CpuStream stream) {
        assert Thread.holdsLock(scheduler);
        stream.nextDependent = firstDependent;
        firstDependent = stream;
    }

    /** Tells those who wait for this stream, if it has moved. */
    void announceProgress() {
        assert Thread.holdsLock(scheduler);
        if (!progressed) {
            return;
        }
        progressed = false;
        waiters.wake(scheduler);
        while (firstDependent != null) {
            CpuStream dependent = firstDependent;
            firstDependent = dependent.nextDependent;
            dependent.nextDependent = null;
            dependent.headVisited = false;
            scheduler.touch(dependent);
        }
    }

    private int slot(long ticket) {
        return (int) (ticket & (kinds.length - 1));
    }

    private void grow() {
        int newLength = 2 * kinds.length;
        // All before any is in use: there may be no memory for one of them.
        EntryKind[] newKinds = new EntryKind[newLength];
        Object[] newSubjects = new Object[newLength];
        long[] newTickets = new long[newLength];
        for (long ticket = completed() + 1; ticket <= enqueued(); ticket++) {
            int moved = (int) (ticket & (newLength - 1));
            newKinds[moved] = kinds[slot(ticket)];
            newSubjects[moved] = subjects[slot(ticket)];
            newTickets[moved] = tickets[slot(ticket)];
        }
        kinds = newKinds;
        subjects = newSubjects;
        tickets = newTickets;
    }

    void requireOpen(String operation) {
        assert Thread.holdsLock(scheduler);
        if (closed) {
            throw new InvalidArgumentException(
                    operation
                            + ": "
                            + this
                            + " has been closed; make another with device().createStream()");
        }
    }

    void giveBack(LocalWork work) {
        assert Thread.holdsLock(scheduler);
        spareWorks.addFirst(work);
    }

    // ---- failures; lock held

    /** Keeps a communicator's failure for those who wait for this stream. */
    void remember(Clique clique) {
        assert Thread.holdsLock(scheduler);
        for (int i = 0; i < failures.size(); i++) {
            if (failures.get(i).clique() == clique) {
                return;
            }
        }
        remember(new Failure(clique, clique.cause));
    }

    /** Keeps the failure of a copy or fill. */
    void remember(CollectiveException cause) {
        assert Thread.holdsLock(scheduler);
        remember(new Failure(null, cause));
    }

    /** Keeps that a copy or fill failed where there was no memory or no stack to tell why. */
    void rememberWithoutWords(Throwable thrown) {
        if (failures.isEmpty()) {
            remember(thrown instanceof StackOverflowError ? outOfStack : outOfMemory);
        }
    }

    private void remember(Failure failure) {
        failures.add(failure);
        hasFailures = true;
        int count = failureCount + 1;
        failureCount = count;
        lastFailure = failure.cause();
        waiters.wake(scheduler);
    }

    /**
     * The oldest failure; those after it that are forgotten once thrown come with it, the first few
     * as suppressed, so that a stream is usable again after one throw.
     */
    private CollectiveException takeFailures() {
        CollectiveException oldest = takeFailure(0);
        int shown = 0;
        List<Failure> kept = new ArrayList<>(1);
        for (Failure failure : failures) {
            if (!failure.isForgottenOnceThrown()) {
                kept.add(failure);
            } else if (shown < MOST_SUPPRESSED) {
                oldest.addSuppressed(failure.cause());
                shown++;
            }
        }
        failures.clear();
        failures.addAll(kept);
        hasFailures = !failures.isEmpty();
        return oldest;
    }

    /**
     * The last one may have been thrown to another thread by now; its communicator is forgotten.
     */
    private CollectiveException takeFailure(CollectiveException cause) {
        for (int i = 0; i < failures.size(); i++) {
            if (failures.get(i).cause() == cause) {
                return takeFailure(i);
            }
        }
        return cause.forThisThread();
    }

    private CollectiveException takeFailure(int index) {
        Failure failure = failures.get(index);
        if (failure.isForgottenOnceThrown()) {
            // Not by equals, which a record links when first used: the heap may be full.
            failures.remove(index);
            hasFailures = !failures.isEmpty();
        }
        return failure.cause().forThisThread();
    }

    // ---- DeviceStream

    @Override
    public Device device() {
        return device;
    }

    @Override
    public boolean poll() {
        OpenGroup.refuseIfTouched(this);
        // Before the failures: work that is given up leaves its failure first, then the queue.
        boolean empty = isEmpty();
        if (closed || hasFailures) {
            synchronized (scheduler) {
                requireOpen("poll");
                if (!failures.isEmpty()) {
                    throw takeFailures();
                }
            }
        }
        return empty;
    }

    @Override
    public void synchronize(Duration timeout) {
        OpenGroup.refuseIfTouched(this);
        long budgetNanos = Durations.saturatedNanos(timeout);
        if (Thread.currentThread().isInterrupted()) {
            throw interrupted();
        }
        if (isEmpty() && !hasFailures && !closed) {
            return;
        }
        long startNanos = System.nanoTime();
        StreamWaiter waiter;
        synchronized (scheduler) {
            requireOpen("synchronize");
            if (!failures.isEmpty()) {
                throw takeFailures();
            }
            waiter = takeWaiter();
        }
        Workers.Outcome outcome =
                scheduler.workers().await(waiter, waiters, startNanos, budgetNanos);
        synchronized (scheduler) {
            if (waiter.release()) {
                spareWaiter = waiter;
            }
            if (waiter.hasNewFailure()) {
                throw takeFailure(lastFailure);
            }
            switch (outcome) {
                case OVER -> {}
                case INTERRUPTED -> throw interrupted();
                case OUT_OF_TIME -> throw outOfTime(timeout);
            }
        }
    }

    /** One for what is enqueued now. */
    private StreamWaiter takeWaiter() {
        StreamWaiter waiter = spareWaiter;
        if (waiter == null) {
            return new StreamWaiter(enqueued(), failureCount);
        }
        spareWaiter = null;
        waiter.useAgain(enqueued(), failureCount);
        return waiter;
    }

    private WaitInterruptedException interrupted() {
        return new WaitInterruptedException(
                "interrupted while waiting for "
                        + this
                        + "; its work is unchanged, synchronize again");
    }

    private CollectiveException outOfTime(Duration timeout) {
        CollectiveException failing = failureOfHead();
        if (failing != null) {
            return failing.forThisThread();
        }
        return new CollectiveTimeoutException(
                this
                        + " was not done within "
                        + Durations.text(timeout)
                        + ": "
                        + Wording.head(this)
                        + "; nothing has changed, synchronize again or abort the communicator",
                false);
    }

    /** A failed communicator whose abort has not come through yet. */
    private CollectiveException failureOfHead() {
        return headSubject() instanceof Batch batch ? batch.member.clique.cause : null;
    }

    @Override
    public void record(DeviceEvent event) {
        OpenGroup.refuseIfTouched(this);
        CpuEvent mine = CpuEvent.of("record", event);
        Chore chores;
        synchronized (scheduler) {
            requireOpen("record");
            mine.requireOpen("record");
            push(EntryKind.RECORD, mine, 0);
            mine.mark(this, enqueued());
            scheduler.touch(this);
            scheduler.drive();
            chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
        }
        scheduler.workers().perform(chores);
    }

    @Override
    public void waitFor(DeviceEvent event) {
        OpenGroup.refuseIfTouched(this);
        CpuEvent other = CpuEvent.of("waitFor", event);
        Chore chores;
        synchronized (scheduler) {
            requireOpen("waitFor");
            other.requireOpen("waitFor");
            CpuStream source = other.markedStream();
            // A mark of this stream comes before whatever is enqueued next anyhow.
            if (source == null || source == this || source.completed() >= other.markedTicket()) {
                return;
            }
            push(EntryKind.WAIT, source, other.markedTicket());
            scheduler.touch(this);
            scheduler.drive();
            chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
        }
        scheduler.workers().perform(chores);
    }

    /** There is one kind of memory, which is there at once; the call is refused as any other. */
    @Override
    public DeviceBuffer allocate(long sizeBytes) {
        OpenGroup.refuseIfTouched(this);
        synchronized (scheduler) {
            requireOpen("allocate");
        }
        return device.allocate(sizeBytes);
    }

    @Override
    public void copy(DeviceBuffer source, DeviceBuffer destination, long sizeBytes) {
        OpenGroup.refuseIfTouched(this);
        ArgumentChecks.copy(CpuBackend.CAPABILITIES, source, destination, sizeBytes);
        enqueueLocal("copy", source, destination, sizeBytes, (byte) 0);
    }

    @Override
    public void fill(DeviceBuffer destination, byte value) {
        OpenGroup.refuseIfTouched(this);
        ArgumentChecks.fill(CpuBackend.CAPABILITIES, destination);
        enqueueLocal("fill", null, destination, destination.sizeBytes(), value);
    }

    private void enqueueLocal(
            String operation,
            DeviceBuffer source,
            DeviceBuffer destination,
            long sizeBytes,
            byte value) {
        Chore chores;
        synchronized (scheduler) {
            requireOpen(operation);
            if (sizeBytes == 0) {
                return;
            }
            reserve();
            LocalWork work = spareWorks.isEmpty() ? new LocalWork(this) : spareWorks.poll();
            work.describe(source, destination, sizeBytes, value);
            push(EntryKind.LOCAL, work, 0);
            scheduler.touch(this);
            scheduler.drive();
            chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
        }
        scheduler.workers().perform(chores);
    }

    @Override
    public CompletionStage<Void> completion() {
        OpenGroup.refuseIfTouched(this);
        CompletableFuture<Void> future = new CompletableFuture<>();
        synchronized (scheduler) {
            requireOpen("completion");
            if (!failures.isEmpty()) {
                future.completeExceptionally(failures.getFirst().cause().forThisThread());
            } else if (isEmpty()) {
                future.complete(null);
            } else {
                waiters.add(new StageWaiter(enqueued(), failureCount, future));
            }
        }
        return future.minimalCompletionStage();
    }

    @Override
    public void close() {
        OpenGroup.refuseIfTouched(this);
        synchronized (scheduler) {
            if (!closed) {
                closed = true;
                device.close();
            }
        }
    }

    Scheduler scheduler() {
        return scheduler;
    }

    @Override
    public String toString() {
        return "stream " + number + " of device " + device.ordinal();
    }

    /** Waits for a ticket, or a failure that comes later than the wait. */
    private class StreamWaiter extends Waiter {
        private long ticket;
        private int failuresBefore;

        StreamWaiter(long ticket, int failuresBefore) {
            this.ticket = ticket;
            this.failuresBefore = failuresBefore;
        }

        final void useAgain(long newTicket, int newFailuresBefore) {
            useAgain();
            ticket = newTicket;
            failuresBefore = newFailuresBefore;
        }

        /** Whether a failure came after the wait began. */
        final boolean hasNewFailure() {
            return failureCount != failuresBefore;
        }

        @Override
        final boolean seemsOver() {
            return completed() >= ticket || hasNewFailure();
        }
    }

    /** Completes a stage, never on the thread that moved the data. */
    private final class StageWaiter extends StreamWaiter {
        private final CompletableFuture<Void> future;

        StageWaiter(long ticket, int failuresBefore, CompletableFuture<Void> future) {
            super(ticket, failuresBefore);
            this.future = future;
        }

        @Override
        Chore perform(long budgetBytes) {
            CollectiveException failure;
            synchronized (scheduler) {
                failure = hasNewFailure() ? lastFailure : null;
            }
            ForkJoinPool.commonPool()
                    .execute(() -> {
                        if (failure == null) {
                            future.complete(null);
                        } else {
                            future.completeExceptionally(failure.forThisThread());
                        }
                    });
            return null;
        }
    }
}
