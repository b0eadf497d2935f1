package org.nccl4j.collectives;

import java.util.List;

/**
 * Whether a backend can be used in this process.
 *
 * <p>Thread safety: immutable.
 */
public sealed interface Availability {
    /**
     * It can.
     *
     * @param summary one line: versions, libraries, devices
     */
    record Available(String summary) implements Availability {}

    /**
     * It cannot.
     *
     * @param reasons each obstacle in one line, with the remedy; at least one
     */
    record Unavailable(List<String> reasons) implements Availability {
        /** Copies the reasons and refuses none. */
        public Unavailable {
            reasons = List.copyOf(reasons);
            if (reasons.isEmpty()) {
                throw new InvalidArgumentException("an unavailable backend must give a reason");
            }
        }
    }
}
