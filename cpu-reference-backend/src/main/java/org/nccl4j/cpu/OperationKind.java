package org.nccl4j.cpu;

/** What ranks can do together, with the name that users know it by. */
enum OperationKind {
    ALL_REDUCE("allReduce"),
    REDUCE("reduce"),
    BROADCAST("broadcast"),
    ALL_GATHER("allGather"),
    ALL_GATHER_V("allGatherV"),
    REDUCE_SCATTER("reduceScatter"),
    REDUCE_SCATTER_V("reduceScatterV"),
    GATHER("gather"),
    SCATTER("scatter"),
    ALL_TO_ALL("allToAll"),
    ALL_TO_ALL_V("allToAllV"),
    /** One participant sends (index 0), the other receives (index 1); both may be the same rank. */
    SEND_RECV("sendRecv"),
    BARRIER("barrier"),
    /** Joined on the host, never given to an engine. */
    SPLIT("split"),
    /** Joined on the host, never given to an engine. */
    EXCHANGE_COUNTS("exchangeCounts");

    private final String operation;

    OperationKind(String operation) {
        this.operation = operation;
    }

    /** Whether elements are combined, so that there is a reduction. */
    boolean reduces() {
        return switch (this) {
            case ALL_REDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_V -> true;
            default -> false;
        };
    }

    /** The method's name in the API; of both sides together if it is {@link #SEND_RECV}. */
    String operation() {
        return operation;
    }

    /** The name of the method that one side called. */
    String operation(boolean sender) {
        return this == SEND_RECV ? (sender ? "send" : "recv") : operation;
    }
}
