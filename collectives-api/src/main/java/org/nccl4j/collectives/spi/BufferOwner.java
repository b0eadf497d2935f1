package org.nccl4j.collectives.spi;

/**
 * Frees one allocation. A backend's subclass also counts the work in flight that uses it, so that
 * {@link #release} can put off the freeing until the streams have passed that work.
 *
 * <p>Thread safety: {@link #release} may be called from any thread.
 */
public abstract class BufferOwner {
    /** For subclasses. */
    protected BufferOwner() {}

    /** Called once, when the owner of the buffer closes it. Must not wait for work. */
    public abstract void release();
}
