package org.nccl4j.nccl;

/** One rank's membership. Thread safety: immutable. */
final class NcclCommunicator {
    private final long operationTimeoutNanos;
    private final String description;

    NcclCommunicator(long operationTimeoutNanos, String description) {
        this.operationTimeoutNanos = operationTimeoutNanos;
        this.description = description;
    }

    long operationTimeoutNanos() {
        return operationTimeoutNanos;
    }

    String describe() {
        return description;
    }
}
