package org.nccl4j.contract;

import java.util.List;
import java.util.function.Function;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Operations;

/**
 * What each rank does, in three steps, so that one thread can drive all ranks as well as a thread
 * per rank: fill buffers, enqueue, and, once the streams are done, check.
 */
interface RankProgram {
    String id();

    void prepare(Rank rank);

    /**
     * Enqueues.
     *
     * @param rank who
     * @param on a communicator's operations: its own, or those of the open group
     */
    void issue(Rank rank, Function<Communicator, Operations> on);

    /** The streams that {@link #issue} uses. */
    default List<DeviceStream> streams(Rank rank) {
        return List.of(rank.stream());
    }

    /** Throws an {@link AssertionError} if anything is not as it must be. */
    void check(Rank rank);
}
