package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.RecordedGroup;

/** Operations of some communicators, to be issued together. Thread safety: one thread at a time. */
final class CpuRecordedGroup implements RecordedGroup {
    /** The operations of one communicator, as templates. */
    record Call(CpuCommunicator communicator, List<Part> parts) {
        Call(CpuCommunicator communicator) {
            this(communicator, new ArrayList<>());
        }
    }

    private final List<Call> calls;

    /** Of all calls; null if there are none. */
    private final Scheduler scheduler;

    /** How it is run where it is issued; null if it cannot be. */
    private final PersistentGroup persistent;

    /**
     * One of what was recorded, in the order in which it is to be issued.
     *
     * @param calls what was recorded
     * @param persistent how it is run where it is issued; null if it cannot be, or is to be issued
     *     once only
     */
    CpuRecordedGroup(List<Call> calls, PersistentGroup persistent) {
        this.calls = calls;
        this.scheduler =
                calls.isEmpty() ? null : calls.getFirst().communicator().member().clique.scheduler;
        this.persistent = persistent;
    }

    @Override
    public void issue() {
        if (scheduler == null) {
            return;
        }
        Chore chores;
        synchronized (scheduler) {
            if (persistent != null && persistent.isReady()) {
                Throwable failure = persistent.run();
                if (failure == null) {
                    return;
                }
                enqueueBroken(failure);
            } else {
                checkAll();
                enqueueAll();
            }
            scheduler.drive();
            chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
        }
        scheduler.workers().perform(chores);
    }

    /** Before anything is enqueued. Indices, because iterators are objects. */
    private void checkAll() {
        for (int i = 0; i < calls.size(); i++) {
            check(calls.get(i));
        }
    }

    private void enqueueAll() {
        for (int i = 0; i < calls.size(); i++) {
            enqueue(calls.get(i));
        }
    }

    /** Has it fail as what breaks when it has been enqueued. */
    private void enqueueBroken(Throwable failure) {
        try {
            enqueueAll();
            persistent.blame(failure);
        } catch (RuntimeException | Error e) {
            // Such as a full stack. It must not run: what it reads may be half of what it wrote.
            persistent.blameWithoutWords(failure);
            throw e;
        }
    }

    /** What it refuses, {@link PersistentGroup#isReady} has to look at as well. */
    private static void check(Call call) {
        Member member = call.communicator().member();
        OpenGroup.refuseIfTouched(member);
        List<Part> parts = call.parts();
        for (int i = 0; i < parts.size(); i++) {
            Part part = parts.get(i);
            String operation = part.kind.operation(part.sender);
            member.requireUsable(operation);
            part.stream.requireOpen(operation);
            OpenGroup.refuseIfTouched(part.stream);
            DeviceBuffer closed = part.closedBuffer();
            if (closed != null) {
                throw new InvalidArgumentException(
                        operation
                                + " in a recorded group on "
                                + member.describe()
                                + ": "
                                + closed
                                + " has been closed; nothing was enqueued; record the group anew");
            }
        }
    }

    private static void enqueue(Call call) {
        Member member = call.communicator().member();
        Batch batch = member.takeBatch();
        List<Part> parts = call.parts();
        for (int i = 0; i < parts.size(); i++) {
            Part part = member.addPart(batch);
            part.describe(parts.get(i));
            CpuMemory.use(part.send, part.recv);
            batch.addStream(part.stream);
        }
        member.clique.scheduler.enqueue(batch);
    }
}
