package org.nccl4j.nccl;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.RankInfo;
import org.nccl4j.collectives.Rendezvous;
import org.nccl4j.collectives.spi.Durations;
import org.nccl4j.collectives.spi.Roster;

/**
 * Which GPU each rank of a rendezvous will use. Ordinals tell nothing, because processes may see
 * different GPUs under the same number; bus addresses do. In the store are {@code nccl4j/JOB/gpu/R}
 * for each rank R.
 *
 * <p>Thread safety: belongs to the thread that creates the communicator.
 */
final class Places {
    private Places() {}

    /** The device that a rank gets that has asked for none: its turn among those of its host. */
    static int deviceFor(RankInfo self, List<RankInfo> ranks, int devices) {
        int before = 0;
        for (RankInfo other : ranks) {
            if (other.rank() < self.rank() && other.host().equals(self.host())) {
                before++;
            }
        }
        return before % devices;
    }

    /** Refuses two ranks on one GPU. */
    static void requireDistinct(
            Rendezvous rendezvous,
            Roster roster,
            RankInfo self,
            NcclDevice device,
            CommunicatorConfig config,
            long startNanos) {
        tell(rendezvous, self, device);
        if (Meetings.isGpuShared()) {
            return;
        }
        for (RankInfo other : roster.ranks()) {
            if (other.rank() == self.rank() || !other.host().equals(self.host())) {
                continue;
            }
            if (busId(rendezvous, other, self, config, startNanos).equals(device.busId())) {
                throw new InvalidArgumentException(
                        roster.refusal(
                                "ranks "
                                        + Math.min(self.rank(), other.rank())
                                        + " and "
                                        + Math.max(self.rank(), other.rank())
                                        + " are both on the GPU at "
                                        + device.busId()
                                        + " of host "
                                        + self.host()
                                        + "; give each rank a GPU of its own with"
                                        + " config.withDevice or CUDA_VISIBLE_DEVICES"));
            }
        }
    }

    private static void tell(Rendezvous rendezvous, RankInfo self, NcclDevice device) {
        String key = key(rendezvous, self.rank());
        byte[] value = device.busId().getBytes(StandardCharsets.UTF_8);
        if (!rendezvous.store().setIfAbsent(key, value)
                && !rendezvous
                        .store()
                        .get(key, Duration.ZERO)
                        .map(told -> new String(told, StandardCharsets.UTF_8))
                        .orElse("")
                        .equals(device.busId())) {
            throw new InvalidArgumentException(
                    "rank "
                            + self.rank()
                            + " of job '"
                            + rendezvous.job()
                            + "' has come before on another GPU; give the job a new name");
        }
    }

    private static String busId(
            Rendezvous rendezvous,
            RankInfo other,
            RankInfo self,
            CommunicatorConfig config,
            long startNanos) {
        long budgetNanos = Durations.saturatedNanos(config.operationTimeout());
        Duration left =
                Duration.ofNanos(Math.max(0, budgetNanos - (System.nanoTime() - startNanos)));
        Optional<byte[]> told = rendezvous.store().get(key(rendezvous, other.rank()), left);
        return told.map(value -> new String(value, StandardCharsets.UTF_8))
                .orElseThrow(() ->
                        new CollectiveTimeoutException(
                                Initialization.where(self.rank(), self.size(), config)
                                        + "rank "
                                        + other.rank()
                                        + " did not tell its GPU within "
                                        + Durations.text(config.operationTimeout())
                                        + "; look for an exception there; nothing was made, call"
                                        + " create again",
                                false));
    }

    private static String key(Rendezvous rendezvous, int rank) {
        return "nccl4j/" + rendezvous.job() + "/gpu/" + rank;
    }
}
