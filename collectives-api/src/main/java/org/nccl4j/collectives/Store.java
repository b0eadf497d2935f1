package org.nccl4j.collectives;

import java.time.Duration;
import java.util.Optional;

/**
 * A small key-value store that all ranks of a job see. Keys are set once.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
public interface Store {
    /**
     * Sets a key if it has no value yet.
     *
     * @param key the key
     * @param value the value, copied
     * @return true if this call set it, false if it had a value, which stays
     * @throws InvalidArgumentException if key or value is null
     */
    boolean setIfAbsent(String key, byte[] value);

    /**
     * Waits for a key.
     *
     * @param key the key
     * @param timeout how long at most; zero asks without waiting
     * @return a copy of the value, or empty if time ran out
     * @throws InvalidArgumentException if the key is null
     * @throws WaitInterruptedException if the thread is or gets interrupted while it waits
     */
    Optional<byte[]> get(String key, Duration timeout);
}
