package org.nccl4j.collectives;

/**
 * A meeting through a store. What the ranks tell each other there ({@link RankInfo}) lets clashes
 * be refused with a table before anything hangs.
 *
 * @param store where they meet
 * @param job a name that only the ranks of this communicator use in the store
 */
public record Rendezvous(Store store, String job) implements Bootstrap {
    /** Refuses missing parts. */
    public Rendezvous {
        if (store == null || job == null || job.isBlank()) {
            throw new InvalidArgumentException(
                    "a rendezvous needs a store and a job name, got " + store + ", " + job);
        }
    }
}
