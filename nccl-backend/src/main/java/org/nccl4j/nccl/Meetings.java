package org.nccl4j.nccl;

import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.collectives.spi.Durations;

/**
 * Where ranks of this process that hold the same id find each other, so that what cannot work is
 * refused before NCCL waits for it, and so that they end together.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class Meetings {
    private static final Map<UniqueId, Clique> BY_ID = new HashMap<>();

    /** Lets several ranks share a GPU, since 2.30. */
    private static final String SHARED_GPU = "NCCL_MULTI_RANK_GPU_ENABLE";

    private static final int FINGERPRINT_BYTES = 12;

    private Meetings() {}

    /** Comes to a meeting; the others of this process may have come or not. */
    static Member come(
            UniqueId id, int rank, int size, NcclDevice device, CommunicatorConfig config) {
        synchronized (BY_ID) {
            BY_ID.values().removeIf(Clique::isOver);
            Clique clique = BY_ID.get(id);
            if (clique == null) {
                clique = new Clique(config.name(), fingerprint(id), size, config);
                BY_ID.put(id, clique);
            }
            requireWelcome(clique, id, rank, size, device, config);
            return clique.add(rank, device, config);
        }
    }

    /** Names a communicator to all ranks that have its id, and to nobody else. */
    static String fingerprint(UniqueId id) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(id.toBytes());
            return HexFormat.of().formatHex(hash, 0, FINGERPRINT_BYTES);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }

    /** Takes a rank's coming back. */
    static void withdraw(UniqueId id, Member member) {
        synchronized (BY_ID) {
            member.clique.remove(member);
            if (member.clique.local().isEmpty()) {
                BY_ID.remove(id, member.clique);
            }
        }
    }

    private static void requireWelcome(
            Clique clique,
            UniqueId id,
            int rank,
            int size,
            NcclDevice device,
            CommunicatorConfig config) {
        if (clique.size != size) {
            throw new InvalidArgumentException(
                    Initialization.where(rank, size, config)
                            + "the other ranks with "
                            + id
                            + " have come with size "
                            + clique.size
                            + ", this one with "
                            + size
                            + "; give all the same size");
        }
        for (Member other : clique.local()) {
            if (other.rank == rank) {
                throw new InvalidArgumentException(
                        Initialization.where(rank, size, config)
                                + "another caller with "
                                + id
                                + " is rank "
                                + rank
                                + " already, on device "
                                + other.device.ordinal()
                                + "; give each rank its own number");
            }
            if (!agree(other.config, config)) {
                throw new InvalidArgumentException(
                        Initialization.where(rank, size, config)
                                + "ranks with "
                                + id
                                + " disagree about the configuration; give all the same name,"
                                + " operationTimeout and abortOnFailure, and all or none a"
                                + " consistencyCheck, and come again:"
                                + table(clique.local(), rank, config));
            }
            if (other.device.ordinal() == device.ordinal() && !isGpuShared()) {
                throw new InvalidArgumentException(
                        Initialization.where(rank, size, config)
                                + "device "
                                + device.ordinal()
                                + " ("
                                + device.busId()
                                + ") is rank "
                                + other.rank
                                + "'s already; give each rank a GPU of its own with"
                                + " config.withDevice, or set "
                                + SHARED_GPU
                                + "=1");
            }
        }
    }

    /** Whether ranks may share a GPU. */
    static boolean isGpuShared() {
        return "1".equals(NcclEnvironment.value(SHARED_GPU));
    }

    private static boolean agree(CommunicatorConfig one, CommunicatorConfig other) {
        return one.name().equals(other.name())
                && one.operationTimeout().equals(other.operationTimeout())
                && one.abortOnFailure() == other.abortOnFailure()
                && one.consistencyCheck().isPresent() == other.consistencyCheck().isPresent();
    }

    /** What those who have come and a newcomer want, a line each. */
    private static String table(List<Member> present, int newcomer, CommunicatorConfig wanted) {
        StringBuilder table = new StringBuilder();
        present.forEach(member -> row(table, member.rank, member.config));
        row(table, newcomer, wanted);
        return table.toString();
    }

    private static void row(StringBuilder table, int rank, CommunicatorConfig config) {
        table.append(System.lineSeparator())
                .append("  rank ")
                .append(rank)
                .append(": name '")
                .append(config.name())
                .append("', operationTimeout ")
                .append(Durations.text(config.operationTimeout()))
                .append(", abortOnFailure ")
                .append(config.abortOnFailure())
                .append(config.consistencyCheck().isPresent() ? ", consistencyCheck" : "");
    }
}
