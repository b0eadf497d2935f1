package org.nccl4j.nccl;

import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.CollectiveEvent;
import org.nccl4j.collectives.DataType;

/**
 * Hands one rank's part of an operation to the flight recorder, when it has been enqueued: what
 * NCCL does afterwards it does not tell, and {@link TimedCalls} measure.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class FlightRecord {
    private static final CollectiveEvent SWITCH = new CollectiveEvent();

    private FlightRecord() {}

    /** Whether somebody records operations. */
    static boolean isEnabled() {
        return SWITCH.isEnabled();
    }

    static void commit(
            Member member, CallRecord call, BlockLayout sendLayout, BlockLayout recvLayout) {
        CollectiveEvent event = new CollectiveEvent();
        describe(event, member, call, sendLayout, recvLayout);
        event.commit();
    }

    /** Fills in what is known when it is enqueued. */
    static void describe(
            CollectiveEvent event,
            Member member,
            CallRecord call,
            BlockLayout sendLayout,
            BlockLayout recvLayout) {
        event.communicator = member.clique.name;
        event.operation = call.kind.operation();
        event.sequence = call.number;
        event.rank = member.rank;
        event.size = member.size;
        boolean barrier = call.kind == OperationKind.BARRIER;
        event.countElements = barrier ? 0 : call.countElements;
        event.type = barrier ? "" : call.type.toString();
        event.bytes =
                bytes(call.kind, call.countElements, call.type, call.root, member)
                        + Math.max(bytes(sendLayout, call.type), bytes(recvLayout, call.type));
    }

    private static long bytes(BlockLayout layout, DataType type) {
        return layout == null ? 0 : type.bytes(layout.totalElements());
    }

    /** Of this rank's larger buffer. */
    private static long bytes(
            OperationKind kind, long count, DataType type, int root, Member member) {
        return switch (kind) {
            case ALL_REDUCE, REDUCE, BROADCAST, SEND, RECV -> type.bytes(count);
            case ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL -> type.bytes(count) * member.size;
            case GATHER, SCATTER -> type.bytes(count) * (root == member.rank ? member.size : 1);
            case ALL_GATHER_V, REDUCE_SCATTER_V, ALL_TO_ALL_V, BARRIER, SPLIT, EXCHANGE_COUNTS -> 0;
        };
    }
}
