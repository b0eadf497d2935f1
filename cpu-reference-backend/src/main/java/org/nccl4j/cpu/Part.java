package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.ReduceOp;

/**
 * One rank's part of an operation: what it called and where that stands. Guarded by the scheduler's
 * lock once enqueued, used again and again; a recorded group keeps its own as templates.
 */
final class Part {
    OperationKind kind;
    long countElements;
    DataType type;
    ReduceOp reduction;

    /** Root of a rooted collective, peer of a send or receive, else -1. */
    int root;

    /** For a send-receive: whether this is the sending side. */
    boolean sender;

    BlockLayout sendLayout;
    BlockLayout recvLayout;
    DeviceBuffer send;
    DeviceBuffer recv;
    CpuStream stream;

    MemorySegment sendSegment;
    MemorySegment recvSegment;

    Batch batch;
    Match match;
    int participant;
    long number;
    boolean arrived;
    boolean ended;

    /** The next of those that are to be used again. */
    Part nextSpare;

    /** Being measured for the flight recorder, or null. */
    FlightRecord record;

    long enqueuedNanos;

    /** Takes over what was called; buffers that the operation does not use are null. */
    void describe(
            OperationKind newKind,
            boolean isSender,
            DeviceBuffer newSend,
            DeviceBuffer newRecv,
            long count,
            DataType newType,
            ReduceOp op,
            int newRoot,
            BlockLayout newSendLayout,
            BlockLayout newRecvLayout,
            CpuStream newStream) {
        kind = newKind;
        sender = isSender;
        send = newSend;
        recv = newRecv;
        countElements = count;
        type = newType;
        reduction = op;
        root = newRoot;
        sendLayout = newSendLayout;
        recvLayout = newRecvLayout;
        stream = newStream;
    }

    void describe(Part template) {
        describe(
                template.kind,
                template.sender,
                template.send,
                template.recv,
                template.countElements,
                template.type,
                template.reduction,
                template.root,
                template.sendLayout,
                template.recvLayout,
                template.stream);
        sendSegment = template.sendSegment;
        recvSegment = template.recvSegment;
    }

    /** Fixes the memory; an operation that moves nothing needs none. */
    void prepare() {
        if (isEmpty()) {
            send = null;
            recv = null;
        }
        sendSegment = send == null ? null : send.hostSegment();
        recvSegment = recv == null ? null : recv.hostSegment();
    }

    /** Whether a buffer has been closed since it was prepared. */
    DeviceBuffer closedBuffer() {
        if (send != null && send.isClosed()) {
            return send;
        }
        return recv != null && recv.isClosed() ? recv : null;
    }

    /** Whether it takes its number, waits for nobody and moves nothing. */
    boolean isEmpty() {
        return switch (kind) {
            case BARRIER, ALL_TO_ALL_V, SPLIT, EXCHANGE_COUNTS -> false;
            case ALL_GATHER_V -> recvLayout.totalElements() == 0;
            case REDUCE_SCATTER_V -> sendLayout.totalElements() == 0;
            default -> countElements == 0;
        };
    }

    /** Whether another rank's call with the same number means the same operation. */
    boolean agreesWith(Part other) {
        return kind == other.kind
                && countElements == other.countElements
                && type == other.type
                && sameReduction(other.reduction)
                && (kind == OperationKind.SEND_RECV || root == other.root)
                && (kind != OperationKind.ALL_GATHER_V || sameCounts(recvLayout, other.recvLayout))
                && (kind != OperationKind.REDUCE_SCATTER_V
                        || sameCounts(sendLayout, other.sendLayout));
    }

    /** Scalars of a pre-multiplied sum may differ from rank to rank. */
    private boolean sameReduction(ReduceOp other) {
        return reduction instanceof ReduceOp.PreMulSum
                ? other instanceof ReduceOp.PreMulSum
                : Objects.equals(reduction, other);
    }

    private static boolean sameCounts(BlockLayout a, BlockLayout b) {
        for (int rank = 0; rank < a.ranks(); rank++) {
            if (a.countElements(rank) != b.countElements(rank)) {
                return false;
            }
        }
        return true;
    }

    /** Bytes of this rank's larger buffer. */
    long bytes(int size) {
        return switch (kind) {
            case BARRIER, SPLIT, EXCHANGE_COUNTS -> 0;
            case ALL_GATHER_V -> type.bytes(recvLayout.totalElements());
            case REDUCE_SCATTER_V -> type.bytes(sendLayout.totalElements());
            case ALL_TO_ALL_V ->
                    type.bytes(Math.max(sendLayout.totalElements(), recvLayout.totalElements()));
            case ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL -> type.bytes(countElements) * size;
            case GATHER, SCATTER -> type.bytes(countElements) * (root == participant ? size : 1);
            case ALL_REDUCE, REDUCE, BROADCAST, SEND_RECV -> type.bytes(countElements);
        };
    }

    /**
     * How far what this rank reads reaches from where its buffer starts: with a layout, to the end
     * of the last block.
     */
    long readBytes(int size) {
        if (sendSegment == null) {
            return 0;
        }
        return switch (kind) {
            case REDUCE_SCATTER, SCATTER, ALL_TO_ALL -> type.bytes(countElements) * size;
            case ALL_GATHER_V -> type.bytes(recvLayout.countElements(participant));
            case REDUCE_SCATTER_V, ALL_TO_ALL_V -> type.bytes(sendLayout.extentElements());
            default -> type.bytes(countElements);
        };
    }

    /** The same of what this rank writes. */
    long writtenBytes(int size) {
        if (recvSegment == null) {
            return 0;
        }
        return switch (kind) {
            case ALL_GATHER, GATHER, ALL_TO_ALL -> type.bytes(countElements) * size;
            case REDUCE_SCATTER_V -> type.bytes(sendLayout.countElements(participant));
            case ALL_GATHER_V, ALL_TO_ALL_V -> type.bytes(recvLayout.extentElements());
            default -> type.bytes(countElements);
        };
    }

    /** Forgets all that would keep memory reachable. */
    void clear() {
        send = null;
        recv = null;
        sendSegment = null;
        recvSegment = null;
        sendLayout = null;
        recvLayout = null;
        reduction = null;
        stream = null;
        batch = null;
        match = null;
        record = null;
        arrived = false;
        ended = false;
    }
}
