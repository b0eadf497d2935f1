package org.nccl4j.cpu;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.Traffic;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.collectives.WaitInterruptedException;
import org.nccl4j.collectives.spi.Durations;

/**
 * What a user holds of a rank. Nothing that outlives it refers to it, so that one that was dropped
 * without being closed can be found.
 *
 * <p>Thread safety: as {@link Communicator} says; state is that of its {@link Member}.
 */
final class CpuCommunicator extends CheckedOperations implements Communicator {
    /** How long close() waits, beyond the timeout, for work that it has to give up. */
    private static final long ABORT_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final Clique clique;
    private final Scheduler scheduler;

    private CpuCommunicator(Member member) {
        super(member);
        this.clique = member.clique;
        this.scheduler = clique.scheduler;
    }

    /** The communicators of a new clique, in rank order. Lock held. */
    static List<CpuCommunicator> open(Clique clique) {
        Throwable place = new Throwable("communicator '" + clique.name + "' was made here");
        List<CpuCommunicator> communicators = new ArrayList<>(clique.size);
        for (Member member : clique.members) {
            CpuCommunicator communicator = new CpuCommunicator(member);
            member.creation = clique.scheduler.watchdog().creation(communicator, member, place);
            communicators.add(communicator);
        }
        clique.scheduler.watchdog().watch(clique);
        return communicators;
    }

    static CpuCommunicator of(String operation, Communicator communicator) {
        if (communicator instanceof CpuCommunicator mine) {
            return mine;
        }
        throw new InvalidArgumentException(
                operation
                        + ": the communicator is "
                        + (communicator == null ? "null" : "of another backend")
                        + "; use those that this backend made");
    }

    Member member() {
        return member;
    }

    // ---- operations

    @Override
    void requireAllowed(String operation, CpuStream stream) {
        OpenGroup.refuseIfTouched(member);
        OpenGroup.refuseIfTouched(stream);
    }

    @Override
    void take(
            OperationKind kind,
            boolean sender,
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            ReduceOp op,
            int root,
            BlockLayout sendLayout,
            BlockLayout recvLayout,
            CpuStream stream) {
        if (kind == OperationKind.SEND_RECV && root == member.rank) {
            throw OpenGroup.unpaired(member);
        }
        Chore chores;
        synchronized (scheduler) {
            String operation = kind.operation(sender);
            member.requireUsable(operation);
            stream.requireOpen(operation);
            Batch batch = member.takeBatch();
            Part part = member.addPart(batch);
            part.describe(
                    kind,
                    sender,
                    send,
                    recv,
                    countElements,
                    type,
                    op,
                    root,
                    sendLayout,
                    recvLayout,
                    stream);
            part.prepare();
            CpuMemory.use(part.send, part.recv);
            chores = enqueue(batch, stream);
        }
        scheduler.workers().perform(chores);
    }

    @Override
    void takeSendRecv(
            DeviceBuffer send,
            long sendCountElements,
            int destination,
            DeviceBuffer recv,
            long recvCountElements,
            int source,
            DataType type,
            CpuStream stream) {
        if ((destination == member.rank) != (source == member.rank)) {
            throw OpenGroup.unpaired(member);
        }
        Chore chores;
        synchronized (scheduler) {
            member.requireUsable("sendRecv");
            stream.requireOpen("sendRecv");
            Batch batch = member.takeBatch();
            Part out = member.addPart(batch);
            Part in = member.addPart(batch);
            out.describe(
                    OperationKind.SEND_RECV,
                    true,
                    send,
                    null,
                    sendCountElements,
                    type,
                    null,
                    destination,
                    null,
                    null,
                    stream);
            in.describe(
                    OperationKind.SEND_RECV,
                    false,
                    null,
                    recv,
                    recvCountElements,
                    type,
                    null,
                    source,
                    null,
                    null,
                    stream);
            out.prepare();
            in.prepare();
            CpuMemory.use(out.send, in.recv);
            chores = enqueue(batch, stream);
        }
        scheduler.workers().perform(chores);
    }

    /** Lock held. */
    private Chore enqueue(Batch batch, CpuStream stream) {
        batch.addStream(stream);
        scheduler.enqueue(batch);
        scheduler.drive();
        return scheduler.takeChores(Scheduler.SMALL_BYTES);
    }

    // ---- host calls

    @Override
    public Pending<Optional<Communicator>> split(int color, int key) {
        requireColor(color);
        OpenGroup.refuseIfTouched(member);
        HostCall call = post(List.of(this), OperationKind.SPLIT, List.of(new long[] {color, key}));
        return splitPending(call, member.rank);
    }

    static Pending<Optional<Communicator>> splitPending(HostCall call, int rank) {
        return new HostPending<>(call, () -> Optional.ofNullable(call.child(rank)));
    }

    static void requireColor(int color) {
        if (color < NO_COLOR) {
            throw new InvalidArgumentException(
                    "split: color is "
                            + color
                            + ", must be at least 0, or Communicator.NO_COLOR to join no group;"
                            + " nothing has changed");
        }
    }

    @Override
    public Pending<long[]> exchangeCounts(long[] sendCountsElements) {
        requireCounts(sendCountsElements);
        OpenGroup.refuseIfTouched(member);
        HostCall call =
                post(
                        List.of(this),
                        OperationKind.EXCHANGE_COUNTS,
                        List.of(sendCountsElements.clone()));
        int rank = member.rank;
        return new HostPending<>(call, () -> call.countsFor(rank));
    }

    void requireCounts(long[] counts) {
        boolean wrong = counts == null || counts.length != clique.size;
        for (int i = 0; !wrong && i < counts.length; i++) {
            wrong = counts[i] < 0;
        }
        if (wrong) {
            throw new InvalidArgumentException(
                    "exchangeCounts on "
                            + member.describe()
                            + ": needs "
                            + clique.size
                            + " counts of at least 0, got "
                            + Arrays.toString(counts)
                            + "; nothing has changed");
        }
    }

    /** Posts a host call for ranks of one communicator. */
    static HostCall post(
            List<CpuCommunicator> communicators, OperationKind kind, List<long[]> given) {
        Scheduler scheduler = communicators.getFirst().scheduler;
        HostCall call = null;
        Chore chores;
        synchronized (scheduler) {
            for (CpuCommunicator communicator : communicators) {
                communicator.member.requireUsable(kind.operation());
            }
            for (int i = 0; i < given.size(); i++) {
                call = scheduler.post(communicators.get(i).member, kind, given.get(i));
            }
            chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
        }
        scheduler.workers().perform(chores);
        return call;
    }

    // ---- life

    @Override
    public int rank() {
        return member.rank;
    }

    @Override
    public int size() {
        return clique.size;
    }

    @Override
    public Device device() {
        return member.device();
    }

    @Override
    public CommunicatorConfig config() {
        return member.seat.config();
    }

    @Override
    public Traffic traffic() {
        return clique.traffic(member.rank);
    }

    @Override
    public CommunicatorStatus status() {
        synchronized (scheduler) {
            if (member.closed && !member.abortedBeforeClose) {
                return new CommunicatorStatus.Closed();
            }
            if (clique.aborted) {
                return new CommunicatorStatus.Aborted(clique.cause);
            }
            if (clique.cause != null) {
                return new CommunicatorStatus.Failed(clique.cause);
            }
            return member.isClosing()
                    ? new CommunicatorStatus.Closing()
                    : new CommunicatorStatus.Ready();
        }
    }

    @Override
    public void abort(Duration timeout) {
        long budgetNanos = Durations.saturatedNanos(timeout);
        long startNanos = System.nanoTime();
        Chore chores;
        synchronized (scheduler) {
            if (member.closed) {
                return;
            }
            clique.abortRequested = true;
            if (clique.cause == null) {
                scheduler.fail(clique, Wording.aborted(member));
            } else {
                scheduler.abortIfDue(clique);
            }
            chores = scheduler.takeChores(0);
        }
        scheduler.workers().perform(chores);
        switch (awaitAbort(startNanos, budgetNanos)) {
            case OVER -> {}
            case INTERRUPTED ->
                    throw new WaitInterruptedException(
                            "interrupted while waiting for the abort of "
                                    + member.describe()
                                    + "; the abort goes on, call it again to wait for it");
            case OUT_OF_TIME ->
                    throw new CollectiveTimeoutException(
                            "the abort of "
                                    + member.describe()
                                    + " did not come through within "
                                    + Durations.text(timeout)
                                    + ": data of its operations is still being moved; call it again"
                                    + " to go on waiting",
                            false);
        }
    }

    private Workers.Outcome awaitAbort(long startNanos, long budgetNanos) {
        Waiter waiter =
                new Waiter() {
                    @Override
                    boolean seemsOver() {
                        return clique.aborted;
                    }
                };
        return scheduler.workers().await(waiter, clique.waiters, startNanos, budgetNanos);
    }

    @Override
    public void close() {
        OpenGroup.refuseIfTouched(member);
        closeAll(List.of(this));
    }

    /**
     * Closes ranks that one thread drives: first all finish their work, then all leave. Ranks that
     * another thread is closing are waited for last, so that two threads that close the same ranks
     * in different orders do not wait for each other.
     */
    static void closeAll(List<CpuCommunicator> communicators) {
        CollectiveException first = null;
        List<CpuCommunicator> left = communicators;
        while (!left.isEmpty()) {
            List<CpuCommunicator> mine = new ArrayList<>();
            List<CpuCommunicator> others = new ArrayList<>();
            for (CpuCommunicator communicator : left) {
                if (!communicator.beginClosing()) {
                    others.add(communicator);
                    continue;
                }
                mine.add(communicator);
                try {
                    first = join(first, communicator.finishWork());
                } catch (WaitInterruptedException e) {
                    mine.forEach(CpuCommunicator::reopen);
                    throw e;
                }
            }
            for (CpuCommunicator communicator : mine) {
                first = join(first, communicator.leave());
            }
            left = new ArrayList<>();
            try {
                for (CpuCommunicator communicator : others) {
                    if (!communicator.awaitOtherCloser()) {
                        left.add(communicator);
                    }
                }
            } catch (WaitInterruptedException | CollectiveTimeoutException e) {
                if (first != null) {
                    e.addSuppressed(first);
                }
                throw e;
            }
        }
        if (first != null) {
            throw first.forThisThread();
        }
    }

    /** Ranks of one communicator fail of the same cause, which is told once. */
    private static CollectiveException join(CollectiveException first, CollectiveException next) {
        if (first == null) {
            return next;
        }
        if (next != null && next != first) {
            first.addSuppressed(next);
        }
        return first;
    }

    /** Whether the caller closes it: not if it is closed or another thread closes it. */
    private boolean beginClosing() {
        synchronized (scheduler) {
            if (member.closed || member.isClosing()) {
                return false;
            }
            member.setClosing(true);
            return true;
        }
    }

    /** Takes an interrupted {@link #finishWork} back. */
    private void reopen() {
        Chore chores;
        synchronized (scheduler) {
            member.setClosing(false);
            clique.waiters.wake(scheduler);
            chores = scheduler.takeChores(0);
        }
        scheduler.workers().perform(chores);
    }

    /**
     * Waits until it is closed.
     *
     * @return false if the other thread was interrupted and has left it open
     */
    private boolean awaitOtherCloser() {
        Waiter waiter =
                new Waiter() {
                    @Override
                    boolean isOver() {
                        return member.closed || !member.isClosing();
                    }

                    @Override
                    boolean seemsOver() {
                        // Not to be read without the lock, and not worth a volatile field.
                        return false;
                    }
                };
        // The other thread has begun earlier, and no longer than that either.
        Workers.Outcome outcome =
                scheduler
                        .workers()
                        .await(waiter, clique.waiters, System.nanoTime(), closingNanos());
        switch (outcome) {
            case OVER -> {}
            case INTERRUPTED ->
                    throw new WaitInterruptedException(
                            "interrupted while waiting for another thread that is closing "
                                    + member.describe()
                                    + "; close it again to go on waiting");
            case OUT_OF_TIME ->
                    throw new CollectiveTimeoutException(
                            "another thread that is closing "
                                    + member.describe()
                                    + " was not done within "
                                    + Durations.text(clique.operationTimeout)
                                    + "; close it again to go on waiting",
                            false);
        }
        synchronized (scheduler) {
            return member.closed;
        }
    }

    private long closingNanos() {
        return clique.timeoutNanos + ABORT_NANOS;
    }

    /**
     * Waits until none of this rank's work is left, if need be by giving it up.
     *
     * @return the failure of work that was waiting, or null
     * @throws WaitInterruptedException if the thread was interrupted; {@link #reopen} then
     */
    private CollectiveException finishWork() {
        long startNanos = System.nanoTime();
        boolean waiting;
        Chore chores;
        synchronized (scheduler) {
            waiting = clique.cause == null && !member.isIdle();
            chores = requestAbortIfFailed();
        }
        scheduler.workers().perform(chores);
        Waiter idle =
                new Waiter() {
                    @Override
                    boolean seemsOver() {
                        return member.isIdle() || clique.cause != null;
                    }
                };
        Workers.Outcome outcome =
                scheduler.workers().await(idle, clique.waiters, startNanos, clique.timeoutNanos);
        CollectiveException failure;
        boolean aborting;
        synchronized (scheduler) {
            if (outcome == Workers.Outcome.OUT_OF_TIME
                    && clique.cause == null
                    && !member.isIdle()) {
                scheduler.fail(clique, Wording.timeout(member.oldest));
            }
            chores = requestAbortIfFailed();
            failure = waiting ? clique.cause : null;
            aborting = clique.cause != null && !clique.aborted;
        }
        scheduler.workers().perform(chores);
        if (outcome != Workers.Outcome.INTERRUPTED && aborting) {
            outcome = awaitAbort(startNanos, closingNanos());
            if (outcome == Workers.Outcome.OUT_OF_TIME) {
                failure = join(stillMoving(), failure);
            }
        }
        if (outcome == Workers.Outcome.INTERRUPTED) {
            throw new WaitInterruptedException(
                    "interrupted while closing "
                            + member.describe()
                            + ", whose work is not complete; it is still open, close it again");
        }
        return failure;
    }

    private CollectiveTimeoutException stillMoving() {
        return new CollectiveTimeoutException(
                member.describe()
                        + " is closed, but its work could not be given up within "
                        + Durations.text(clique.operationTimeout)
                        + ": data of its operations is still being moved; keep its buffers and"
                        + " arenas until their streams are done",
                true);
    }

    private Chore requestAbortIfFailed() {
        if (clique.cause != null) {
            clique.abortRequested = true;
            scheduler.abortIfDue(clique);
        }
        return scheduler.takeChores(0);
    }

    /**
     * Leaves the clique for good. After {@link #finishWork}.
     *
     * @return what is missing in the trace, or null
     */
    private CollectiveException leave() {
        CollectiveException failure = null;
        try {
            member.closeTrace();
        } catch (UnsupportedException e) {
            failure = e;
        }
        Chore chores;
        synchronized (scheduler) {
            scheduler.leave(member);
            chores = scheduler.takeChores(0);
        }
        scheduler.workers().perform(chores);
        return failure;
    }

    @Override
    public String toString() {
        return member.describe();
    }
}
