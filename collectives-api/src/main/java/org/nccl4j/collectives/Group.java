package org.nccl4j.collectives;

/**
 * Collects operations that are issued together, for one or several communicators.
 *
 * <p>Thread safety: valid only inside the body that received it, on that body's thread; its {@link
 * Operations} too.
 */
public interface Group {
    /**
     * The operations of a communicator, recorded instead of enqueued. Arguments are validated when
     * recorded.
     *
     * @param communicator a communicator of the group's backend
     * @return its operations within this group
     * @throws InvalidArgumentException outside the body, on another thread, or for another
     *     backend's communicator
     */
    Operations on(Communicator communicator);
}
