package org.nccl4j.nccl;

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

/** A group whose body is running. Thread safety: belongs to the thread that runs it. */
final class OpenGroup implements Group {
    private static final ThreadLocal<OpenGroup> CURRENT = new ThreadLocal<>();

    /** Open groups of all threads: while there are none, nobody needs to look for theirs. */
    private static final AtomicInteger OPEN = new AtomicInteger();

    private final List<GroupCall> calls = new ArrayList<>();
    private final List<Recorder> recorders = new ArrayList<>();
    private final List<NcclStream> streams = new ArrayList<>();

    private OpenGroup() {}

    /** Runs a body and returns what it has recorded. */
    static NcclRecordedGroup record(Consumer<Group> body) {
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
        return NcclRecordedGroup.of(group.calls);
    }

    /** Refuses a communicator that this thread's open group has touched. */
    static void refuseIfTouched(Member member) {
        if (OPEN.getPlain() == 0) {
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

    /** Refuses a stream that this thread's open group has touched. */
    static void refuseIfTouched(NcclStream stream) {
        if (OPEN.getPlain() == 0) {
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
        NcclCommunicator mine = NcclCommunicator.of("group", communicator);
        for (Recorder recorder : recorders) {
            if (recorder.communicator == mine) {
                return recorder;
            }
        }
        requireSameMode(mine.member());
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

    private void requireSameMode(Member newcomer) {
        if (recorders.isEmpty()
                || recorders.getFirst().member.nonBlocking == newcomer.nonBlocking) {
            return;
        }
        throw new InvalidArgumentException(
                recorders.getFirst().member.describe()
                        + " and "
                        + newcomer.describe()
                        + " cannot be in one group, because only one of them is blocking; give all"
                        + " the same config.blocking; nothing was recorded");
    }

    /** Records the operations of one communicator. */
    private final class Recorder extends CheckedOperations {
        private final NcclCommunicator communicator;
        private int sendsToSelf;
        private int receivesFromSelf;

        Recorder(NcclCommunicator communicator) {
            super(communicator.member());
            this.communicator = communicator;
        }

        void requirePairs() {
            if (sendsToSelf != receivesFromSelf) {
                throw unpaired(member);
            }
        }

        @Override
        void requireAllowed(String operation, NcclStream stream) {
            requireCurrent();
            member.requireOpen(operation);
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
                if (kind == OperationKind.SEND) {
                    sendsToSelf++;
                } else {
                    receivesFromSelf++;
                }
            }
            if (!streams.contains(stream)) {
                streams.add(stream);
            }
            GroupCall call = new GroupCall(communicator);
            call.set(
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
            calls.add(call);
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
            take(
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
            take(
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
        }
    }
}
