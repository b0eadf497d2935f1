package org.nccl4j.collectives.spi;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.StringJoiner;
import java.util.function.Supplier;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.RankInfo;
import org.nccl4j.collectives.Rendezvous;
import org.nccl4j.collectives.UniqueId;

/**
 * The ranks of a {@link Rendezvous}, after they have told each other through its store who they
 * are. What cannot work is refused with a table of them before anything waits for it. In the store
 * are {@code nccl4j/JOB/rank/R} for each rank R and {@code nccl4j/JOB/id}, the id that rank 0 has
 * given.
 *
 * <p>Thread safety: belongs to the thread that creates the communicator.
 */
public final class Roster {
    private final Rendezvous rendezvous;
    private final RankInfo self;
    private final CommunicatorConfig config;
    private final long startNanos = System.nanoTime();

    /** By rank; null for those that have not come yet. */
    private final RankInfo[] ranks;

    private Roster(Rendezvous rendezvous, RankInfo self, CommunicatorConfig config) {
        this.rendezvous = rendezvous;
        this.self = self;
        this.config = config;
        this.ranks = new RankInfo[self.size()];
        this.ranks[self.rank()] = self;
    }

    /**
     * Tells the others who this rank is and waits until all have done so, at most {@link
     * CommunicatorConfig#operationTimeout}. A rank that ran out of time may come again.
     *
     * @param rendezvous where they meet
     * @param self this rank; its number is less than its size
     * @param config for the deadline and for messages
     * @return the ranks, all there
     * @throws InvalidArgumentException if the rank is taken, or ranks disagree about size or
     *     version
     * @throws CollectiveTimeoutException if ranks are missing; the message names them
     * @throws org.nccl4j.collectives.WaitInterruptedException if the thread is or gets interrupted
     */
    public static Roster meet(Rendezvous rendezvous, RankInfo self, CommunicatorConfig config) {
        Roster roster = new Roster(rendezvous, self, config);
        roster.announce();
        roster.awaitAll();
        return roster;
    }

    /**
     * The ranks.
     *
     * @return what each has told, by rank
     */
    public List<RankInfo> ranks() {
        return List.of(ranks);
    }

    /**
     * The id that all of them use, given by rank 0.
     *
     * @param newId makes an id; asked on rank 0 only
     * @return the same on every rank
     * @throws CollectiveTimeoutException if rank 0 gives none in what is left of the time
     * @throws org.nccl4j.collectives.WaitInterruptedException if the thread is or gets interrupted
     */
    public UniqueId id(Supplier<UniqueId> newId) {
        String key = key("id");
        if (self.rank() == 0) {
            rendezvous.store().setIfAbsent(key, newId.get().toBytes());
        }
        return get(key, left())
                .map(UniqueId::new)
                .orElseThrow(() ->
                        new CollectiveTimeoutException(
                                where()
                                        + "rank 0 gave no id within "
                                        + Durations.text(config.operationTimeout())
                                        + "; nothing was made, call create again",
                                false));
    }

    /**
     * A message for a refusal of what the ranks have told.
     *
     * @param why what is wrong and what to do
     * @return who refuses, why, and the table of the ranks
     */
    public String refusal(String why) {
        return where() + why + ":" + table(ranks);
    }

    private void announce() {
        String key = key("rank/" + self.rank());
        if (rendezvous.store().setIfAbsent(key, encode(self))) {
            return;
        }
        byte[] value =
                get(key, Duration.ZERO)
                        .orElseThrow(() ->
                                new InvalidArgumentException(
                                        where()
                                                + "the store, a "
                                                + rendezvous.store().getClass().getName()
                                                + ", refuses to set '"
                                                + key
                                                + "' and has no value for it; a key that is set"
                                                + " must keep its value"));
        RankInfo other = decode(key, value);
        // The same rank may come again after it has run out of time.
        if (!other.equals(self)) {
            throw new InvalidArgumentException(
                    where()
                            + "rank "
                            + self.rank()
                            + " is taken; give each rank its own number and each job its own name:"
                            + table(other, self));
        }
    }

    private void awaitAll() {
        StringJoiner missing = new StringJoiner(", ");
        missing.setEmptyValue("");
        for (int rank = 0; rank < ranks.length; rank++) {
            String key = key("rank/" + rank);
            Optional<byte[]> value = get(key, left());
            if (value.isEmpty()) {
                missing.add("rank " + rank);
                continue;
            }
            ranks[rank] = decode(key, value.get());
            // At once: a rank that expects more others than there are would wait for them in vain.
            if (ranks[rank].size() != self.size()) {
                throw new InvalidArgumentException(
                        refusal("ranks disagree about the size; give all the same"));
            }
            if (!ranks[rank].version().equals(self.version())) {
                throw new InvalidArgumentException(
                        refusal("ranks use different versions; install the same everywhere"));
            }
        }
        if (missing.length() > 0) {
            throw new CollectiveTimeoutException(
                    where()
                            + missing
                            + " did not come within "
                            + Durations.text(config.operationTimeout())
                            + "; nothing was made, start the missing ranks and call create again",
                    false);
        }
    }

    /** A store is the user's. */
    private Optional<byte[]> get(String key, Duration timeout) {
        Optional<byte[]> value = rendezvous.store().get(key, timeout);
        if (value == null) {
            throw new InvalidArgumentException(
                    where()
                            + "the store, a "
                            + rendezvous.store().getClass().getName()
                            + ", returned null for '"
                            + key
                            + "'; get() must return an empty Optional when time has run out");
        }
        return value;
    }

    private String key(String what) {
        return "nccl4j/" + rendezvous.job() + "/" + what;
    }

    private Duration left() {
        long budgetNanos = Durations.saturatedNanos(config.operationTimeout());
        return Duration.ofNanos(Math.max(0, budgetNanos - (System.nanoTime() - startNanos)));
    }

    private String where() {
        return "create of communicator '"
                + config.name()
                + "' on rank "
                + self.rank()
                + "/"
                + self.size()
                + " (job '"
                + rendezvous.job()
                + "'): ";
    }

    private static String table(RankInfo... infos) {
        StringBuilder table = new StringBuilder();
        Arrays.stream(infos)
                .filter(Objects::nonNull)
                .forEach(info ->
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
                                .append(info.version()));
        return table.toString();
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
            throw new UncheckedIOException("an array takes all bytes", e);
        }
        return bytes.toByteArray();
    }

    private static RankInfo decode(String key, byte[] bytes) {
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
                            + " bytes under '"
                            + key
                            + "' where a rank of nccl4j should have told who it is; give the job a"
                            + " name of its own",
                    e);
        }
    }
}
