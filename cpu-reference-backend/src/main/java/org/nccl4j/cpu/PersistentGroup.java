package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;
import org.nccl4j.collectives.DeviceBuffer;

/**
 * The operations of a recorded group that brings all their participants itself, prepared to be
 * carried out again and again: what MPI calls persistent. What was recorded does not change, so
 * once its parts have been found to agree they always do. While nothing else is going on where they
 * belong, and they are small, to issue the group is to move the data: enqueuing the ranks' calls,
 * joining and ending them takes several times as long as moving a few KiB.
 *
 * <p>Thread safety: made by one thread, then guarded by the scheduler's lock.
 */
final class PersistentGroup {
    /**
     * The most that all operations together may cost. They run with the lock held, and no longer
     * than it would be to enqueue them: about a microsecond.
     */
    static final long MOST_BYTES = 16 << 10;

    /** More cost too much: known early, as each is looked for among the others. */
    private static final int MOST_OPERATIONS = (int) (MOST_BYTES / Work.LEAST_COST_BYTES);

    /** The most participants of an operation: traffic is counted from each to each. */
    private static final int MOST_PARTICIPANTS = 32;

    private final Clique clique;
    private final PersistentOperation[] operations;
    private final CpuStream[] streams;
    private final DeviceBuffer[] buffers;

    /** The operation that threw when it was run, or null. */
    private PersistentOperation broken;

    private PersistentGroup(Builder builder) {
        this.clique = builder.clique;
        this.operations = builder.operations.toArray(PersistentOperation[]::new);
        this.streams = builder.streams.toArray(CpuStream[]::new);
        this.buffers = builder.buffers.toArray(DeviceBuffer[]::new);
    }

    /**
     * Prepares a group. Lock not held: it may take long. What is looked at here does not change.
     *
     * @param calls what was recorded
     * @return null if the operations do not agree, have participants whose calls are not in the
     *     group, write memory that lies between that of others, are of several communicators,
     *     empty, traced, too large or in memory that has to be read from a file, or if the engine
     *     does not prepare them
     */
    static PersistentGroup of(List<CpuRecordedGroup.Call> calls) {
        if (calls.isEmpty()) {
            return null;
        }
        Builder builder = new Builder(calls.getFirst().communicator().member().clique);
        for (CpuRecordedGroup.Call call : calls) {
            if (!builder.add(call)) {
                return null;
            }
        }
        return builder.prepare() ? new PersistentGroup(builder) : null;
    }

    /**
     * Whether all could be run now. Whatever else is the matter, an error included, is for who
     * enqueues the calls one by one: all that {@link CpuRecordedGroup} checks then and that {@link
     * Scheduler#enqueue} and {@link Scheduler#drive} look at has to be looked at here.
     */
    boolean isReady() {
        if (clique.cause != null
                || clique.closingMembers > 0
                || clique.closedMembers > 0
                || !clique.hostCalls.isEmpty()
                || FlightRecord.isEnabled()
                || OpenGroup.isOpenHere()) {
            return false;
        }
        for (CpuStream stream : streams) {
            if (!stream.isIdle()) {
                return false;
            }
        }
        for (DeviceBuffer buffer : buffers) {
            if (buffer.isClosed()) {
                return false;
            }
        }
        for (PersistentOperation operation : operations) {
            if (!operation.isNumberingIdle()) {
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
            for (; running < operations.length; running++) {
                operations[running].run();
            }
        } catch (RuntimeException | Error e) {
            broken = operations[running];
            if (!interruptedBefore && broken.usesClosedMemory()) {
                // As Workers.forgetInterrupt.
                Thread.interrupted();
            }
            return e;
        }
        for (PersistentOperation operation : operations) {
            operation.takeNumberAndCount();
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

    /** Finds the operations of what was recorded. */
    private static final class Builder {
        private final Clique clique;
        private final List<PersistentOperation> operations = new ArrayList<>();
        private final List<CpuStream> streams = new ArrayList<>();
        private final List<DeviceBuffer> buffers = new ArrayList<>();
        private long bytes;

        Builder(Clique clique) {
            this.clique = clique;
        }

        /** Takes what a rank has recorded, unless that shows already that it cannot be prepared. */
        boolean add(CpuRecordedGroup.Call call) {
            Member member = call.communicator().member();
            if (member.clique != clique || member.seat.trace() != null) {
                return false;
            }
            for (Part part : call.parts()) {
                if (part.isEmpty() || isMapped(part.send) || isMapped(part.recv)) {
                    return false;
                }
                SlotRing ring = ring(member, part);
                if (ring.participants() > MOST_PARTICIPANTS) {
                    return false;
                }
                operation(ring, part.participant).setPart(part);
                // Not all of the cost, but soon there for what is large.
                bytes += part.bytes(clique.size);
                if (bytes > MOST_BYTES || operations.size() > MOST_OPERATIONS) {
                    return false;
                }
                addOnce(part.stream, streams);
                addOnce(part.send, buffers);
                addOnce(part.recv, buffers);
            }
            return true;
        }

        /** To touch it may mean to wait for a disk, which nobody may with the lock held. */
        private static boolean isMapped(DeviceBuffer buffer) {
            return buffer != null && buffer.isMapped();
        }

        /** That of a pair is made on first use. */
        private static SlotRing ring(Member member, Part part) {
            synchronized (member.clique.scheduler) {
                return member.ring(part);
            }
        }

        /** The first operation in a ring that a participant's part is missing of. */
        private PersistentOperation operation(SlotRing ring, int participant) {
            int position = 0;
            for (PersistentOperation operation : operations) {
                if (operation.isIn(ring)) {
                    if (operation.part(participant) == null) {
                        return operation;
                    }
                    position++;
                }
            }
            PersistentOperation operation = new PersistentOperation(clique, ring, position);
            operations.add(operation);
            return operation;
        }

        private static <T> void addOnce(T element, List<T> list) {
            if (element != null && !list.contains(element)) {
                list.add(element);
            }
        }

        /** Has the engine prepare all, if they agree and are not too much together. */
        boolean prepare() {
            Overlaps overlaps = new Overlaps(clique.size);
            long costBytes = 0;
            for (PersistentOperation operation : operations) {
                if (!operation.isAgreed()
                        || !overlaps.areApart(operation)
                        || !operation.prepare()) {
                    return false;
                }
                // After the engine has chosen how to carry it out.
                costBytes += operation.costBytes();
            }
            return costBytes <= MOST_BYTES;
        }
    }
}
