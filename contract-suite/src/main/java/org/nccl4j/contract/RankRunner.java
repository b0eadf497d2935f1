package org.nccl4j.contract;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Group;
import org.nccl4j.collectives.RecordedGroup;

/** A way to have every rank run its part of programs. */
sealed interface RankRunner {

    /**
     * A program that went wrong on a rank.
     *
     * @param program the program's id
     * @param rank the rank; -1 for the thread that drives all
     * @param cause what it threw
     */
    record Failure(String program, int rank, Throwable cause) {}

    /** How long a rank may wait for its stream. */
    Duration SYNCHRONIZE_TIMEOUT = Duration.ofSeconds(25);

    /**
     * Runs programs one after another. A wrong result does not stop the others; an exception does,
     * and leaves the ranks unusable.
     *
     * @param ranks who runs them
     * @param programs what to run
     * @return what went wrong
     */
    List<Failure> run(RankSet ranks, List<? extends RankProgram> programs);

    /** A short name for ids. */
    String label();

    /**
     * Each rank has its own thread, and no rank waits for another between two programs.
     *
     * @param delaySeed makes ranks wait up to 200 microseconds before they enqueue; 0 for no delays
     */
    record ThreadPerRank(long delaySeed) implements RankRunner {
        private static final int DELAY_LIMIT_NANOS = 200_000;

        @Override
        public String label() {
            return delaySeed == 0 ? "threads" : "delayed threads";
        }

        @Override
        public List<Failure> run(RankSet ranks, List<? extends RankProgram> programs) {
            List<Failure> failures = Collections.synchronizedList(new ArrayList<>());
            ranks.onEvery(rank -> {
                Mix delays = new Mix(Mix.hash(delaySeed, rank.rank()));
                for (RankProgram program : programs) {
                    try {
                        program.prepare(rank);
                        if (delaySeed != 0) {
                            LockSupport.parkNanos(delays.next(DELAY_LIMIT_NANOS));
                        }
                        program.issue(rank, communicator -> communicator);
                        for (DeviceStream stream : program.streams(rank)) {
                            stream.synchronize(SYNCHRONIZE_TIMEOUT);
                        }
                        program.check(rank);
                    } catch (AssertionError e) {
                        failures.add(new Failure(program.id(), rank.rank(), e));
                    } catch (RuntimeException e) {
                        failures.add(new Failure(program.id(), rank.rank(), e));
                        rank.communicator().abort(SYNCHRONIZE_TIMEOUT);
                        return;
                    }
                }
            });
            return List.copyOf(failures);
        }
    }

    /** One thread drives all ranks; each program is one group. */
    record OneThreadWithGroups() implements RankRunner {
        @Override
        public String label() {
            return "groups";
        }

        @Override
        public List<Failure> run(RankSet ranks, List<? extends RankProgram> programs) {
            return runOnOneThread(
                    ranks,
                    programs,
                    (program, failures) -> {
                        prepare(program, ranks);
                        ranks.backend().group(body(program, ranks));
                        synchronize(program, ranks);
                        check(program, ranks, failures);
                    });
        }
    }

    /**
     * One thread drives all ranks; each program is one recorded group that is issued {@value
     * #ISSUES} times. For programs that prepare the same buffers again.
     */
    record OneThreadWithRecordedGroups() implements RankRunner {
        /** A backend may do the first one or two in another way than what follows. */
        private static final int ISSUES = 3;

        @Override
        public String label() {
            return "recorded groups";
        }

        @Override
        public List<Failure> run(RankSet ranks, List<? extends RankProgram> programs) {
            return runOnOneThread(
                    ranks,
                    programs,
                    (program, failures) -> {
                        prepare(program, ranks);
                        RecordedGroup recorded = ranks.backend().record(body(program, ranks));
                        recorded.issue();
                        synchronize(program, ranks);
                        for (int issues = 1; issues < ISSUES; issues++) {
                            check(program, ranks, failures);
                            prepare(program, ranks);
                            recorded.issue();
                            synchronize(program, ranks);
                        }
                        check(program, ranks, failures);
                    });
        }
    }

    private static List<Failure> runOnOneThread(
            RankSet ranks,
            List<? extends RankProgram> programs,
            BiConsumer<RankProgram, List<Failure>> one) {
        List<Failure> failures = new ArrayList<>();
        ranks.onOneThread(
                () -> {
                    for (RankProgram program : programs) {
                        try {
                            one.accept(program, failures);
                        } catch (RuntimeException e) {
                            failures.add(new Failure(program.id(), -1, e));
                            ranks.abandon();
                            return;
                        }
                    }
                },
                RankSet.DEADLINE);
        return List.copyOf(failures);
    }

    private static void check(RankProgram program, RankSet ranks, List<Failure> failures) {
        for (Rank rank : ranks.ranks()) {
            try {
                program.check(rank);
            } catch (AssertionError e) {
                failures.add(new Failure(program.id(), rank.rank(), e));
            }
        }
    }

    private static void prepare(RankProgram program, RankSet ranks) {
        ranks.ranks().forEach(program::prepare);
    }

    private static Consumer<Group> body(RankProgram program, RankSet ranks) {
        return group -> ranks.ranks().forEach(rank -> program.issue(rank, group::on));
    }

    private static void synchronize(RankProgram program, RankSet ranks) {
        List<DeviceStream> streams = new ArrayList<>();
        ranks.ranks().forEach(rank -> streams.addAll(program.streams(rank)));
        ranks.backend().synchronizeAll(streams, SYNCHRONIZE_TIMEOUT);
    }
}
