package org.nccl4j.collectives;

import java.util.Arrays;

/**
 * Payload bytes that one rank has sent to and received from each rank since its communicator was
 * made; what a rank copies to itself does not count.
 *
 * <p>Thread safety: immutable snapshot.
 *
 * @param sentBytes by destination rank
 * @param receivedBytes by source rank
 */
public record Traffic(long[] sentBytes, long[] receivedBytes) {
    /** Copies the arrays. */
    public Traffic {
        sentBytes = sentBytes.clone();
        receivedBytes = receivedBytes.clone();
    }

    /**
     * What was sent to each rank.
     *
     * @return a copy, by destination rank
     */
    @Override
    public long[] sentBytes() {
        return sentBytes.clone();
    }

    /**
     * What was received from each rank.
     *
     * @return a copy, by source rank
     */
    @Override
    public long[] receivedBytes() {
        return receivedBytes.clone();
    }

    /**
     * All bytes sent.
     *
     * @return the sum over the destinations
     */
    public long totalSentBytes() {
        return Arrays.stream(sentBytes).sum();
    }

    /**
     * All bytes received.
     *
     * @return the sum over the sources
     */
    public long totalReceivedBytes() {
        return Arrays.stream(receivedBytes).sum();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Traffic traffic
                && Arrays.equals(sentBytes, traffic.sentBytes)
                && Arrays.equals(receivedBytes, traffic.receivedBytes);
    }

    @Override
    public int hashCode() {
        return 31 * Arrays.hashCode(sentBytes) + Arrays.hashCode(receivedBytes);
    }

    @Override
    public String toString() {
        return "Traffic[sentBytes="
                + Arrays.toString(sentBytes)
                + ", receivedBytes="
                + Arrays.toString(receivedBytes)
                + "]";
    }
}
