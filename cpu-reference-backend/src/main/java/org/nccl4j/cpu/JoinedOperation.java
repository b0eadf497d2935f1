package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * An operation that all its participants have called and agree about. In a collective participant i
 * is rank i; in a send-receive participant 0 is the sender, 1 the receiver.
 */
interface JoinedOperation {
    /** What to do. */
    OperationKind kind();

    /** Number on the communicator; for a send-receive, on its ordered pair of ranks. */
    long sequence();

    /** The number of participants. */
    int participants();

    /** The communicator's rank of a participant. */
    int rank(int participant);

    /** Element type; null for a barrier. */
    DataType type();

    /**
     * The reduction as this participant gave it: a scalar may differ from rank to rank. Null if
     * there is none.
     */
    ReduceOp reduction(int participant);

    /** The root's participant index; -1 if there is none. */
    int root();

    /** The count argument; 0 for V operations and the barrier. */
    long countElements();

    /** What the participant reads, from its first element on; null if it reads nothing. */
    MemorySegment send(int participant);

    /** What the participant writes, from its first element on; null if it writes nothing. */
    MemorySegment recv(int participant);

    /** Blocks of the send buffer of reduceScatterV and allToAllV; null otherwise. */
    BlockLayout sendLayout(int participant);

    /** Blocks of the receive buffer of allGatherV and allToAllV; null otherwise. */
    BlockLayout recvLayout(int participant);

    /**
     * Counts payload bytes that the participant sent to a peer; the other side is counted with it.
     */
    void countSent(int participant, int peer, long bytes);

    /** Where a participant's steps are to be written, or null. */
    StepTrace trace(int participant);
}
