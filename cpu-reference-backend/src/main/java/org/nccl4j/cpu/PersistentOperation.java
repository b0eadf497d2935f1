package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * One operation of a {@link PersistentGroup}: what its participants have recorded, and how an
 * engine carries it out again.
 *
 * <p>Thread safety: guarded by the scheduler's lock.
 */
final class PersistentOperation implements JoinedOperation {
    private final Clique clique;
    private final SlotRing ring;

    /** Ranks of a pair; -1 in a collective. */
    private final int senderRank;

    private final int receiverRank;

    /** How many operations of its group come before it in its ring. */
    private final int position;

    /** What each participant has recorded. */
    private final Part[] parts;

    private Engine.Persistent carrier;

    /** On which edges it sends, and how much. */
    private int[] edges = new int[0];

    private long[] edgeBytes = new long[0];

    /**
     * One without parts.
     *
     * @param match what it is to be like
     * @param position how many operations of its group come before it in its ring
     */
    PersistentOperation(Match match, int position) {
        this.clique = match.clique;
        this.senderRank = match.senderRank;
        this.receiverRank = match.receiverRank;
        this.ring = clique.ring(match);
        this.position = position;
        this.parts = new Part[match.participants()];
    }

    void setPart(int participant, Part recorded) {
        parts[participant] = recorded;
    }

    /** Whether all participants have recorded their parts and the engine can carry it out. */
    boolean prepare() {
        if (Arrays.asList(parts).contains(null)) {
            return false;
        }
        carrier = clique.engine.prepare(this);
        return carrier != null;
    }

    /** Whether nothing of its numbering is enqueued. */
    boolean isNext() {
        return ring.isEmpty();
    }

    /** Moves the data. */
    void run() {
        carrier.run();
    }

    /** Takes a number and counts what has been sent, as if it had been enqueued and run. */
    void count() {
        long number = ring.skip();
        for (int participant = 0; participant < parts.length; participant++) {
            Member member = clique.members[rank(participant)];
            if (senderRank < 0) {
                member.nextNumber = number + 1;
            } else if (participant == 0) {
                member.nextSend[receiverRank] = number + 1;
            } else {
                member.nextRecv[senderRank] = number + 1;
            }
            Part part = parts[participant];
            member.enqueued(part, number);
            member.completed(part, number);
        }
        clique.countSent(edges, edgeBytes);
    }

    /** The one that it is like, when its group has been enqueued while it was next. */
    Match enqueued() {
        return ring.at(ring.base() + position);
    }

    boolean usesClosedMemory() {
        for (Part part : parts) {
            if (Work.isClosed(part.sendSegment) || Work.isClosed(part.recvSegment)) {
                return true;
            }
        }
        return false;
    }

    @Override
    public OperationKind kind() {
        return parts[0].kind;
    }

    @Override
    public long sequence() {
        return ring.end() + position;
    }

    @Override
    public int participants() {
        return parts.length;
    }

    @Override
    public int rank(int participant) {
        if (senderRank < 0) {
            return participant;
        }
        return participant == 0 ? senderRank : receiverRank;
    }

    @Override
    public DataType type() {
        return parts[0].type;
    }

    @Override
    public ReduceOp reduction(int participant) {
        return parts[participant].reduction;
    }

    @Override
    public int root() {
        return senderRank < 0 ? parts[0].root : -1;
    }

    @Override
    public long countElements() {
        return parts[0].countElements;
    }

    @Override
    public MemorySegment send(int participant) {
        return parts[participant].sendSegment;
    }

    @Override
    public MemorySegment recv(int participant) {
        return parts[participant].recvSegment;
    }

    @Override
    public BlockLayout sendLayout(int participant) {
        return parts[participant].sendLayout;
    }

    @Override
    public BlockLayout recvLayout(int participant) {
        return parts[participant].recvLayout;
    }

    /** Notes what it sends each time; by an engine that prepares it. */
    @Override
    public void countSent(int participant, int peer, long bytes) {
        int last = edges.length;
        edges = Arrays.copyOf(edges, last + 1);
        edges[last] = clique.edge(rank(participant), rank(peer));
        edgeBytes = Arrays.copyOf(edgeBytes, last + 1);
        edgeBytes[last] = bytes;
    }

    @Override
    public StepTrace trace(int participant) {
        return clique.members[rank(participant)].seat.trace();
    }
}
