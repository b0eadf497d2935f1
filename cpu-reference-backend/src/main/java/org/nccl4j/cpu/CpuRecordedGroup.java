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

    CpuRecordedGroup(List<Call> calls) {
        this.calls = calls;
    }

    @Override
    public void issue() {
        if (calls.isEmpty()) {
            return;
        }
        Scheduler scheduler = calls.getFirst().communicator().member().clique.scheduler;
        Chore chores;
        synchronized (scheduler) {
            // All is checked before anything is enqueued. Indices, because iterators are objects.
            for (int i = 0; i < calls.size(); i++) {
                check(calls.get(i));
            }
            for (int i = 0; i < calls.size(); i++) {
                enqueue(scheduler, calls.get(i));
            }
            scheduler.drive();
            chores = scheduler.takeChores(Scheduler.SMALL_BYTES);
        }
        scheduler.workers().perform(chores);
    }

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

    private static void enqueue(Scheduler scheduler, Call call) {
        Member member = call.communicator().member();
        Batch batch = member.takeBatch();
        List<Part> parts = call.parts();
        for (int i = 0; i < parts.size(); i++) {
            Part part = member.addPart(batch);
            part.describe(parts.get(i));
            CpuMemory.use(part.send, part.recv);
            batch.addStream(part.stream);
        }
        scheduler.enqueue(batch);
    }
}
