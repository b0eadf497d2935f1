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
        return chosen(kind, participants, totalBytes, true)
                .algorithm(kind, participants, totalBytes);
    }

    /** Of any engine that it may choose. */
    @Override
    public int mostShares(int participants) {
        return Math.max(participants, direct.mostShares(participants));
    }

    @Override
    public long steps(JoinedOperation operation) {
        // The lock is held, so that no table is made.
        return chosen(operation, false).steps(operation);
    }

    @Override
    public Run start(JoinedOperation operation) {
        return chosen(operation, true).start(operation);
    }

    @Override
    public Persistent prepare(JoinedOperation operation) {
        // Without a table it would be prepared for what may well not be chosen later.
        return isChosen(operation) ? chosen(operation, false).prepare(operation) : null;
    }

    /** Whether it is known what carries it out, from now on. */
    private boolean isChosen(JoinedOperation operation) {
        AtomicReferenceArray<Engine[]> byRanks = tables.get(operation.kind());
        int participants = operation.participants();
        return byRanks == null || !isChoice(participants) || byRanks.get(participants) != null;
    }

    /** Whether there is anything to choose from for so many. */
    private static boolean isChoice(int participants) {
        return participants > 1 && participants <= ScheduleEngine.MOST_RANKS;
    }

    private synchronized Calibration calibration() {
        if (calibration == null) {
            calibration = source.get();
        }
        return calibration;
    }

    private Engine chosen(JoinedOperation operation, boolean mayPrepare) {
        OperationKind kind = operation.kind();
        if (!tables.containsKey(kind)) {
            return direct;
        }
        return chosen(kind, operation.participants(), totalBytes(operation), mayPrepare);
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

    private Engine chosen(
            OperationKind kind, int participants, long totalBytes, boolean mayPrepare) {
        AtomicReferenceArray<Engine[]> byRanks = tables.get(kind);
        if (byRanks == null || !isChoice(participants)) {
            return direct;
        }
        Engine[] table = byRanks.get(participants);
        if (table == null) {
            if (!mayPrepare) {
                return direct;
            }
            table = table(kind, participants);
            byRanks.set(participants, table);
        }
        return table[totalBytes == 0 ? 0 : SIZES - 1 - Long.numberOfLeadingZeros(totalBytes)];
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
