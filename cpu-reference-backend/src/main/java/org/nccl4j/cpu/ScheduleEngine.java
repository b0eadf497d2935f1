package org.nccl4j.cpu;

import java.util.Arrays;
import java.util.EnumMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.nccl4j.cpu.schedule.Collective;
import org.nccl4j.cpu.schedule.ScheduleAlgorithm;

/**
 * Runs schedules: of each collective the algorithm that was chosen. What no chosen algorithm can do
 * (gather, scatter, send-receive, barrier, the all-to-all with blocks of different sizes, and
 * collectives for which none was chosen), and communicators of more than {@value #MOST_RANKS}
 * ranks, whose schedules would fill memory, are left to the reference engine.
 *
 * <p>Thread safety: any thread may start operations.
 */
final class ScheduleEngine implements Engine {
    static final int MOST_RANKS = 256;

    private final Map<Collective, ScheduleAlgorithm> algorithms = new EnumMap<>(Collective.class);
    private final Map<Collective, AtomicReferenceArray<Program>> programs =
            new EnumMap<>(Collective.class);
    private final Engine others = new ReferenceEngine();
    private final String name;

    /**
     * An engine.
     *
     * @param chosen at most one for each collective
     */
    ScheduleEngine(List<ScheduleAlgorithm> chosen) {
        Set<String> titles = new LinkedHashSet<>();
        for (ScheduleAlgorithm algorithm : chosen) {
            titles.add(algorithm.title());
            for (Collective collective : algorithm.collectives()) {
                ScheduleAlgorithm before = algorithms.put(collective, algorithm);
                if (before != null && before != algorithm) {
                    throw new IllegalArgumentException(
                            before.title()
                                    + " and "
                                    + algorithm.title()
                                    + " are both for "
                                    + collective.title());
                }
                programs.put(collective, new AtomicReferenceArray<>(MOST_RANKS + 1));
            }
        }
        name = String.join(",", titles);
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public String algorithm(OperationKind kind, int participants, long totalBytes) {
        Collective collective = scheduled(kind, participants);
        return collective == null
                ? others.algorithm(kind, participants, totalBytes)
                : algorithms.get(collective).title();
    }

    @Override
    public long steps(JoinedOperation operation) {
        Collective collective = scheduled(operation);
        if (collective == null) {
            return others.steps(operation);
        }
        int n = operation.participants();
        Program program = programs.get(collective).get(n);
        // Not built here, where a lock is held. No schedule has more than two dozen per pair.
        return program == null ? 4L * n * n : program.actionCount();
    }

    @Override
    public Run start(JoinedOperation operation) {
        Collective collective = scheduled(operation);
        if (collective == null) {
            return others.start(operation);
        }
        ScheduleRun run = program(collective, operation.participants()).idleRun();
        run.begin(operation);
        return run;
    }

    private Program program(Collective collective, int ranks) {
        AtomicReferenceArray<Program> known = programs.get(collective);
        Program program = known.get(ranks);
        if (program == null) {
            Program made = new Program(algorithms.get(collective).schedule(collective, ranks));
            program = known.compareAndExchange(ranks, null, made);
            program = program == null ? made : program;
        }
        return program;
    }

    /** What an operation is for a schedule; null if it is not for one. */
    private Collective scheduled(JoinedOperation operation) {
        return scheduled(operation.kind(), operation.participants());
    }

    private Collective scheduled(OperationKind kind, int participants) {
        Collective collective = collective(kind);
        return collective != null
                        && algorithms.containsKey(collective)
                        && participants <= MOST_RANKS
                ? collective
                : null;
    }

    /** What a kind of operation is for a schedule; null if no schedule is for it. */
    static Collective collective(OperationKind kind) {
        return switch (kind) {
            case ALL_REDUCE -> Collective.ALL_REDUCE;
            case REDUCE -> Collective.REDUCE;
            case BROADCAST -> Collective.BROADCAST;
            case ALL_GATHER, ALL_GATHER_V -> Collective.ALL_GATHER;
            case REDUCE_SCATTER, REDUCE_SCATTER_V -> Collective.REDUCE_SCATTER;
            case ALL_TO_ALL -> Collective.ALL_TO_ALL;
            case GATHER, SCATTER, ALL_TO_ALL_V, SEND_RECV, BARRIER -> null;
            case SPLIT, EXCHANGE_COUNTS -> null;
        };
    }

    @Override
    public String toString() {
        return name + " " + Arrays.toString(algorithms.keySet().toArray());
    }
}
