package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;

/**
 * Operations of one rank that were issued together, on one or several streams: one for a plain
 * call, more for a group. It starts when it heads all its streams and holds them until its last
 * operation ends. Guarded by the scheduler's lock; used again and again.
 */
final class Batch {
    final Member member;
    final List<Part> parts = new ArrayList<>(1);
    final List<CpuStream> streams = new ArrayList<>(1);

    /** Streams that it does not head yet. */
    int streamsAhead;

    /** Operations that have not ended. */
    int operationsLeft;

    boolean started;

    /** Given up: streams pass it as if it were not there. */
    boolean cancelled;

    /** The host call that it comes after and has to wait for, or null. */
    HostCall after;

    /** Neighbours among the rank's unfinished batches. */
    Batch newer;

    Batch older;

    Batch(Member member) {
        this.member = member;
    }

    /** Whether a host call has to be done before it may start. */
    boolean waitsForHostCall() {
        return after != null && !after.isDone();
    }

    void addStream(CpuStream stream) {
        for (int i = 0; i < streams.size(); i++) {
            if (streams.get(i) == stream) {
                return;
            }
        }
        streams.add(stream);
    }
}
