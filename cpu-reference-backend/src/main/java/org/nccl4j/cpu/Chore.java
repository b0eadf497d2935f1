package org.nccl4j.cpu;

/**
 * Something that a state change left to do without the scheduler's lock, by the thread that made
 * the change: wake a waiter, run a small operation, free memory, write a log record.
 */
abstract class Chore {
    /** The next one in the list of the thread that does them. */
    Chore next;

    /**
     * Does it. Never throws.
     *
     * @param budgetBytes how much work of operations that become ready may come with what follows
     * @return what follows from it, or null
     */
    abstract Chore perform(long budgetBytes);
}
