package org.nccl4j.cpu;

import java.util.Arrays;

/**
 * One operation of a {@link PersistentGroup}: what its participants have recorded, and how an
 * engine carries it out again.
 *
 * <p>Thread safety: made by one thread, then guarded by the scheduler's lock.
 */
final class PersistentOperation implements OperationOfParts {
    private final Clique clique;
    private final SlotRing ring;

    /** How many operations of its group come before it in its ring. */
    private final int position;

    /** What each participant has recorded. */
    private final Part[] parts;

    private Engine.Persistent prepared;

    /** The {@linkplain Clique#edge edges} over which something goes each time. */
    private int[] sentEdges = {};

    /** How much goes over each of them. */
    private long[] sentBytes = {};

    /**
     * One without parts.
     *
     * @param ring where it is numbered
     * @param position how many operations of its group come before it there
     */
    PersistentOperation(Clique clique, SlotRing ring, int position) {
        this.clique = clique;
        this.ring = ring;
        this.position = position;
        this.parts = new Part[ring.participants()];
    }

    boolean isIn(SlotRing other) {
        return ring == other;
    }

    void setPart(Part recorded) {
        parts[recorded.participant] = recorded;
    }

    /** Whether all participants have recorded their parts, and those mean the same. */
    boolean isAgreed() {
        for (Part part : parts) {
            if (part == null || !part.agreesWith(first())) {
                return false;
            }
        }
        return contradictingPair() == null;
    }

    /** Whether the engine can carry it out again and again. */
    boolean prepare() {
        prepared = clique.engine.prepare(this);
        return prepared != null;
    }

    /** What running it takes, as bytes to be moved. */
    long costBytes() {
        return Work.costBytes(bytesOfParts(), clique.engine.steps(this));
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
            member.takeNumber(parts[participant]);
            member.noteEnqueued(parts[participant], number);
            member.noteCompleted(parts[participant], number);
        }
        clique.countSentWithLock(sentEdges, sentBytes);
    }

    /** Its match, when its group has been enqueued while its numbering was idle. */
    Match enqueuedMatch() {
        return ring.at(ring.base() + position);
    }

    @Override
    public Clique clique() {
        return clique;
    }

    @Override
    public int senderRank() {
        return ring.senderRank();
    }

    @Override
    public int receiverRank() {
        return ring.receiverRank();
    }

    @Override
    public Part first() {
        return parts[0];
    }

    @Override
    public Part part(int participant) {
        return parts[participant];
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

    /** While it is being prepared; notes what is to be counted each time. */
    @Override
    public void countSent(int participant, int peer, long bytes) {
        int sender = rank(participant);
        int receiver = rank(peer);
        if (sender != receiver) {
            int sends = sentEdges.length;
            sentEdges = Arrays.copyOf(sentEdges, sends + 1);
            sentEdges[sends] = clique.edge(sender, receiver);
            sentBytes = Arrays.copyOf(sentBytes, sends + 1);
            sentBytes[sends] = bytes;
        }
    }
}
