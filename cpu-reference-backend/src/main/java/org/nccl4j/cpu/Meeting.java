package org.nccl4j.cpu;

import java.io.IOException;
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
    private final Seat[] seats;
    private final WaitList waiters = new WaitList();
    private int present;
    private volatile Clique clique;

    /** By rank, until the rank has fetched it. */
    private List<CpuCommunicator> communicators;

    private Meeting(UniqueId id, int size) {
        this.id = id;
        this.size = size;
        this.seats = new Seat[size];
    }

    /** Comes to a meeting and waits for the others. */
    static CpuCommunicator join(
            Scheduler scheduler,
            Engine engine,
            UniqueId id,
            int rank,
            int size,
            Seat seat,
            long startNanos) {
        try {
            return meet(scheduler, engine, id, rank, size, seat, startNanos);
        } catch (RuntimeException | Error e) {
            endTrace(seat, e);
            throw e;
        }
    }

    /** Ends the trace of a rank that has not joined. */
    private static void endTrace(Seat seat, Throwable failure) {
        if (seat.trace() != null) {
            try {
                seat.trace().close();
            } catch (IOException e) {
                failure.addSuppressed(e);
            }
        }
    }

    private static CpuCommunicator meet(
            Scheduler scheduler,
            Engine engine,
            UniqueId id,
            int rank,
            int size,
            Seat seat,
            long startNanos) {
        Meeting meeting;
        Chore chores;
        synchronized (scheduler) {
            Map<UniqueId, Meeting> byId = scheduler.meetings();
            byId.values().removeIf(old -> old.clique != null && old.clique.isOver());
            meeting = byId.computeIfAbsent(id, ignored -> new Meeting(id, size));
            meeting.come(rank, size, seat);
            if (meeting.present == size) {
                meeting.open(scheduler, engine);
            }
            chores = scheduler.takeChores(0);
        }
        scheduler.workers().perform(chores);
        return meeting.await(scheduler, rank, seat.config(), startNanos);
    }

    private void come(int rank, int otherSize, Seat seat) {
        CommunicatorConfig config = seat.config();
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
        if (seats[rank] != null) {
            throw new InvalidArgumentException(
                    where(rank, size, config)
                            + "another caller with "
                            + id
                            + " is rank "
                            + rank
                            + " already, on device "
                            + seats[rank].device().ordinal()
                            + "; give each rank its own number");
        }
        for (Seat other : seats) {
            if (other != null && !agree(other.config(), config)) {
                throw new InvalidArgumentException(
                        where(rank, size, config)
                                + "ranks with "
                                + id
                                + " disagree about the configuration; give all the same name,"
                                + " operationTimeout, abortOnFailure and algorithm, and come again:"
                                + table(rank, config));
            }
        }
        seats[rank] = seat;
        present++;
    }

    private static boolean agree(CommunicatorConfig one, CommunicatorConfig other) {
        return one.name().equals(other.name())
                && one.operationTimeout().equals(other.operationTimeout())
                && one.abortOnFailure() == other.abortOnFailure()
                && one.algorithm().equals(other.algorithm());
    }

    /** What those who have come and a newcomer want, a line each. */
    private String table(int newcomer, CommunicatorConfig wanted) {
        StringBuilder table = new StringBuilder();
        for (int rank = 0; rank < size; rank++) {
            if (rank != newcomer && seats[rank] == null) {
                continue;
            }
            CommunicatorConfig config = rank == newcomer ? wanted : seats[rank].config();
            table.append(System.lineSeparator())
                    .append("  rank ")
                    .append(rank)
                    .append(": name '")
                    .append(config.name())
                    .append("', operationTimeout ")
                    .append(Durations.text(config.operationTimeout()))
                    .append(", abortOnFailure ")
                    .append(config.abortOnFailure())
                    .append(config.algorithm().map(name -> ", algorithm " + name).orElse(""));
        }
        return table.toString();
    }

    private void open(Scheduler scheduler, Engine engine) {
        clique = new Clique(scheduler, engine, seats[0].config().name(), List.of(seats));
        communicators = new ArrayList<>(CpuCommunicator.open(clique));
        waiters.wake(scheduler);
    }

    private CpuCommunicator await(
            Scheduler scheduler, int rank, CommunicatorConfig config, long startNanos) {
        Waiter waiter =
                new Waiter() {
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
        seats[rank] = null;
        if (--present == 0) {
            scheduler.meetings().remove(id);
        }
    }

    private String missing() {
        StringJoiner missing = new StringJoiner(", ");
        for (int rank = 0; rank < size; rank++) {
            if (seats[rank] == null) {
                missing.add("rank " + rank);
            }
        }
        return missing.toString();
    }

    private static String where(int rank, int size, CommunicatorConfig config) {
        return "create of communicator '" + config.name() + "' on rank " + rank + "/" + size + ": ";
    }
}
