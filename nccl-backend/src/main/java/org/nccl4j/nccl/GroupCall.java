package org.nccl4j.nccl;

import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.ReduceOp;

/**
 * One rank's operation in a group, as it was recorded, and what its issuing needs.
 *
 * <p>Thread safety: as the group.
 */
final class GroupCall {
    private static final long NO_NUMBER = -1;

    final NcclCommunicator communicator;
    final Member member;

    // ---- the operation, which a call of a plain operation is given anew for each

    NcclStream stream;
    private OperationKind kind;
    private DeviceBuffer send;
    private DeviceBuffer recv;
    private long sendAddress;
    private long recvAddress;
    private long countElements;
    private DataType type;
    private ReduceOp op;
    private int root;
    private BlockLayout sendLayout;
    private BlockLayout recvLayout;

    /** Whether it takes its number and moves nothing. */
    private boolean isEmpty;

    /** Taken before, or {@link #NO_NUMBER}. */
    private final long number;

    // ---- while it is issued

    private CallRecord issued;

    /** Being timed, from its start to its enqueuing; null if it is not. */
    private TimedCalls.Call timed;

    /** Whether the flight recorder has it, or will. */
    private boolean isRecorded;

    private int operator;

    private GroupCall(NcclCommunicator communicator, long number) {
        this.communicator = communicator;
        this.member = communicator.member();
        this.number = number;
    }

    /** One that is to be given its operation. */
    GroupCall(NcclCommunicator communicator) {
        this(communicator, NO_NUMBER);
    }

    /** Gives it an operation. */
    void set(
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
        this.kind = kind;
        this.isEmpty = isEmpty(kind, countElements, sendLayout, recvLayout);
        // An operation that moves nothing needs no memory.
        this.send = isEmpty ? null : send;
        this.recv = isEmpty ? null : recv;
        boolean barrier = kind == OperationKind.BARRIER;
        this.sendAddress = barrier ? member.scratchAddress() : address(this.send);
        this.recvAddress = barrier ? member.scratchAddress() : address(this.recv);
        this.countElements = barrier ? 1 : countElements;
        this.type = barrier ? DataType.INT32 : type;
        this.op = op;
        this.root = root;
        this.sendLayout = sendLayout;
        this.recvLayout = recvLayout;
        this.stream = stream;
    }

    /** Keeps nothing of its operation reachable. */
    void forget() {
        send = null;
        recv = null;
        op = null;
        sendLayout = null;
        recvLayout = null;
        stream = null;
        issued = null;
    }

    /** A rank's part of an exchange of counts. */
    static GroupCall exchange(
            NcclCommunicator communicator,
            NcclStream stream,
            long sendAddress,
            long recvAddress,
            long number) {
        GroupCall call = new GroupCall(communicator, number);
        call.set(
                OperationKind.EXCHANGE_COUNTS,
                null,
                null,
                1,
                DataType.INT64,
                null,
                -1,
                null,
                null,
                stream);
        call.sendAddress = sendAddress;
        call.recvAddress = recvAddress;
        return call;
    }

    static boolean isEmpty(
            OperationKind kind, long count, BlockLayout sendLayout, BlockLayout recvLayout) {
        return switch (kind) {
            case BARRIER, SPLIT, EXCHANGE_COUNTS -> false;
            case ALL_GATHER_V -> recvLayout.totalElements() == 0;
            case REDUCE_SCATTER_V -> sendLayout.totalElements() == 0;
            case ALL_TO_ALL_V -> sendLayout.totalElements() + recvLayout.totalElements() == 0;
            default -> count == 0;
        };
    }

    static long address(DeviceBuffer buffer) {
        return buffer == null ? 0 : buffer.address();
    }

    OperationKind kind() {
        return kind;
    }

    boolean isEmpty() {
        return isEmpty;
    }

    /** Refuses what has been closed or touched since it was recorded. */
    void check() {
        stream.requireOpen(kind.operation());
        OpenGroup.refuseIfTouched(stream);
        DeviceBuffer closed = send != null && send.isClosed() ? send : null;
        if (recv != null && recv.isClosed()) {
            closed = recv;
        }
        if (closed != null) {
            throw new InvalidArgumentException(
                    kind.operation()
                            + " in a recorded group on "
                            + member.describe()
                            + ": "
                            + closed
                            + " has been closed; nothing was enqueued; record the group anew");
        }
    }

    /** Whether it takes its number from where another one does. */
    boolean countsWith(GroupCall other) {
        return member == other.member
                && (kind.isPointToPoint()
                        ? kind == other.kind && root == other.root
                        : !other.kind.isPointToPoint());
    }

    /**
     * Tells the other ranks of it, if that is wanted.
     *
     * @param ahead how many calls of the group take their numbers before it
     * @return what waits for the others, or null
     */
    ConsistencyCheck.Posted post(int ahead) {
        if (member.check == null) {
            return null;
        }
        return member.check.post(
                member.nextNumber(kind, root) + ahead,
                Signature.of(kind, countElements, type, op, root, sendLayout, recvLayout),
                isEmpty);
    }

    /**
     * Takes its number, and makes the operator that it needs: within NCCL's group a failure of that
     * would not keep the other ranks' operations from being launched.
     */
    void begin() {
        operator = member.preMulSums.operator(op);
        issued =
                number == NO_NUMBER
                        ? member.begin(kind, countElements, type, op, root, stream)
                        : member.begin(kind, countElements, type, op, root, stream, number);
        isRecorded = false;
        if (isEmpty) {
            issued.ticket = 0;
        }
    }

    /**
     * Gives it to NCCL, within a group.
     *
     * @return NCCL's code
     */
    int enqueue() {
        if (member.size > 1) {
            return enqueueOnAnyDevice();
        }
        // Without others NCCL works at once, on the current device.
        long before = CurrentDevice.enter(member.device);
        try {
            return enqueueOnAnyDevice();
        } finally {
            CurrentDevice.leave(before);
        }
    }

    private int enqueueOnAnyDevice() {
        return NativeCalls.enqueue(
                kind,
                sendAddress,
                recvAddress,
                countElements,
                type,
                operator,
                root,
                sendLayout,
                recvLayout,
                member,
                stream.address());
    }

    /** Begins to time it, if that is wanted. */
    void startTiming() {
        if (member.timed != null && !isEmpty) {
            timed = member.timed.begin(stream);
        }
    }

    /** It will not be enqueued, unless it has been. */
    void stopTiming() {
        if (timed != null) {
            timed.giveUp();
            timed = null;
        }
    }

    /** It is on its stream. */
    void enqueued() {
        stream.enqueued(communicator);
        issued.ticket = stream.issued();
        if (timed != null) {
            timed.enqueued(issued, sendLayout, recvLayout);
            timed = null;
            isRecorded = true;
        }
        NcclMemory.use(send, stream);
        NcclMemory.use(recv, stream);
    }

    void recordFlight() {
        if (!isRecorded) {
            FlightRecord.commit(member, issued, sendLayout, recvLayout);
        }
    }

    String doing() {
        return Wording.doing(member, issued);
    }

    CollectiveException failed(int code) {
        return NcclLibrary.failed(kind.function(), code, doing());
    }
}
