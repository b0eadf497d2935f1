package org.nccl4j.cpu;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.Optional;
import java.util.StringJoiner;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.RankInfo;
import org.nccl4j.collectives.Rendezvous;
import org.nccl4j.collectives.Store;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.collectives.spi.Durations;

/**
 * Ranks tell each other in a store who they are, and refuse what cannot work before anything waits
 * for it. Thread safety: one thread.
 */
final class StoreMeeting {
    private static final String VERSION = "nccl4j cpu";

    private final Store store;
    private final String prefix;
    private final String where;
    private final RankInfo self;
    private final long startNanos;
    private final CommunicatorConfig config;

    private StoreMeeting(
            Rendezvous rendezvous, int rank, int size, CommunicatorConfig config, long startNanos) {
        this.startNanos = startNanos;
        this.store = rendezvous.store();
        this.prefix = "nccl4j/" + rendezvous.job() + "/";
        this.where =
                "create of communicator '"
                        + config.name()
                        + "' on rank "
                        + rank
                        + "/"
                        + size
                        + " (job '"
                        + rendezvous.job()
                        + "'): ";
        this.config = config;
        this.self =
                new RankInfo(
                        rank,
                        size,
                        hostName(),
                        ProcessHandle.current().pid(),
                        config.deviceOrdinal().orElse(rank),
                        VERSION);
    }

    /** Meets the other ranks and returns the id that rank 0 has given. */
    static UniqueId agree(
            CpuBackend backend,
            Rendezvous rendezvous,
            int rank,
            int size,
            CommunicatorConfig config,
            long startNanos) {
        StoreMeeting meeting = new StoreMeeting(rendezvous, rank, size, config, startNanos);
        meeting.announce();
        meeting.check(meeting.everybody());
        return meeting.id(backend);
    }

    private void announce() {
        String key = prefix + "rank/" + self.rank();
        if (store.setIfAbsent(key, encode(self))) {
            return;
        }
        RankInfo other = decode(store.get(key, Duration.ZERO).orElseThrow());
        // The same process may come again after a timeout.
        if (!other.equals(self)) {
            throw new InvalidArgumentException(
                    where
                            + "rank "
                            + self.rank()
                            + " is taken; give each rank its own number and each job its own name:"
                            + table(other, self));
        }
    }

    private RankInfo[] everybody() {
        RankInfo[] infos = new RankInfo[self.size()];
        StringJoiner missing = new StringJoiner(", ");
        missing.setEmptyValue("");
        for (int rank = 0; rank < infos.length; rank++) {
            Optional<byte[]> value = store.get(prefix + "rank/" + rank, left());
            if (value.isPresent()) {
                infos[rank] = decode(value.get());
            } else {
                missing.add("rank " + rank);
            }
        }
        if (missing.length() > 0) {
            throw new CollectiveTimeoutException(
                    where
                            + missing
                            + " did not come within "
                            + Wording.time(config.operationTimeout())
                            + "; nothing was made, start the missing ranks and call create again",
                    false);
        }
        return infos;
    }

    private void check(RankInfo[] infos) {
        for (RankInfo info : infos) {
            if (info.size() != self.size()) {
                throw new InvalidArgumentException(
                        where + "ranks disagree about the size; give all the same:" + table(infos));
            }
            if (!info.version().equals(self.version())) {
                throw new InvalidArgumentException(
                        where
                                + "ranks use different versions; install the same everywhere:"
                                + table(infos));
            }
            if (info.processId() != self.processId() || !info.host().equals(self.host())) {
                throw new UnsupportedException(
                        where
                                + "the CPU backend so far connects ranks of one process only; run"
                                + " them as threads:"
                                + table(infos));
            }
        }
    }

    private UniqueId id(CpuBackend backend) {
        String key = prefix + "id";
        if (self.rank() == 0) {
            store.setIfAbsent(key, backend.newUniqueId().toBytes());
        }
        byte[] bytes =
                store.get(key, left())
                        .orElseThrow(() ->
                                new CollectiveTimeoutException(
                                        where
                                                + "rank 0 gave no id within "
                                                + Wording.time(config.operationTimeout())
                                                + "; nothing was made, call create again",
                                        false));
        return new UniqueId(bytes);
    }

    private Duration left() {
        long budgetNanos = Durations.saturatedNanos(config.operationTimeout());
        return Duration.ofNanos(Math.max(0, Workers.left(startNanos, budgetNanos)));
    }

    private static String table(RankInfo... infos) {
        StringBuilder table = new StringBuilder();
        for (RankInfo info : infos) {
            table.append(System.lineSeparator())
                    .append("  rank ")
                    .append(info.rank())
                    .append("/")
                    .append(info.size())
                    .append(", host ")
                    .append(info.host())
                    .append(", process ")
                    .append(info.processId())
                    .append(", device ")
                    .append(info.deviceOrdinal())
                    .append(", ")
                    .append(info.version());
        }
        return table.toString();
    }

    private static String hostName() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException e) {
            // A machine without a name for itself still has ranks that can meet.
            return "localhost";
        }
    }

    private static byte[] encode(RankInfo info) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            out.writeInt(info.rank());
            out.writeInt(info.size());
            out.writeUTF(info.host());
            out.writeLong(info.processId());
            out.writeInt(info.deviceOrdinal());
            out.writeUTF(info.version());
        } catch (IOException e) {
            throw new UncheckedIOException("writing to memory", e);
        }
        return bytes.toByteArray();
    }

    private static RankInfo decode(byte[] bytes) {
        try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes))) {
            return new RankInfo(
                    in.readInt(),
                    in.readInt(),
                    in.readUTF(),
                    in.readLong(),
                    in.readInt(),
                    in.readUTF());
        } catch (IOException e) {
            throw new InvalidArgumentException(
                    "the store holds "
                            + bytes.length
                            + " bytes where a rank of nccl4j should have told who it is; give the job"
                            + " a name of its own",
                    e);
        }
    }
}
