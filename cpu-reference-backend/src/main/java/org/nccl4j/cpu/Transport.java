package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;

/**
 * Ordered channels between ranks, all that {@link ScheduleRank} knows of where the others are.
 * Nothing here waits: a rank that cannot go on says so and is asked again.
 *
 * <p>Thread safety: one thread at a time uses the ends of one rank; ends of different ranks are
 * used side by side.
 */
interface Transport {
    /** The end at which a rank sends to a peer. */
    Outgoing outgoing(int rank, int peer);

    /** The end at which a rank receives from a peer. */
    Incoming incoming(int rank, int peer);

    /** Where a rank posts ranges of its memory; they arrive in the order of posting. */
    interface Outgoing {
        /** Whether so many more ranges may be posted. */
        boolean hasRoom(int ranges);

        /** Posts a range, which must not change until it is released. */
        void post(MemorySegment segment, long offsetBytes, long sizeBytes);

        /**
         * How many ranges of this operation, the oldest first, may be overwritten: they have been
         * read, or copied to where the receiver will read them.
         */
        long released();
    }

    /** Where a rank sees the ranges that a peer posted. */
    interface Incoming {
        /** Whether a range is there whole. */
        boolean hasMessage();

        /** The memory in which the oldest range is: the sender's own, or where it was received. */
        MemorySegment segment();

        /** Where that range starts. */
        long offsetBytes();

        /** How long that range is. */
        long sizeBytes();

        /** Gives the oldest range back. */
        void acknowledge();
    }
}
