package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
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

    private final List<Sent> sent = new ArrayList<>();
    private Engine.Persistent prepared;

    /** What goes over an {@linkplain Clique#edge edge} each time. */
    private record Sent(int edge, long bytes) {}

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
        prepared = clique.engine.prepare(this);
        return prepared != null;
    }

    /** Whether all that has a number like this one's is complete. */
    boolean isNumberingIdle() {
        return ring.isEmpty();
    }

    /** Moves the data. */
    void run() {
        prepared.run();
    }

    /** Takes a number and counts what has been sent, as if it had been enqueued and run. */
    void takeNumberAndCount() {
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
            member.noteEnqueued(parts[participant], number);
            member.noteCompleted(parts[participant], number);
        }
        // Indices, because iterators are objects.
        for (int i = 0; i < sent.size(); i++) {
            clique.countSentWithLock(sent.get(i).edge(), sent.get(i).bytes());
        }
    }

    /** Its match, when its group has been enqueued while its numbering was idle. */
    Match enqueuedMatch() {
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

    /** What it will be when it is run next. */
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

    /** While it is being prepared; notes what is to be counted each time. */
    @Override
    public void countSent(int participant, int peer, long bytes) {
        int sender = rank(participant);
        int receiver = rank(peer);
        if (sender != receiver) {
            sent.add(new Sent(clique.edge(sender, receiver), bytes));
        }
    }

    @Override
    public StepTrace trace(int participant) {
        return clique.members[rank(participant)].seat.trace();
    }
}
