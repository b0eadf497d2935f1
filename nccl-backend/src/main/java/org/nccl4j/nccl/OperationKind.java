package org.nccl4j.nccl;

/** What ranks can do together: the name that users know it by, and what NCCL calls it. */
enum OperationKind {
    ALL_REDUCE("allReduce", "ncclAllReduce"),
    REDUCE("reduce", "ncclReduce"),
    BROADCAST("broadcast", "ncclBroadcast"),
    ALL_GATHER("allGather", "ncclAllGather"),
    /** NCCL has none: a broadcast for each block. */
    ALL_GATHER_V("allGatherV", "ncclBroadcast"),
    REDUCE_SCATTER("reduceScatter", "ncclReduceScatter"),
    /** NCCL has none: a reduce for each block. */
    REDUCE_SCATTER_V("reduceScatterV", "ncclReduce"),
    /** Since 2.28; before that, sends and receives. */
    GATHER("gather", "ncclGather"),
    /** Since 2.28; before that, sends and receives. */
    SCATTER("scatter", "ncclScatter"),
    /** Since 2.28; before that, sends and receives. */
    ALL_TO_ALL("allToAll", "ncclAlltoAll"),
    /** NCCL has none: sends and receives. */
    ALL_TO_ALL_V("allToAllV", "ncclSend"),
    SEND("send", "ncclSend"),
    RECV("recv", "ncclRecv"),
    /** NCCL has none: an all-reduce of one element. */
    BARRIER("barrier", "ncclAllReduce"),
    /** Made on the host's side, in the order of the operations. */
    SPLIT("split", "ncclCommSplit"),
    /** An all-to-all of the counts. */
    EXCHANGE_COUNTS("exchangeCounts", "ncclAlltoAll");

    private final String operation;
    private final String function;

    OperationKind(String operation, String function) {
        this.operation = operation;
        this.function = function;
    }

    /** The method's name in the API. */
    String operation() {
        return operation;
    }

    /** The function of NCCL that does it. */
    String function() {
        return function;
    }

    boolean isPointToPoint() {
        return this == SEND || this == RECV;
    }

    /** Whether it is more than one call of NCCL's, so that it needs a group. */
    boolean needsGroup() {
        return switch (this) {
            case ALL_GATHER_V, REDUCE_SCATTER_V, ALL_TO_ALL_V -> true;
            case GATHER, SCATTER, ALL_TO_ALL, EXCHANGE_COUNTS -> !NativeCalls.HAS_ALL_TO_ALL;
            default -> false;
        };
    }
}
