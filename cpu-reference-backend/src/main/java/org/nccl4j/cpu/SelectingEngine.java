package org.nccl4j.cpu;

import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.Supplier;
import org.nccl4j.cpu.schedule.ScheduleAlgorithm;

/**
 * Has each operation carried out by what is predicted to be fastest for its kind, size and number
 * of ranks: the direct engine or one of the schedules. The choice is made for the joined operation,
 * so that all ranks share it, and looked up in a table with an entry per power of two, which is
 * made when a kind first runs among so many ranks.
 *
 * <p>Thread safety: any thread may start operations.
 */
final class SelectingEngine implements Engine {
    /** Sizes are below 2^63. */
    private static final int SIZES = Long.SIZE;

    private final Supplier<Calibration> source;
    private final int cores;
    private final Engine direct = new DirectEngine();
    private final Map<ScheduleAlgorithm, Engine> schedules = new EnumMap<>(ScheduleAlgorithm.class);

    /** By kind and ranks the engine for sizes from 2^i on; a missing one is made again. */
    private final Map<OperationKind, AtomicReferenceArray<Engine[]>> tables =
            new EnumMap<>(OperationKind.class);

    /** Guarded by this; null before it is needed. */
    private Calibration calibration;

    /**
     * An engine.
     *
     * @param source where the model comes from, asked when it is first needed: that reads files
     * @param cores how many threads make progress at a time at most
     */
    SelectingEngine(Supplier<Calibration> source, int cores) {
        this.source = source;
        this.cores = cores;
        for (ScheduleAlgorithm algorithm : ScheduleAlgorithm.values()) {
            schedules.put(algorithm, new ScheduleEngine(List.of(algorithm)));
        }
        for (OperationKind kind : OperationKind.values()) {
            if (ScheduleEngine.collective(kind) != null) {
                tables.put(kind, new AtomicReferenceArray<>(ScheduleEngine.MOST_RANKS + 1));
            }
        }
    }

    @Override
    public String name() {
        return EngineSetting.AUTO;
    }

    @Override
    public String description() {
        return name() + " (" + calibration().origin() + "), " + direct.description();
    }

    @Override
    public String algorithm(OperationKind kind, int participants, long totalBytes) {
        Engine known = known(kind, participants, totalBytes);
        if (known == null) {
            makeTable(kind, participants);
            known = known(kind, participants, totalBytes);
        }
        return known.algorithm(kind, participants, totalBytes);
    }

    /** Of any engine that it may choose. */
    @Override
    public int mostShares(int participants) {
        return Math.max(participants, direct.mostShares(participants));
    }

    @Override
    public long steps(JoinedOperation operation) {
        // The lock is held, so that no table is made.
        Engine known = known(operation);
        return (known == null ? direct : known).steps(operation);
    }

    @Override
    public Run start(JoinedOperation operation) {
        return chosen(operation).start(operation);
    }

    @Override
    public Persistent prepare(JoinedOperation operation) {
        return chosen(operation).prepare(operation);
    }

    /** What carries out an operation. */
    private Engine chosen(JoinedOperation operation) {
        Engine known = known(operation);
        if (known == null) {
            makeTable(operation.kind(), operation.participants());
            known = known(operation);
        }
        return known;
    }

    private synchronized Calibration calibration() {
        if (calibration == null) {
            calibration = source.get();
        }
        return calibration;
    }

    /** What carries out an operation; null if that takes a table which has not been made yet. */
    private Engine known(JoinedOperation operation) {
        OperationKind kind = operation.kind();
        if (!tables.containsKey(kind)) {
            return direct;
        }
        return known(kind, operation.participants(), totalBytes(operation));
    }

    private static long totalBytes(JoinedOperation operation) {
        long elements =
                switch (operation.kind()) {
                    case ALL_REDUCE, REDUCE, BROADCAST -> operation.countElements();
                    case ALL_GATHER_V -> operation.recvLayout(0).totalElements();
                    case REDUCE_SCATTER_V -> operation.sendLayout(0).totalElements();
                    default -> operation.countElements() * operation.participants();
                };
        return elements * operation.type().sizeBytes();
    }

    private Engine known(OperationKind kind, int participants, long totalBytes) {
        AtomicReferenceArray<Engine[]> byRanks = tables.get(kind);
        if (byRanks == null || participants == 1 || participants > ScheduleEngine.MOST_RANKS) {
            return direct;
        }
        Engine[] table = byRanks.get(participants);
        return table == null
                ? null
                : table[totalBytes == 0 ? 0 : SIZES - 1 - Long.numberOfLeadingZeros(totalBytes)];
    }

    private void makeTable(OperationKind kind, int participants) {
        tables.get(kind).set(participants, table(kind, participants));
    }

    private Engine[] table(OperationKind kind, int participants) {
        CostModel.Predictions predictions =
                calibration().model().predictions(kind, new Topology(participants, cores));
        Engine[] table = new Engine[SIZES];
        for (int i = 0; i < SIZES; i++) {
            ScheduleAlgorithm best = predictions.best(1L << Math.min(i, SIZES - 2)).algorithm();
            table[i] = best == null ? direct : schedules.get(best);
        }
        return table;
    }
}
