package org.nccl4j.collectives;

/**
 * Payload bytes that one rank has sent to and received from each rank since its communicator was
 * made; what a rank copies to itself does not count. Thread safety: immutable snapshot.
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

    /** {@inheritDoc} A copy. */
    @Override
    public long[] sentBytes() {
        return sentBytes.clone();
    }

    /** {@inheritDoc} A copy. */
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
        long total = 0;
        for (long bytes : sentBytes) {
            total += bytes;
        }
        return total;
    }

    /**
     * All bytes received.
     *
     * @return the sum over the sources
     */
    public long totalReceivedBytes() {
        long total = 0;
        for (long bytes : receivedBytes) {
            total += bytes;
        }
        return total;
    }
}
