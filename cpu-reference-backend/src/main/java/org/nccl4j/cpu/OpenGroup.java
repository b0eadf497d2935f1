package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.Group;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.spi.ArgumentChecks;

/** A group whose body is running. Belongs to the thread that runs it. */
final class OpenGroup implements Group {
    private static final ThreadLocal<OpenGroup> CURRENT = new ThreadLocal<>();

    /** Open groups of all threads: while there are none, nobody needs to look for theirs. */
    private static final AtomicInteger OPEN = new AtomicInteger();

    private final List<CpuRecordedGroup.Call> calls = new ArrayList<>();
    private final List<Recorder> recorders = new ArrayList<>();
    private final List<CpuStream> streams = new ArrayList<>();

    private OpenGroup() {}

    /** Runs a body and returns what it has recorded. */
    static List<CpuRecordedGroup.Call> record(Consumer<Group> body) {
        ArgumentChecks.given("group", "body", body);
        if (CURRENT.get() != null) {
            throw new InvalidArgumentException(
                    "this thread is already in a group's body, and groups do not nest; put the"
                            + " operations into the open group");
        }
        OpenGroup group = new OpenGroup();
        CURRENT.set(group);
        OPEN.incrementAndGet();
        try {
            body.accept(group);
        } finally {
            OPEN.decrementAndGet();
            CURRENT.remove();
        }
        for (Recorder recorder : group.recorders) {
            recorder.requirePairs();
        }
        return group.calls;
    }

    /** Whether the calling thread is in a group's body. */
    static boolean isOpenHere() {
        return OPEN.get() > 0 && CURRENT.get() != null;
    }

    static void refuseIfTouched(Member member) {
        if (OPEN.get() == 0) {
            return;
        }
        OpenGroup group = CURRENT.get();
        if (group == null) {
            return;
        }
        for (Recorder recorder : group.recorders) {
            if (recorder.member == member) {
                throw new InvalidArgumentException(
                        member.describe()
                                + " is in use by this thread's open group; go through"
                                + " group.on(communicator), or wait until the body has returned");
            }
        }
    }

    static void refuseIfTouched(CpuStream stream) {
        if (OPEN.get() == 0) {
            return;
        }
        OpenGroup group = CURRENT.get();
        if (group != null && group.streams.contains(stream)) {
            throw new InvalidArgumentException(
                    stream
                            + " is in use by this thread's open group; use it when the body has"
                            + " returned");
        }
    }

    static InvalidArgumentException unpaired(Member member) {
        return new InvalidArgumentException(
                "send and recv on "
                        + member.describe()
                        + ": the peer is the rank itself, which needs a send and a recv in one group;"
                        + " nothing was enqueued");
    }

    @Override
    public Operations on(Communicator communicator) {
        requireCurrent();
        CpuCommunicator mine = CpuCommunicator.of("group", communicator);
        for (Recorder recorder : recorders) {
            if (recorder.communicator == mine) {
                return recorder;
            }
        }
        Recorder recorder = new Recorder(mine);
        recorders.add(recorder);
        return recorder;
    }

    private void requireCurrent() {
        if (CURRENT.get() != this) {
            throw new InvalidArgumentException(
                    "a group may be used only inside the body that received it, on that thread;"
                            + " nothing was recorded");
        }
    }

    /** Records the operations of one communicator. */
    private final class Recorder extends CheckedOperations {
        private final CpuCommunicator communicator;
        private CpuRecordedGroup.Call call;
        private int sendsToSelf;
        private int receivesFromSelf;

        Recorder(CpuCommunicator communicator) {
            super(communicator.member());
            this.communicator = communicator;
        }

        void requirePairs() {
            if (sendsToSelf != receivesFromSelf) {
                throw unpaired(member);
            }
        }

        @Override
        void requireAllowed(String operation, CpuStream stream) {
            requireCurrent();
            synchronized (stream.scheduler()) {
                member.requireUsable(operation);
                stream.requireOpen(operation);
            }
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
            Part part = new Part();
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
            part.participant = member.participant(part);
            part.prepare();
            if (kind == OperationKind.SEND_RECV && root == member.rank) {
                if (sender) {
                    sendsToSelf++;
                } else {
                    receivesFromSelf++;
                }
            }
            if (!streams.contains(stream)) {
                streams.add(stream);
            }
            if (call == null) {
                call = new CpuRecordedGroup.Call(communicator);
                calls.add(call);
            }
            call.parts().add(part);
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
            takeSend(send, sendCountElements, type, destination, stream);
            takeRecv(recv, recvCountElements, type, source, stream);
        }
    }
}
