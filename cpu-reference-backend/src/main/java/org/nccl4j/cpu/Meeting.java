package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.collectives.WaitInterruptedException;
import org.nccl4j.collectives.spi.Durations;

/**
 * Where ranks of this process that hold the same id find each other. A meeting is remembered until
 * its communicator is over, so that a rank that comes twice is refused. Guarded by the scheduler's
 * lock.
 */
final class Meeting {
    private final UniqueId id;
    private final int size;
    private final CpuDevice[] devices;
    private final WaitList waiters = new WaitList();
    private int present;
    private volatile Clique clique;

    /** By rank, until the rank has fetched it. */
    private List<CpuCommunicator> communicators;

    private Meeting(UniqueId id, int size) {
        this.id = id;
        this.size = size;
        this.devices = new CpuDevice[size];
    }

    /** Comes to a meeting and waits for the others. */
    static CpuCommunicator join(
            Scheduler scheduler,
            Engine engine,
            UniqueId id,
            int rank,
            int size,
            CpuDevice device,
            CommunicatorConfig config,
            long startNanos) {
        Meeting meeting;
        Chore chores;
        synchronized (scheduler) {
            Map<UniqueId, Meeting> byId = scheduler.meetings();
            byId.values().removeIf(old -> old.clique != null && old.clique.isOver());
            meeting = byId.computeIfAbsent(id, ignored -> new Meeting(id, size));
            meeting.come(rank, size, device, config);
            if (meeting.present == size) {
                try {
                    meeting.open(scheduler, engine, config);
                } catch (InvalidArgumentException e) {
                    meeting.withdraw(scheduler, rank);
                    throw e;
                }
            }
            chores = scheduler.takeChores(0);
        }
        scheduler.workers().perform(chores);
        return meeting.await(scheduler, rank, config, startNanos);
    }

    private void come(int rank, int otherSize, CpuDevice device, CommunicatorConfig config) {
        if (otherSize != size) {
            throw new InvalidArgumentException(
                    where(rank, otherSize, config)
                            + "the other ranks with "
                            + id
                            + " have come with size "
                            + size
                            + ", this one with "
                            + otherSize
                            + "; give all the same size");
        }
        if (devices[rank] != null) {
            throw new InvalidArgumentException(
                    where(rank, size, config)
                            + "another caller with "
                            + id
                            + " is rank "
                            + rank
                            + " already, on device "
                            + devices[rank].ordinal()
                            + "; give each rank its own number");
        }
        devices[rank] = device;
        present++;
    }

    private void open(Scheduler scheduler, Engine engine, CommunicatorConfig config) {
        clique = new Clique(scheduler, engine, config, config.name(), List.of(devices));
        communicators = new ArrayList<>(CpuCommunicator.open(clique));
        waiters.wake(scheduler);
    }

    private CpuCommunicator await(
            Scheduler scheduler, int rank, CommunicatorConfig config, long startNanos) {
        Waiter waiter =
                new Waiter() {
                    @Override
                    boolean isOver() {
                        return seemsOver();
                    }

                    @Override
                    boolean seemsOver() {
                        return clique != null;
                    }
                };
        Workers.Outcome outcome =
                scheduler
                        .workers()
                        .await(
                                waiter,
                                waiters,
                                startNanos,
                                Durations.saturatedNanos(config.operationTimeout()));
        synchronized (scheduler) {
            if (clique != null) {
                return communicators.set(rank, null);
            }
            String missing = missing();
            withdraw(scheduler, rank);
            if (outcome == Workers.Outcome.INTERRUPTED) {
                throw new WaitInterruptedException(
                        where(rank, size, config)
                                + "interrupted while waiting for "
                                + missing
                                + "; nothing was made, call create again");
            }
            throw new CollectiveTimeoutException(
                    where(rank, size, config)
                            + missing
                            + " did not come within "
                            + Durations.text(config.operationTimeout())
                            + "; nothing was made, start the missing ranks and call create again",
                    false);
        }
    }

    /** Takes a rank's coming back, so that it may come again. */
    private void withdraw(Scheduler scheduler, int rank) {
        devices[rank] = null;
        if (--present == 0) {
            scheduler.meetings().remove(id);
        }
    }

    private String missing() {
        StringJoiner missing = new StringJoiner(", ");
        for (int rank = 0; rank < size; rank++) {
            if (devices[rank] == null) {
                missing.add("rank " + rank);
            }
        }
        return missing.toString();
    }

    private static String where(int rank, int size, CommunicatorConfig config) {
        return "create of communicator '" + config.name() + "' on rank " + rank + "/" + size + ": ";
    }
}
