package org.nccl4j.nccl;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import org.nccl4j.collectives.CollectiveException;

/**
 * A split or an exchange of counts of ranks that one thread drives. NCCL's split returns when all
 * ranks have called it, so it runs on a thread of its own; an exchange is enqueued on a stream, at
 * once if nothing is before it. They keep the order of the calls: each member has a queue, and a
 * call that heads the queues of all its members is under way.
 *
 * <p>Thread safety: the queues are guarded by the clique's monitor; whether it is done may be asked
 * from any thread.
 */
final class HostCall {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    private final Clique clique;
    private final List<NcclCommunicator> communicators;
    private final List<Member> members;
    private final OperationKind kind;
    private final long number;

    /** What each member gave: color and key, or its counts. */
    private final List<long[]> given;

    /** What the consistency check compares; empty without one. */
    private final List<ConsistencyCheck.Posted> posted = new ArrayList<>(0);

    /** A split's communicators, null for ranks that join none. */
    private final NcclCommunicator[] children;

    /** An exchange's outcomes, once all are enqueued. */
    private volatile List<CountExchange.Result> results;

    private volatile boolean done;

    /** Whether it has come to the head of all queues; guarded by the clique's monitor. */
    private boolean begun;

    /** Since when it has waited for other ranks; 0 while it does not. */
    private volatile long sinceNanos;

    private HostCall(
            List<NcclCommunicator> communicators,
            OperationKind kind,
            long number,
            List<long[]> given) {
        this.communicators = List.copyOf(communicators);
        this.members = communicators.stream().map(NcclCommunicator::member).toList();
        this.clique = members.getFirst().clique;
        this.kind = kind;
        this.number = number;
        this.given = given;
        this.children = new NcclCommunicator[members.size()];
    }

    /** Makes the call for ranks of one clique; by the thread that drives them. */
    static HostCall post(
            List<NcclCommunicator> communicators, OperationKind kind, List<long[]> given) {
        for (NcclCommunicator each : communicators) {
            each.member().requireOpen(kind.operation());
        }
        long number = 0;
        for (NcclCommunicator each : communicators) {
            number = each.member().collectives;
        }
        HostCall call = new HostCall(communicators, kind, number, given);
        List<Member> members = call.members;
        call.tellOthers();
        for (int i = 0; i < members.size(); i++) {
            Member member = members.get(i);
            member.collectives++;
            if (kind == OperationKind.SPLIT) {
                // For messages; an exchange is noted when it is enqueued.
                member.begin(kind, 0, null, null, (int) given.get(i)[0], null, number);
            }
        }
        boolean first;
        synchronized (call.clique) {
            for (int i = 0; i < members.size(); i++) {
                if (kind == OperationKind.SPLIT) {
                    call.clique.splitPosted(number, (int) given.get(i)[0]);
                }
                members.get(i).hostCalls.add(call);
                members.get(i).obstruct(Member.HOST_CALL);
            }
            first = call.beginIfFirst();
        }
        if (first) {
            List<CountExchange.Result> slots =
                    kind == OperationKind.EXCHANGE_COUNTS && call.posted.isEmpty()
                            ? call.tryTakeSlots()
                            : null;
            if (slots == null) {
                call.startThread();
            } else {
                call.enqueueHere(slots);
            }
        }
        return call;
    }

    List<Member> members() {
        return members;
    }

    OperationKind kind() {
        return kind;
    }

    long number() {
        return number;
    }

    Clique clique() {
        return clique;
    }

    /** Whether it has been under way for longer than it may. */
    boolean isOverdue(long nowNanos) {
        long since = sinceNanos;
        return since != 0 && nowNanos - since >= clique.timeoutNanos;
    }

    /** Clique's monitor held. */
    private boolean beginIfFirst() {
        if (begun) {
            return false;
        }
        for (Member member : members) {
            if (member.hostCalls.peek() != this) {
                return false;
            }
        }
        begun = true;
        sinceNanos = System.nanoTime();
        return true;
    }

    private void tellOthers() {
        for (Member member : members) {
            if (member.check != null) {
                posted.add(member.check.post(number, Signature.hostCall(kind), false));
            }
        }
    }

    private void startThread() {
        NativeThread.start(
                kind.operation() + "-" + clique.name, members.getFirst().device, this::run);
    }

    /** On the caller's thread, or on one that it waits for. */
    private void enqueueHere(List<CountExchange.Result> slots) {
        try {
            PlatformThread.run(() -> exchange(slots));
        } finally {
            finish();
        }
    }

    private void run() {
        try {
            requireSound();
            posted.forEach(call -> call.await(sinceNanos));
            if (kind == OperationKind.SPLIT) {
                split();
            } else {
                exchange(awaitSlots());
            }
        } catch (RuntimeException | Error e) {
            clique.fail(Wording.failure(members.getFirst(), kind.operation() + " on", e));
        } finally {
            finish();
        }
    }

    private void finish() {
        List<HostCall> next = new ArrayList<>();
        synchronized (clique) {
            for (Member member : members) {
                member.hostCalls.remove(this);
                if (member.hostCalls.isEmpty()) {
                    member.clear(Member.HOST_CALL);
                } else if (member.hostCalls.peek().beginIfFirst()) {
                    next.add(member.hostCalls.peek());
                }
            }
        }
        next.forEach(HostCall::startThread);
    }

    // ---- exchange of counts

    /** A slot for each member, or null if one has none to give. */
    private List<CountExchange.Result> tryTakeSlots() {
        List<CountExchange.Result> taken = new ArrayList<>();
        for (int i = 0; i < members.size(); i++) {
            CountExchange.Result slot = members.get(i).counts.tryTake(given.get(i));
            if (slot == null) {
                taken.forEach(CountExchange.Result::release);
                return null;
            }
            taken.add(slot);
        }
        return taken;
    }

    /** The watchdog fails the communicator when this call is overdue, which ends the wait. */
    private List<CountExchange.Result> awaitSlots() {
        List<CountExchange.Result> taken = new ArrayList<>();
        Waiting.untilUninterruptibly(
                () -> {
                    List<CountExchange.Result> slots = tryTakeSlots();
                    if (slots != null) {
                        taken.addAll(slots);
                    }
                    return slots != null || clique.cause() != null;
                },
                System.nanoTime(),
                Long.MAX_VALUE);
        if (taken.isEmpty()) {
            throw clique.cause().forThisThread();
        }
        return taken;
    }

    /** Enqueues it, on a platform thread. */
    private void exchange(List<CountExchange.Result> slots) {
        List<GroupCall> calls = new ArrayList<>();
        for (int i = 0; i < members.size(); i++) {
            CountExchange.Slot slot = slots.get(i).slot();
            calls.add(
                    GroupCall.exchange(
                            communicators.get(i),
                            members.get(i).counts.stream(),
                            slot.sendAddress(),
                            slot.recvAddress(),
                            number));
        }
        NcclRecordedGroup.of(calls).issueAsHostCall();
        slots.forEach(CountExchange.Result::enqueued);
        results = slots;
    }

    // ---- split

    private void split() {
        awaitNoWork();
        List<MemorySegment> cells = new ArrayList<>();
        for (int i = 0; i < members.size(); i++) {
            cells.add(clique.arena.allocate(ValueLayout.ADDRESS));
        }
        try {
            members.forEach(Member::managementBegins);
            try {
                requireSound();
                splitNatively(cells);
            } finally {
                members.forEach(Member::managementEnds);
            }
            // The parent may have failed meanwhile, so that nobody gets any.
            requireSound();
            for (int i = 0; i < members.size(); i++) {
                children[i] = child(i, handle(cells.get(i)));
            }
            done = true;
        } catch (RuntimeException | Error e) {
            clique.fail(Wording.failure(members.getFirst(), kind.operation() + " on", e));
            awaitEndOfSplit();
            abortChildren(cells, e);
            throw e;
        }
    }

    /** NCCL may still be at it, and fills cells when nobody waits for it any more. */
    private void awaitEndOfSplit() {
        if (clique.abortOnFailure) {
            // The abort ends NCCL's own thread first.
            clique.awaitAborted();
            return;
        }
        for (Member member : members) {
            try {
                member.settle();
            } catch (CollectiveException e) {
                // It cannot be asked; what it may still make belongs to the abort that is to come.
                LOG.log(
                        System.Logger.Level.WARNING,
                        "NCCL does not tell whether " + doing(member) + " goes on",
                        e);
            }
        }
    }

    /** NCCL may deadlock if a split comes while operations of the communicator are under way. */
    private void awaitNoWork() {
        if (members.stream().noneMatch(Member::hasWork)) {
            return;
        }
        // They have deadlines of their own.
        sinceNanos = 0;
        Watchdog.SHARED.hurry();
        try {
            Waiting.untilUninterruptibly(
                    () -> members.stream().noneMatch(Member::hasWork) || clique.cause() != null,
                    System.nanoTime(),
                    Long.MAX_VALUE);
        } finally {
            Watchdog.SHARED.calm();
        }
        sinceNanos = System.nanoTime();
    }

    private void requireSound() {
        CollectiveException cause = clique.cause();
        if (cause != null) {
            throw cause;
        }
    }

    private static long handle(MemorySegment cell) {
        return cell.get(ValueLayout.JAVA_LONG, 0);
    }

    /** What NCCL has made of a split that failed; also where only some ranks got a communicator. */
    private void abortChildren(List<MemorySegment> cells, Throwable failure) {
        List<Aborting.Handle> handles = new ArrayList<>();
        for (int i = 0; i < members.size(); i++) {
            if (children[i] != null) {
                Clique part = children[i].member().clique;
                part.fail(Wording.failure(children[i].member(), "making", failure));
                part.requestAbort(0);
            } else if (handle(cells.get(i)) != 0) {
                Member parent = members.get(i);
                handles.add(
                        new Aborting.Handle(
                                handle(cells.get(i)),
                                parent.device,
                                "a part of " + parent.describe() + ", from a split that failed,"));
            }
        }
        Aborting.start(clique.name + "-split", handles).join();
    }

    private void splitNatively(List<MemorySegment> cells) {
        int end = NcclLibrary.SUCCESS;
        boolean grouped = members.size() > 1;
        if (grouped) {
            requireStarted(NcclLibrary.groupStart());
        }
        try {
            for (int i = 0; i < members.size(); i++) {
                Member member = members.get(i);
                int color = (int) given.get(i)[0];
                NcclLibrary.commSplit(
                        member.comm(),
                        color,
                        (int) given.get(i)[1],
                        cells.get(i),
                        NativeConfig.of(
                                member.config, clique.partName(number, color), clique.arena),
                        doing(member));
            }
        } finally {
            if (grouped) {
                end = NcclLibrary.groupEnd();
            }
        }
        if (end != NcclLibrary.SUCCESS && end != NcclLibrary.IN_PROGRESS) {
            throw NcclLibrary.failed("ncclGroupEnd", end, doing(members.getFirst()));
        }
        for (Member member : members) {
            int state = member.settle();
            if (state != NcclLibrary.SUCCESS) {
                throw NcclLibrary.failed("ncclCommSplit", state, doing(member));
            }
        }
    }

    private void requireStarted(int code) {
        if (code != NcclLibrary.SUCCESS) {
            throw NcclLibrary.failed("ncclGroupStart", code, doing(members.getFirst()));
        }
    }

    private String doing(Member member) {
        return kind.operation() + " #" + number + " of " + member.describe();
    }

    private NcclCommunicator child(int index, long handle) {
        Member parent = members.get(index);
        int color = (int) given.get(index)[0];
        if (color < 0) {
            clique.part(number, color, 0, parent.config);
            return null;
        }
        int partSize = NcclLibrary.commCount(handle, doing(parent));
        int rank = NcclLibrary.commUserRank(handle, doing(parent));
        Clique part = clique.part(number, color, partSize, parent.config);
        Member child = part.add(rank, parent.device, parent.config);
        child.made(handle);
        boolean furnished = false;
        try {
            child.openResources();
            furnished = true;
        } finally {
            if (!furnished) {
                child.takeHandle();
                child.closeResources();
                part.remove(child);
            }
        }
        return NcclCommunicator.open(child);
    }

    /** Whether a split is done. */
    boolean isSplit() {
        return done;
    }

    /** The communicator that a member got, or null. */
    NcclCommunicator child(int index) {
        return children[index];
    }

    /** A row per member, or null if they are not all there. */
    long[][] counts() {
        List<CountExchange.Result> now = results;
        if (now == null) {
            return null;
        }
        long[][] rows = new long[now.size()][];
        for (int i = 0; i < rows.length; i++) {
            rows[i] = now.get(i).counts();
            if (rows[i] == null) {
                return null;
            }
        }
        return rows;
    }
}
