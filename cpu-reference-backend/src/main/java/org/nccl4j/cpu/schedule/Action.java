package org.nccl4j.cpu.schedule;

/**
 * One thing that a rank does. Runs of several chunks are at consecutive places.
 *
 * <p>Thread safety: immutable.
 *
 * @param step 0, 1, ...; what has one step happens at the same time as far as data allows
 * @param kind what
 * @param peer to whom or from whom; -1 if the rank does it alone
 * @param chunk the first chunk
 * @param chunks how many chunks running
 * @param source where the rank's own data is read; null for {@link Kind#RECEIVE}
 * @param target where the result goes; null for {@link Kind#SEND}
 * @param completes whether the result is then reduced over all ranks
 */
public record Action(
        int step,
        Kind kind,
        int peer,
        int chunk,
        int chunks,
        Place source,
        Place target,
        boolean completes) {
    /** The five things that a rank can do: two of them need no peer. */
    public enum Kind {
        /** Sends from source. It may be overwritten only after the receiver has read it. */
        SEND,
        /** target = what peer sent. */
        RECEIVE,
        /** target = source (+) what peer sent. */
        REDUCE,
        /** target = source. */
        COPY,
        /** target = source (+) target. */
        COMBINE
    }

    /** Whether it takes a message. */
    boolean receives() {
        return kind == Kind.RECEIVE || kind == Kind.REDUCE;
    }

    @Override
    public String toString() {
        String what =
                chunks == 1 ? "chunk " + chunk : "chunks " + chunk + "-" + (chunk + chunks - 1);
        String text =
                switch (kind) {
                    case SEND -> "sends " + what + " from " + source + " to rank " + peer;
                    case RECEIVE -> "receives " + what + " from rank " + peer + " into " + target;
                    case REDUCE ->
                            "reduces "
                                    + what
                                    + " from rank "
                                    + peer
                                    + " with "
                                    + source
                                    + " into "
                                    + target;
                    case COPY -> "copies " + what + " from " + source + " to " + target;
                    case COMBINE -> "reduces " + what + " from " + source + " into " + target;
                };
        return "step " + step + ": " + text + (completes ? ", complete" : "");
    }
}
