package org.nccl4j.collectives;

import java.net.InetAddress;
import java.net.UnknownHostException;

/**
 * What a rank tells the others when they meet through a {@link Rendezvous}.
 *
 * @param rank its number
 * @param size the number of ranks that it expects
 * @param host its host name
 * @param processId its operating-system process id
 * @param deviceOrdinal the device that it will use
 * @param version nccl4j's version and the backend's library version
 */
public record RankInfo(
        int rank, int size, String host, long processId, int deviceOrdinal, String version) {
    /** Refuses a rank that is out of range, and missing texts. */
    public RankInfo {
        if (size < 1 || rank < 0 || rank >= size) {
            throw new InvalidArgumentException(
                    "rank " + rank + " of " + size + "; must be 0 to size - 1");
        }
        if (host == null || version == null) {
            throw new InvalidArgumentException(
                    "rank " + rank + " needs host and version, got " + host + " and " + version);
        }
    }

    /**
     * A rank of this process.
     *
     * @param rank its number
     * @param size the number of ranks that it expects
     * @param deviceOrdinal the device that it will use
     * @param version nccl4j's version and the backend's library version
     * @return the rank with this machine's host name and this process's id
     */
    public static RankInfo ofThisProcess(int rank, int size, int deviceOrdinal, String version) {
        String host;
        try {
            host = InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException e) {
            // A machine that does not know its own name still has ranks that can meet.
            host = "localhost";
        }
        return new RankInfo(
                rank, size, host, ProcessHandle.current().pid(), deviceOrdinal, version);
    }
}
