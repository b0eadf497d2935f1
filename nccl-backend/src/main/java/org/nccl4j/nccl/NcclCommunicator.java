package org.nccl4j.nccl;

import java.lang.ref.Cleaner;
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
import org.nccl4j.collectives.NativeCallException;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.Registration;
import org.nccl4j.collectives.Traffic;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.collectives.WaitInterruptedException;
import org.nccl4j.collectives.spi.Durations;

/**
 * What a user holds of a rank. Nothing that outlives it refers to it, so that one that was dropped
 * without being closed can be found; streams do while they have its work.
 *
 * <p>Thread safety: as {@link Communicator} says; state is that of its {@link Member}.
 */
final class NcclCommunicator extends CheckedOperations implements Communicator {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    /** How long close() waits, beyond the timeout, for work that it has to give up. */
    private static final long ABORT_NANOS = TimeUnit.SECONDS.toNanos(1);

    /** NCCL's code for a bad argument: the call had no effect and the communicator is good. */
    private static final int INVALID_ARGUMENT = 4;

    /** Logs only: NCCL must never be called from a cleaner. */
    private static final Cleaner LEAKS = Cleaner.create();

    private final Clique clique;

    /** Of one call and of two, for operations that NCCL needs a group for; null while in use. */
    private NcclRecordedGroup one;

    private NcclRecordedGroup two;

    private NcclCommunicator(Member member) {
        super(member);
        this.clique = member.clique;
    }

    /** Hands a rank that NCCL has made to its user. */
    static NcclCommunicator open(Member member) {
        NcclCommunicator communicator = new NcclCommunicator(member);
        member.handOut(communicator);
        Throwable place = new Throwable(member.describe() + " was made here");
        LEAKS.register(communicator, () -> logIfLeaked(member, place));
        Watchdog.SHARED.watch(member.clique);
        return communicator;
    }

    private static void logIfLeaked(Member member, Throwable place) {
        synchronized (member.clique) {
            if (member.closed || member.clique.cause() != null) {
                return;
            }
        }
        LOG.log(
                System.Logger.Level.WARNING,
                member.describe()
                        + " was dropped without close(), so that what NCCL has allocated for it on"
                        + " device "
                        + member.device.ordinal()
                        + " (some hundred MB) stays until the process ends; it was made here; close"
                        + " communicators when their work is done",
                place);
    }

    static NcclCommunicator of(String operation, Communicator communicator) {
        if (communicator instanceof NcclCommunicator mine) {
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

    long operationTimeoutNanos() {
        return clique.timeoutNanos;
    }

    String describe() {
        return member.describe();
    }

    // ---- operations

    @Override
    void requireAllowed(String operation, NcclStream stream) {
        OpenGroup.refuseIfTouched(member);
        OpenGroup.refuseIfTouched(stream);
        stream.requireOpen(operation);
    }

    @Override
    void take(
            OperationKind kind,
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            ReduceOp op,
            int root,
            BlockLayout sendLayout,
            BlockLayout recvLayout,
            NcclStream stream) {
        if (kind.isPointToPoint() && root == member.rank) {
            throw OpenGroup.unpaired(member);
        }
        if (member.size == 1 || kind.needsGroup()) {
            takeAsGroup(
                    kind,
                    send,
                    recv,
                    countElements,
                    type,
                    op,
                    root,
                    sendLayout,
                    recvLayout,
                    stream);
            return;
        }
        if (member.isObstructed()) {
            member.requireUsable(kind.operation());
        }
        if (member.check != null) {
            Signature signature =
                    Signature.of(kind, countElements, type, op, root, sendLayout, recvLayout);
            member.check
                    .post(
                            member.nextNumber(kind, root),
                            signature,
                            GroupCall.isEmpty(kind, countElements, sendLayout, recvLayout))
                    .await(System.nanoTime());
        }
        boolean barrier = kind == OperationKind.BARRIER;
        if (countElements == 0 && !barrier) {
            member.begin(kind, 0, type, op, root, stream).ticket = 0;
            return;
        }
        long from = barrier ? member.scratchAddress() : GroupCall.address(send);
        long to = barrier ? member.scratchAddress() : GroupCall.address(recv);
        long count = barrier ? 1 : countElements;
        DataType unit = barrier ? DataType.INT32 : type;
        TimedCalls.Call timed = member.timed == null ? null : member.timed.begin(stream);
        CallRecord call = null;
        try {
            if (Thread.currentThread().isVirtual()) {
                // A first use waits for the peers in native code and would keep the carrier, on
                // which a peer's thread may be waiting to run.
                call =
                        PlatformThread.call(
                                () -> enqueue(kind, from, to, count, unit, op, root, stream));
            } else {
                call = enqueue(kind, from, to, count, unit, op, root, stream);
            }
        } finally {
            if (call == null && timed != null) {
                timed.giveUp();
            }
        }
        NcclMemory.use(send, stream);
        NcclMemory.use(recv, stream);
        if (timed != null) {
            timed.enqueued(call, null, null);
        }
        if (member.isObstructed()) {
            member.requireSound();
        }
        if (timed == null && FlightRecord.isEnabled()) {
            FlightRecord.commit(member, call, null, null);
        }
    }

    private void takeAsGroup(
            OperationKind kind,
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            ReduceOp op,
            int root,
            BlockLayout sendLayout,
            BlockLayout recvLayout,
            NcclStream stream) {
        // Taken away while it is used: a second thread, which is about to be refused, shall not
        // write into it.
        NcclRecordedGroup group = one;
        one = null;
        if (group == null) {
            group = NcclRecordedGroup.reusable(this, 1);
        }
        try {
            group.call(0)
                    .set(
                            kind,
                            send,
                            recv,
                            countElements,
                            type,
                            op,
                            root,
                            sendLayout,
                            recvLayout,
                            stream);
            group.issueOnce();
        } finally {
            one = group;
        }
    }

    /** One call of NCCL's and none of CUDA's: no lock, no allocation, no time taken. */
    private CallRecord enqueue(
            OperationKind kind,
            long send,
            long recv,
            long count,
            DataType type,
            ReduceOp op,
            int root,
            NcclStream stream) {
        member.attach();
        if (!member.enter()) {
            throw member.refusal(kind.operation());
        }
        CallRecord call = member.begin(kind, count, type, op, root, stream);
        try {
            int code = member.nonBlocking ? launch(call, send, recv) : call(call, send, recv);
            if (code != NcclLibrary.SUCCESS) {
                requireSuccess(call, code);
            }
            stream.enqueued(this);
            call.ticket = stream.issued();
            return call;
        } catch (NativeCallException e) {
            throw failed(call, e);
        } finally {
            member.leave();
        }
    }

    private int call(CallRecord call, long send, long recv) {
        return NativeCalls.enqueue(
                call.kind,
                send,
                recv,
                call.countElements,
                call.type,
                member.preMulSums.operator(call.reduction),
                call.root,
                null,
                null,
                member,
                call.stream.address());
    }

    /** As {@link #call}, which NCCL goes on with after it has returned. */
    private int launch(CallRecord call, long send, long recv) {
        call.stream.launchBegins();
        try {
            int code = call(call, send, recv);
            return code == INVALID_ARGUMENT ? code : member.settleLaunch();
        } finally {
            call.stream.launchEnds();
        }
    }

    /** Returns only if the call is still going on and gets done. */
    private void requireSuccess(CallRecord call, int code) {
        int last = code;
        if (last == NcclLibrary.IN_PROGRESS) {
            // NCCL_COMM_BLOCKING=0 makes communicators non-blocking that were not asked to be.
            last = member.settleLaunch();
            if (last == NcclLibrary.SUCCESS) {
                return;
            }
        }
        throw NcclLibrary.failed(call.kind.function(), last, Wording.doing(member, call));
    }

    /** What a call that failed throws, having undone it or failed the communicator. */
    private CollectiveException failed(CallRecord call, NativeCallException failure) {
        CollectiveException cause = clique.cause();
        if (cause != null) {
            // Whoever failed it made the call return.
            return cause.forThisThread();
        }
        if (failure.code() == INVALID_ARGUMENT) {
            member.takeBack(call);
        } else {
            clique.fail(failure);
        }
        return failure;
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
            NcclStream stream) {
        if ((destination == member.rank) != (source == member.rank)) {
            throw OpenGroup.unpaired(member);
        }
        NcclRecordedGroup group = two;
        two = null;
        if (group == null) {
            group = NcclRecordedGroup.reusable(this, 2);
        }
        try {
            group.call(0)
                    .set(
                            OperationKind.SEND,
                            send,
                            null,
                            sendCountElements,
                            type,
                            null,
                            destination,
                            null,
                            null,
                            stream);
            group.call(1)
                    .set(
                            OperationKind.RECV,
                            null,
                            recv,
                            recvCountElements,
                            type,
                            null,
                            source,
                            null,
                            null,
                            stream);
            group.issueOnce();
        } finally {
            two = group;
        }
    }

    @Override
    public Registration register(DeviceBuffer buffer) {
        OpenGroup.refuseIfTouched(member);
        return NcclRegistration.open(member, buffer);
    }

    // ---- host calls

    @Override
    public Pending<Optional<Communicator>> split(int color, int key) {
        requireColor(color);
        OpenGroup.refuseIfTouched(member);
        HostCall call =
                HostCall.post(List.of(this), OperationKind.SPLIT, List.of(new long[] {color, key}));
        return new HostPending<>(
                call,
                () -> call.isSplit() ? Optional.<Communicator>ofNullable(call.child(0)) : null);
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
                HostCall.post(
                        List.of(this),
                        OperationKind.EXCHANGE_COUNTS,
                        List.of(sendCountsElements.clone()));
        return new HostPending<>(
                call,
                () -> {
                    long[][] rows = call.counts();
                    return rows == null ? null : rows[0];
                });
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
        return member.device;
    }

    @Override
    public CommunicatorConfig config() {
        return member.config;
    }

    @Override
    public Traffic traffic() {
        throw new UnsupportedException(
                member.describe()
                        + " has no traffic counters: NCCL does not tell what it sends; ask"
                        + " Capabilities.trafficCounters first");
    }

    @Override
    public CommunicatorStatus status() {
        synchronized (clique) {
            if (member.closed && !member.abortedBeforeClose) {
                return new CommunicatorStatus.Closed();
            }
            CollectiveException cause = clique.cause();
            if (clique.isAborted()) {
                return new CommunicatorStatus.Aborted(cause);
            }
            if (cause != null) {
                return new CommunicatorStatus.Failed(cause);
            }
            return member.closing
                    ? new CommunicatorStatus.Closing()
                    : new CommunicatorStatus.Ready();
        }
    }

    @Override
    public void abort(Duration timeout) {
        long budgetNanos = Math.max(0, Durations.saturatedNanos(timeout));
        long startNanos = System.nanoTime();
        synchronized (clique) {
            if (member.closed) {
                return;
            }
        }
        clique.fail(Wording.aborted(member), budgetNanos / 2);
        clique.requestAbort(budgetNanos / 2);
        switch (Waiting.until(clique::isAborted, startNanos, budgetNanos)) {
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
                                    + Durations.text(Duration.ofNanos(budgetNanos))
                                    + ": "
                                    + clique.abortInWords()
                                    + "; call it again to go on waiting",
                            false);
        }
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
    static void closeAll(List<NcclCommunicator> communicators) {
        communicators.forEach(NcclCommunicator::requireNoRegistrations);
        CollectiveException first = null;
        List<NcclCommunicator> left = communicators;
        while (!left.isEmpty()) {
            List<NcclCommunicator> mine = new ArrayList<>();
            List<NcclCommunicator> others = new ArrayList<>();
            for (NcclCommunicator communicator : left) {
                if (!communicator.beginClosing()) {
                    others.add(communicator);
                    continue;
                }
                mine.add(communicator);
                try {
                    first = join(first, communicator.finishWork());
                } catch (WaitInterruptedException e) {
                    mine.forEach(NcclCommunicator::reopen);
                    throw e;
                }
            }
            for (NcclCommunicator communicator : mine) {
                first = join(first, communicator.clique.leave(communicator.member));
            }
            left = new ArrayList<>();
            try {
                for (NcclCommunicator communicator : others) {
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

    /** NCCL wants them to end first; those of a communicator that failed end with its abort. */
    private void requireNoRegistrations() {
        if (member.registrations.isEmpty() || clique.cause() != null) {
            return;
        }
        throw new InvalidArgumentException(
                "close of "
                        + member.describe()
                        + ": close its registrations first: "
                        + member.registrations
                        + "; nothing has changed");
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
        synchronized (clique) {
            if (member.closed || member.closing) {
                return false;
            }
            member.closing = true;
            member.obstruct(Member.CLOSING);
            return true;
        }
    }

    /** Takes an interrupted {@link #finishWork} back. */
    private void reopen() {
        synchronized (clique) {
            member.closing = false;
            member.clear(Member.CLOSING);
        }
    }

    /**
     * Waits until it is closed.
     *
     * @return false if the other thread was interrupted and has left it open
     */
    private boolean awaitOtherCloser() {
        // The other thread has begun earlier, and no longer than that either.
        Waiting.Outcome outcome =
                Waiting.until(
                        () -> {
                            synchronized (clique) {
                                return member.closed || !member.closing;
                            }
                        },
                        System.nanoTime(),
                        clique.timeoutNanos + ABORT_NANOS);
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
        synchronized (clique) {
            return member.closed;
        }
    }

    /**
     * Waits until none of this rank's work is left, if need be by giving it up.
     *
     * @return the failure of work that was waiting, or null
     * @throws WaitInterruptedException if the thread was interrupted; {@link #reopen} then
     */
    private CollectiveException finishWork() {
        long startNanos = System.nanoTime();
        boolean waiting = clique.cause() == null && !isIdle();
        Waiting.Outcome outcome = Waiting.Outcome.OVER;
        if (waiting) {
            Watchdog.SHARED.hurry();
            try {
                outcome =
                        Waiting.until(
                                () -> isIdle() || clique.cause() != null,
                                startNanos,
                                clique.timeoutNanos);
            } finally {
                Watchdog.SHARED.calm();
            }
        }
        if (outcome == Waiting.Outcome.OUT_OF_TIME) {
            clique.fail(Wording.closeTimeout(member));
        }
        CollectiveException cause = clique.cause();
        if (cause == null) {
            if (outcome == Waiting.Outcome.INTERRUPTED) {
                throw interrupted();
            }
            return null;
        }
        CollectiveException failure = waiting ? cause : null;
        clique.requestAbort(ABORT_NANOS / 2);
        switch (Waiting.until(clique::isAborted, startNanos, clique.timeoutNanos + ABORT_NANOS)) {
            case OVER -> {}
            case INTERRUPTED -> throw interrupted();
            case OUT_OF_TIME -> failure = join(clique.stillMoving(member), failure);
        }
        return failure;
    }

    private boolean isIdle() {
        synchronized (clique) {
            if (!member.hostCalls.isEmpty()) {
                return false;
            }
        }
        return !member.isInside() && !member.hasWork();
    }

    private WaitInterruptedException interrupted() {
        return new WaitInterruptedException(
                "interrupted while closing "
                        + member.describe()
                        + ", whose work is not complete; it is still open, close it again");
    }

    @Override
    public String toString() {
        return member.describe();
    }
}
