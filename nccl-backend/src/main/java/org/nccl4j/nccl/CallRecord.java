package org.nccl4j.nccl;

import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * What a rank called, for messages: an entry of its {@link Member}'s ring.
 *
 * <p>Thread safety: written by the communicator's thread, read by others without order, so that a
 * reader may see an entry that is being written over; good enough for words.
 */
final class CallRecord {
    /** Of a call that has not returned from NCCL. */
    static final long NO_TICKET = Long.MAX_VALUE;

    OperationKind kind;
    long countElements;
    DataType type;
    ReduceOp reduction;

    /** Root of a rooted collective, peer of a send or receive, else -1. */
    int root;

    /** Of the communicator's collectives, or of the pair's sends or receives. */
    long number;

    NcclStream stream;

    /** The stream's, once it is there. */
    long ticket;
}
