package org.nccl4j.collectives;

/**
 * What a rank tells the others when they meet.
 *
 * @param rank its number
 * @param size the number of ranks that it expects
 * @param host its host name
 * @param processId its operating-system process id
 * @param deviceOrdinal the device that it will use
 * @param version nccl4j's version and the backend's library version
 */
public record RankInfo(
        int rank, int size, String host, long processId, int deviceOrdinal, String version) {}
