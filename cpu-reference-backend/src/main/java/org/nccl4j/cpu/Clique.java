package org.nccl4j.cpu;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.List;
import java.util.concurrent.atomic.AtomicLongArray;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.Traffic;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.collectives.spi.Durations;

/**
 * What the ranks of one communicator share: numbering, matches, traffic, and the failure that ends
 * it. It fails once: the first cause wins.
 *
 * <p>Thread safety: guarded by the scheduler's lock but for what engines count as sent; {@code
 * cause} and {@code aborted} may be read without it.
 */
final class Clique {
    final Scheduler scheduler;
    final Engine engine;
    final String name;
    final int size;
    final Member[] members;
    final Duration operationTimeout;
    final long timeoutNanos;
    final boolean abortOnFailure;

    /** Joined operations that are not complete; while there are any, buffers may be in use. */
    int running;

    /** Ranks that are closing, as {@link Member#setClosing} counts. */
    int closingMembers;

    /** Ranks that have closed. */
    int closedMembers;

    /** Why it failed, or null. */
    volatile CollectiveException cause;

    boolean failureLogged;

    /** The failure for when there is no memory for another one. */
    final UnsupportedException outOfMemory;

    /** The failure for when another one cannot be put into words, as where the stack is full. */
    private final UnsupportedException untold;

    /** Whether its work is to be given up as soon as none of it runs. */
    boolean abortRequested;

    /** Whether its work has been given up. */
    volatile boolean aborted;

    /**
     * Host calls that are not complete, in the order of their numbers, which is also the order in
     * which they get complete. Only the first is being waited for.
     */
    final ArrayDeque<HostCall> hostCalls = new ArrayDeque<>(0);

    /** Those who wait for it to abort, to become idle or for a host call. */
    final WaitList waiters = new WaitList();

    final Overlaps overlaps;

    private final SlotRing collectives;
    private final SlotRing[] pairs;

    /** By edge, what engines have counted without the lock. */
    private final AtomicLongArray sentBytes;

    /** By edge, what has been counted with it. */
    private final long[] sentWithLock;

    Clique(Scheduler scheduler, Engine engine, String name, List<Seat> seats) {
        CommunicatorConfig agreed = seats.getFirst().config();
        this.scheduler = scheduler;
        this.engine = engine;
        this.name = name;
        this.size = seats.size();
        this.outOfMemory =
                new UnsupportedException(
                        "communicator '"
                                + name
                                + "' failed because the heap was full; give the JVM more memory"
                                + " (-Xmx) or enqueue less ahead, and create a new communicator");
        this.untold =
                new UnsupportedException(
                        "communicator '"
                                + name
                                + "' failed in an operation, and there was too little stack, or no"
                                + " text, to tell why; give threads a larger stack (-Xss) or call"
                                + " from less deep, and create a new communicator");
        this.operationTimeout = agreed.operationTimeout();
        this.timeoutNanos = Durations.saturatedNanos(operationTimeout);
        this.abortOnFailure = agreed.abortOnFailure();
        this.members = new Member[size];
        for (int rank = 0; rank < size; rank++) {
            members[rank] = new Member(this, rank, seats.get(rank));
        }
        this.overlaps = new Overlaps(size);
        this.collectives = new SlotRing(this, -1, -1);
        this.pairs = new SlotRing[size * size];
        this.sentBytes = new AtomicLongArray(size * size);
        this.sentWithLock = new long[size * size];
    }

    /**
     * A failure that needs no memory and next to no stack.
     *
     * @param thrown what came out when another one was put into words
     */
    CollectiveException failureWithoutWords(Throwable thrown) {
        return thrown instanceof OutOfMemoryError ? outOfMemory : untold;
    }

    SlotRing collectives() {
        return collectives;
    }

    /** The numbering of an ordered pair, made when it is first used or recorded. */
    SlotRing pair(int sender, int receiver) {
        assert Thread.holdsLock(scheduler);
        int index = edge(sender, receiver);
        if (pairs[index] == null) {
            pairs[index] = new SlotRing(this, sender, receiver);
        }
        return pairs[index];
    }

    /** The numbering of an ordered pair, or null if nobody has used or recorded it. */
    SlotRing existingPair(int sender, int receiver) {
        return pairs[edge(sender, receiver)];
    }

    /** The numbering that a match is in. */
    SlotRing ring(Match match) {
        return match.isPair() ? pair(match.senderRank, match.receiverRank) : collectives;
    }

    void retire(Match match) {
        assert Thread.holdsLock(scheduler);
        ring(match).retire();
    }

    /** The place of an ordered pair of ranks among all of them. */
    int edge(int sender, int receiver) {
        return sender * size + receiver;
    }

    /** Counts payload between two ranks. Any thread. */
    void countSent(int sender, int receiver, long bytes) {
        if (sender != receiver) {
            // Two operations on two streams may use one edge at the same time.
            sentBytes.getAndAdd(edge(sender, receiver), bytes);
        }
    }

    /** The same for several {@linkplain #edge edges}, with the scheduler's lock. */
    void countSentWithLock(int[] edges, long[] bytes) {
        assert Thread.holdsLock(scheduler);
        for (int i = 0; i < edges.length; i++) {
            sentWithLock[edges[i]] += bytes[i];
        }
    }

    /** A rank's traffic so far. Any thread; takes the scheduler's lock. */
    Traffic traffic(int rank) {
        long[] sent = new long[size];
        long[] received = new long[size];
        synchronized (scheduler) {
            for (int peer = 0; peer < size; peer++) {
                sent[peer] = sentBytes(edge(rank, peer));
                received[peer] = sentBytes(edge(peer, rank));
            }
        }
        return new Traffic(sent, received);
    }

    private long sentBytes(int edge) {
        return sentBytes.get(edge) + sentWithLock[edge];
    }

    /** Whether nobody will use it any more, so that it needs no watching. */
    boolean isOver() {
        assert Thread.holdsLock(scheduler);
        if (aborted) {
            return true;
        }
        for (Member member : members) {
            if (!(member.closed || member.leaked) || !member.isIdle()) {
                return false;
            }
        }
        return true;
    }
}
