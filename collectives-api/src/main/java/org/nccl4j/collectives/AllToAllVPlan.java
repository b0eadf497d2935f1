package org.nccl4j.collectives;

/**
 * What one rank sends to and receives from every rank, in elements. Rank r's {@code send} count for
 * s must equal rank s's {@code receive} count for r; {@link Communicator#exchangeCounts} tells the
 * receive counts when only the send counts are known.
 *
 * <p>Thread safety: immutable.
 *
 * @param send blocks of the send buffer, by destination
 * @param receive blocks of the receive buffer, by source
 */
public record AllToAllVPlan(BlockLayout send, BlockLayout receive) {
    /** Refuses a missing half and halves for different numbers of ranks. */
    public AllToAllVPlan {
        if (send == null || receive == null) {
            throw new InvalidArgumentException(
                    "an all-to-all-v plan needs both halves, got send "
                            + send
                            + " and receive "
                            + receive);
        }
        if (send.ranks() != receive.ranks()) {
            throw new InvalidArgumentException(
                    "an all-to-all-v plan needs as many send as receive blocks, got "
                            + send.ranks()
                            + " and "
                            + receive.ranks());
        }
    }

    /**
     * A plan from counts and offsets, all in elements, one per rank.
     *
     * @param sendCountsElements elements to each rank
     * @param sendOffsetsElements where they start in the send buffer
     * @param recvCountsElements elements from each rank
     * @param recvOffsetsElements where they go in the receive buffer
     * @throws InvalidArgumentException if lengths differ, a number is negative, or two blocks
     *     overlap
     */
    public AllToAllVPlan(
            long[] sendCountsElements,
            long[] sendOffsetsElements,
            long[] recvCountsElements,
            long[] recvOffsetsElements) {
        this(
                BlockLayout.of(sendCountsElements, sendOffsetsElements),
                BlockLayout.of(recvCountsElements, recvOffsetsElements));
    }

    /**
     * The number of ranks it is for.
     *
     * @return the number of blocks in each half
     */
    public int ranks() {
        return send.ranks();
    }
}
