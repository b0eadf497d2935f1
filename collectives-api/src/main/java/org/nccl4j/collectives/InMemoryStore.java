package org.nccl4j.collectives;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.nccl4j.collectives.spi.Durations;

/**
 * A {@link Store} for the ranks of one process.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
public final class InMemoryStore implements Store {
    private final Map<String, byte[]> values = new HashMap<>();

    /** An empty store. */
    public InMemoryStore() {}

    @Override
    public synchronized boolean setIfAbsent(String key, byte[] value) {
        if (key == null || value == null) {
            throw new InvalidArgumentException(
                    "a store needs a key and a value, got key "
                            + (key == null ? "null" : "'" + key + "' without a value"));
        }
        boolean set = values.putIfAbsent(key, value.clone()) == null;
        notifyAll();
        return set;
    }

    @Override
    public synchronized Optional<byte[]> get(String key, Duration timeout) {
        if (key == null) {
            throw new InvalidArgumentException("a store needs a key, got null");
        }
        long start = System.nanoTime();
        long budgetNanos = Durations.saturatedNanos(timeout);
        while (!values.containsKey(key)) {
            long leftNanos = budgetNanos - (System.nanoTime() - start);
            if (leftNanos <= 0) {
                return Optional.empty();
            }
            try {
                // Rounded up, so that a rest below a millisecond does not wait for ever.
                wait(leftNanos / 1_000_000 + 1);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new WaitInterruptedException(
                        "interrupted while waiting for the store's key '"
                                + key
                                + "'; the store is unchanged, get may be called again",
                        e);
            }
        }
        return Optional.of(values.get(key).clone());
    }
}
