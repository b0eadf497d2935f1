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
     * The most that all operations together may cost: they run with the lock held, so that moving
     * them must not take longer than what else is done with it.
     */
    static final long MOST_BYTES = 16 << 10;

    private final Clique clique;
    private final List<PersistentOperation> operations = new ArrayList<>();
    private final List<Member> members = new ArrayList<>();
    private final List<CpuStream> streams = new ArrayList<>();
    private final List<DeviceBuffer> buffers = new ArrayList<>();

    /** How many operations are done of those that are being run. */
    private int done;

    private PersistentGroup(Clique clique) {
        this.clique = clique;
    }

    /**
     * Prepares a group.
     *
     * @param calls what was recorded
     * @param batches what has just been enqueued for each of them, and has not been driven yet
     * @return null if its operations need more than the group, or are too large, or the engine
     *     wants each of them to be started anew
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
            if (part.isEmpty() || !part.match.isPostedByAll()) {
                return false;
            }
            addOnce(part.match, matches);
            if (costBytes(matches) > MOST_BYTES) {
                return false;
            }
            if (operations.size() < matches.size()) {
                operations.add(new PersistentOperation(part.match, inSameRing(matches) - 1));
            }
            operations.get(matches.indexOf(part.match)).setPart(part.participant, template);
            addOnce(template.stream, streams);
            addOnce(template.send, buffers);
            addOnce(template.recv, buffers);
        }
        return true;
    }

    private static <T> void addOnce(T element, List<T> list) {
        if (element != null && !list.contains(element)) {
            list.add(element);
        }
    }

    private static long costBytes(List<Match> matches) {
        long bytes = 0;
        for (Match match : matches) {
            match.weigh();
            bytes += match.costBytes();
        }
        return bytes;
    }

    /** How many are in the ring of the last, itself included. */
    private int inSameRing(List<Match> matches) {
        SlotRing ring = clique.ring(matches.getLast());
        return (int) matches.stream().filter(match -> clique.ring(match) == ring).count();
    }

    /**
     * Whether all could be run at once. Whatever else is the matter, an error included, is for who
     * enqueues the calls one by one.
     */
    boolean isReady() {
        if (clique.cause != null
                || clique.closedMembers > 0
                || !clique.hostCalls.isEmpty()
                || FlightRecord.isEnabled()
                || OpenGroup.isAnyOpen()) {
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
            if (!operations.get(i).isNext()) {
                return false;
            }
        }
        return true;
    }

    /**
     * Runs all, if they are ready.
     *
     * @throws RuntimeException what has been thrown while data was moved, such as for memory whose
     *     arena has been closed, or an Error: then the data is undefined, nothing has been counted,
     *     and {@link #blame} is to follow
     */
    void run() {
        boolean interruptedBefore = Thread.currentThread().isInterrupted();
        try {
            for (done = 0; done < operations.size(); done++) {
                operations.get(done).run();
            }
        } catch (RuntimeException | Error e) {
            if (!interruptedBefore && operations.get(done).usesClosedMemory()) {
                // As Workers.forgetInterrupt.
                Thread.interrupted();
            }
            throw e;
        }
        for (int i = 0; i < operations.size(); i++) {
            operations.get(i).count();
        }
    }

    /** Fails the communicator, whose calls have been enqueued after all, for what was thrown. */
    void blame(Throwable failure) {
        if (clique.cause == null) {
            operations.get(done).enqueued().broke(-1, failure);
        }
    }
}
