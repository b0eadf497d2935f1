package org.nccl4j.cpu;

/**
 * Which chunk a rank sends and receives in each step of a ring over n ranks; all arithmetic is
 * modulo n. Rank r sends to r + 1 and receives from r - 1. The two schedules differ by one: where a
 * chunk's sum starts, and so who ends with it.
 */
enum RingSchedule {
    /**
     * Reduce-scatter step s: send r - s, receive r - s - 1; rank r ends with chunk r + 1, which is
     * x[r] + (x[r-1] + (... + x[r+1])). All-gather step s: send r + 1 - s, receive r - s.
     */
    A(0),

    /**
     * Reduce-scatter step s: send r - s - 1, receive r - s - 2; rank r ends with chunk r, which is
     * x[r] + (x[r-1] + (... + x[r+1])). All-gather step s: send r - s, receive r - s - 1. What the
     * public reduce-scatter and all-gather promise.
     */
    B(1);

    private final int shift;

    RingSchedule(int shift) {
        this.shift = shift;
    }

    /** The chunk that a rank sends in a step of the reduce-scatter. */
    int reduceScatterSend(int rank, int step, int ranks) {
        return Math.floorMod(rank - step - shift, ranks);
    }

    /** The chunk that a rank receives, and adds its own to, in a step of the reduce-scatter. */
    int reduceScatterReceive(int rank, int step, int ranks) {
        return Math.floorMod(rank - step - 1 - shift, ranks);
    }

    /** The chunk that a rank sends in a step of the all-gather. */
    int allGatherSend(int rank, int step, int ranks) {
        return Math.floorMod(rank + 1 - step - shift, ranks);
    }

    /** The chunk that a rank receives in a step of the all-gather. */
    int allGatherReceive(int rank, int step, int ranks) {
        return Math.floorMod(rank - step - shift, ranks);
    }
}
