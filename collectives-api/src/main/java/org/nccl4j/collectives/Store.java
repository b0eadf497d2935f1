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
     */
    boolean setIfAbsent(String key, byte[] value);

    /**
     * Waits for a key.
     *
     * @param key the key
     * @param timeout how long at most; zero asks without waiting
     * @return a copy of the value, or empty if time ran out
     * @throws WaitInterruptedException if the thread is interrupted
     */
    Optional<byte[]> get(String key, Duration timeout);
}
