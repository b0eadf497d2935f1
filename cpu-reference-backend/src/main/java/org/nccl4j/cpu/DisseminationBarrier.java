package org.nccl4j.cpu;

import org.nccl4j.cpu.Engine.Progress;

/**
 * Barrier in ceil(log2 n) rounds: in round j rank r sends an empty message to r + 2^j and waits for
 * one from r - 2^j. After the last round each has heard, directly or not, of all.
 */
final class DisseminationBarrier extends Algorithm {
    @Override
    long steps(int participants) {
        int rounds = Integer.SIZE - Integer.numberOfLeadingZeros(participants - 1);
        return (long) participants * rounds;
    }

    @Override
    void prepare(ReferenceRun run) {
        for (int distance = 1; distance < run.participants(); distance *= 2) {
            run.connect(distance);
        }
    }

    @Override
    Progress progress(ReferenceRun run, Cursor cursor) {
        int distance = 1 << cursor.step;
        if (distance >= run.participants()) {
            return Progress.DONE;
        }
        int me = cursor.participant;
        boolean moved = false;
        if (!cursor.posted) {
            run.outgoing(me, distance).post(null, 0, 0);
            run.sent(me, run.after(me, distance), cursor.step, 0, 0, 0);
            cursor.posted = true;
            moved = true;
        }
        Edge in = run.incoming(me, distance);
        if (!in.hasMessage()) {
            return moved ? Progress.ADVANCED : Progress.BLOCKED;
        }
        in.acknowledge();
        cursor.posted = false;
        cursor.step++;
        return Progress.ADVANCED;
    }
}
