package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;
import org.nccl4j.collectives.DeviceBuffer;

/**
 * The operations of a recorded group that brings all their participants itself, prepared to be
 * carried out again and again: what MPI calls persistent. They have been found to agree when they
 * were enqueued one by one, and what was recorded does not change. So while nothing else is going
 * on where they belong, and they are small, to issue the group is to move the data: enqueuing the
 * ranks' calls, joining and ending them takes several times as long as moving a few KiB.
 *
 * <p>Thread safety: guarded by the scheduler's lock.
 */
final class PersistentGroup {
    /**
     * The most that all operations together may cost. They run with the lock held, which enqueuing
     * them would be for about a microsecond.
     */
    static final long MOST_BYTES = 16 << 10;

    /** The most participants of an operation: traffic is counted from each to each. */
    private static final int MOST_PARTICIPANTS = 32;

    private final Clique clique;
    private final List<PersistentOperation> operations = new ArrayList<>();
    private final List<Member> members = new ArrayList<>();
    private final List<CpuStream> streams = new ArrayList<>();
    private final List<DeviceBuffer> buffers = new ArrayList<>();
    private long costBytes;

    /** The operation that threw when it was run, or null. */
    private PersistentOperation broken;

    private PersistentGroup(Clique clique) {
        this.clique = clique;
    }

    /**
     * Prepares a group.
     *
     * @param calls what was recorded
     * @param batches what has just been enqueued for each of them, and has not been driven yet
     * @return null if the operations have participants whose calls are not in the group, are of
     *     several communicators, empty, traced, too large or in memory that has to be read from a
     *     file, or if the engine does not prepare them
     */
    static PersistentGroup of(List<CpuRecordedGroup.Call> calls, List<Batch> batches) {
        PersistentGroup group = new PersistentGroup(batches.getFirst().member.clique);
        List<Match> matches = new ArrayList<>();
        for (int i = 0; i < batches.size(); i++) {
            if (!group.add(batches.get(i), calls.get(i).parts(), matches)) {
                return null;
            }
        }
        for (PersistentOperation operation : group.operations) {
            if (!operation.prepare()) {
                return null;
            }
        }
        return group;
    }

    private boolean add(Batch batch, List<Part> recorded, List<Match> matches) {
        Member member = batch.member;
        if (member.clique != clique || member.seat.trace() != null) {
            return false;
        }
        members.add(member);
        for (int i = 0; i < batch.parts.size(); i++) {
            Part part = batch.parts.get(i);
            Part template = recorded.get(i);
            if (part.isEmpty()
                    || !part.match.isPostedByAll()
                    || isMapped(template.send)
                    || isMapped(template.recv)) {
                return false;
            }
            int index = matches.indexOf(part.match);
            if (index < 0) {
                index = matches.size();
                matches.add(part.match);
                if (!add(part.match, matches)) {
                    return false;
                }
            }
            operations.get(index).setPart(part.participant, template);
            addOnce(template.stream, streams);
            addOnce(template.send, buffers);
            addOnce(template.recv, buffers);
        }
        return true;
    }

    /** To touch it may mean to wait for a disk, which nobody may with the lock held. */
    private static boolean isMapped(DeviceBuffer buffer) {
        return buffer != null && buffer.isMapped();
    }

    private boolean add(Match match, List<Match> matches) {
        match.weigh();
        costBytes += match.costBytes();
        if (costBytes > MOST_BYTES || match.participants() > MOST_PARTICIPANTS) {
            return false;
        }
        SlotRing ring = clique.ring(match);
        long inRing = matches.stream().filter(each -> clique.ring(each) == ring).count();
        operations.add(new PersistentOperation(match, (int) inRing - 1));
        return true;
    }

    private static <T> void addOnce(T element, List<T> list) {
        if (element != null && !list.contains(element)) {
            list.add(element);
        }
    }

    /**
     * Whether all could be run now. Whatever else is the matter, an error included, is for who
     * enqueues the calls one by one: all that {@link CpuRecordedGroup} checks then and that {@link
     * Scheduler#enqueue} and {@link Scheduler#drive} look at has to be looked at here.
     */
    boolean isReady() {
        if (clique.cause != null
                || clique.closedMembers > 0
                || !clique.hostCalls.isEmpty()
                || FlightRecord.isEnabled()
                || OpenGroup.isOpenHere()) {
            return false;
        }
        // Indices, because iterators are objects.
        for (int i = 0; i < members.size(); i++) {
            if (members.get(i).closing) {
                return false;
            }
        }
        for (int i = 0; i < streams.size(); i++) {
            if (!streams.get(i).isIdle()) {
                return false;
            }
        }
        for (int i = 0; i < buffers.size(); i++) {
            if (buffers.get(i).isClosed()) {
                return false;
            }
        }
        for (int i = 0; i < operations.size(); i++) {
            if (!operations.get(i).isNumberingIdle()) {
                return false;
            }
        }
        return true;
    }

    /**
     * Runs all, if they are ready.
     *
     * @return null, or what was thrown while data was moved, such as for memory whose arena has
     *     been closed: then the data is undefined, nothing has been counted, and the group is to be
     *     enqueued and {@linkplain #blame blamed}
     */
    Throwable run() {
        boolean interruptedBefore = Thread.currentThread().isInterrupted();
        int running = 0;
        try {
            for (; running < operations.size(); running++) {
                operations.get(running).run();
            }
        } catch (RuntimeException | Error e) {
            broken = operations.get(running);
            if (!interruptedBefore && broken.usesClosedMemory()) {
                // As Workers.forgetInterrupt.
                Thread.interrupted();
            }
            return e;
        }
        for (int i = 0; i < operations.size(); i++) {
            operations.get(i).takeNumberAndCount();
        }
        return null;
    }

    /** Fails the communicator, whose calls have been enqueued after all, for what was thrown. */
    void blame(Throwable failure) {
        if (clique.cause == null) {
            broken.enqueuedMatch().broke(-1, failure);
        }
    }

    /** The same where there is no memory or no stack for it; the watchdog does the rest. */
    void blameWithoutWords(Throwable failure) {
        if (clique.cause == null) {
            clique.cause = clique.failureWithoutWords(failure);
        }
    }
}
