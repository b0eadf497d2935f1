package org.nccl4j.cpu;

import org.nccl4j.collectives.CollectiveEvent;

/** Hands the record of one rank's part of an operation to the flight recorder. */
final class FlightRecord extends Chore {
    private static final CollectiveEvent SWITCH = new CollectiveEvent();

    private final CollectiveEvent event = new CollectiveEvent();

    /** Lock held; the part has ended. */
    void ended(Part part) {
        Member member = part.batch.member;
        event.communicator = member.clique.name;
        event.operation = part.kind.operation(part.sender);
        event.sequence = part.number;
        event.rank = member.rank;
        event.size = member.clique.size;
        event.countElements = part.countElements;
        event.type = part.type == null ? "" : part.type.toString();
        event.bytes = part.bytes(member.clique.size);
        long now = System.nanoTime();
        if (part.isEmpty()) {
            event.waitNanos = now - part.enqueuedNanos;
            event.runNanos = 0;
        } else {
            event.waitNanos = part.match.joinedNanos - part.enqueuedNanos;
            event.runNanos = now - part.match.joinedNanos;
        }
        event.end();
    }

    /** Whether somebody records operations. */
    static boolean isEnabled() {
        return SWITCH.isEnabled();
    }

    /** Starts to measure a part. */
    static void enqueued(Part part) {
        part.record = new FlightRecord();
        part.record.event.begin();
        part.enqueuedNanos = System.nanoTime();
    }

    @Override
    Chore perform(long budgetBytes) {
        event.commit();
        return null;
    }
}
