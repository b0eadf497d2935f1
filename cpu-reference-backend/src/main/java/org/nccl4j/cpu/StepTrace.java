package org.nccl4j.cpu;

/** Takes one record per step of an algorithm. Thread safety: any thread may call it. */
interface StepTrace {
    /**
     * A message was sent.
     *
     * @param operation the operation
     * @param step 0, 1, ... within the algorithm
     * @param participant who sent
     * @param peer who receives, as participant index
     * @param chunk the algorithm's chunk or block number
     * @param offsetBytes where the piece starts in its chunk
     * @param bytes payload
     */
    void sent(
            JoinedOperation operation,
            int step,
            int participant,
            int peer,
            int chunk,
            long offsetBytes,
            long bytes);
}
