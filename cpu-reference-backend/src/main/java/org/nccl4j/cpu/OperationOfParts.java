package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/** An operation of a clique, known by the {@link Part}s that its participants call or record. */
interface OperationOfParts extends JoinedOperation {
    Clique clique();

    /** The sender of a pair; -1 in a collective. */
    int senderRank();

    /** The receiver of a pair; -1 in a collective. */
    int receiverRank();

    /** What was called or recorded, as all parts agree about it; without the buffers of any. */
    Part first();

    /** A participant's part; null if there is none yet, or an empty one. */
    Part part(int participant);

    /** Whether it is a send-receive. */
    default boolean isPair() {
        return senderRank() >= 0;
    }

    /** Bytes of each participant's larger buffer, all together, when all parts are there. */
    default long bytesOfParts() {
        long bytes = 0;
        for (int participant = 0; participant < participants(); participant++) {
            bytes += part(participant).bytes(clique().size);
        }
        return bytes;
    }

    /**
     * What a rank sends to another in an allToAllV, and what that expects.
     *
     * @param from the sender's rank
     * @param to the receiver's rank
     */
    record PairCount(int from, int to, long sentElements, long expectedElements) {}

    /** The first pair of an allToAllV that contradicts itself, or null. */
    default PairCount contradictingPair() {
        if (kind() != OperationKind.ALL_TO_ALL_V) {
            return null;
        }
        for (int from = 0; from < participants(); from++) {
            for (int to = 0; to < participants(); to++) {
                long sent = sendLayout(from).countElements(to);
                long expected = recvLayout(to).countElements(from);
                if (sent != expected) {
                    return new PairCount(from, to, sent, expected);
                }
            }
        }
        return null;
    }

    /** Whether memory of a participant has been closed by its owner. */
    default boolean usesClosedMemory() {
        for (int participant = 0; participant < participants(); participant++) {
            Part part = part(participant);
            if (part != null
                    && (Work.isClosed(part.sendSegment) || Work.isClosed(part.recvSegment))) {
                return true;
            }
        }
        return false;
    }

    @Override
    default OperationKind kind() {
        return first().kind;
    }

    @Override
    default int rank(int participant) {
        if (!isPair()) {
            return participant;
        }
        return participant == 0 ? senderRank() : receiverRank();
    }

    @Override
    default DataType type() {
        return first().type;
    }

    @Override
    default ReduceOp reduction(int participant) {
        return part(participant).reduction;
    }

    @Override
    default int root() {
        return isPair() ? -1 : first().root;
    }

    @Override
    default long countElements() {
        return first().countElements;
    }

    @Override
    default MemorySegment send(int participant) {
        return part(participant).sendSegment;
    }

    @Override
    default MemorySegment recv(int participant) {
        return part(participant).recvSegment;
    }

    @Override
    default BlockLayout sendLayout(int participant) {
        return part(participant).sendLayout;
    }

    @Override
    default BlockLayout recvLayout(int participant) {
        return part(participant).recvLayout;
    }

    @Override
    default StepTrace trace(int participant) {
        return clique().members[rank(participant)].seat.trace();
    }
}
