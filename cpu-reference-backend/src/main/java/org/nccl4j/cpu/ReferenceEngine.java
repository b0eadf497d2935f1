package org.nccl4j.cpu;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;

/**
 * The textbook's algorithms over memory that all participants share: rings, chains, pairwise
 * exchange. Clarity first; {@code docs/algorithms.md} says for each operation the order of
 * additions, the steps and the bytes per rank.
 *
 * <p>Thread safety: any thread may start operations.
 */
final class ReferenceEngine implements Engine {
    /** Three such pieces, two read and one written, fit a core's cache of 1 MiB. */
    private static final int PIECE_BYTES = 256 << 10;

    /** With very many ranks pieces get shorter, so that their scratch memory stays within this. */
    private static final int SCRATCH_BYTES = 64 << 20;

    private static final int SHORTEST_PIECE_BYTES = 4 << 10;

    /** Runs kept for reuse per number of participants; more only run at once by many streams. */
    private static final int IDLE_RUNS = Train.MOST;

    private static final Algorithm REDUCE_SCATTER = Ring.reduceScatter();
    private static final Algorithm ALL_GATHER = Ring.allGather();
    private static final Algorithm BROADCAST = new ChainBroadcast();
    private static final Algorithm REDUCE = new ChainReduce();
    private static final Algorithm DIRECT = new DirectExchange();
    private static final Algorithm BARRIER = new DisseminationBarrier();
    private static final Algorithm ALONE = new Alone();

    private final Algorithm allReduce;
    private final int pieceBytes;

    /** By number of participants. Guarded by itself. */
    private final List<ArrayDeque<ReferenceRun>> idle = new ArrayList<>();

    ReferenceEngine() {
        this(RingSchedule.B, PIECE_BYTES);
    }

    /**
     * An engine with a choice of schedule and piece size.
     *
     * @param schedule of the all-reduce; the other rings' contracts demand {@link RingSchedule#B}
     * @param pieceBytes the most that a step moves at once; a multiple of 8
     */
    ReferenceEngine(RingSchedule schedule, int pieceBytes) {
        if (pieceBytes <= 0 || pieceBytes % Long.BYTES != 0) {
            throw new IllegalArgumentException(
                    "a piece must be a positive multiple of 8 bytes, got " + pieceBytes);
        }
        this.allReduce = Ring.allReduce(schedule);
        this.pieceBytes = pieceBytes;
    }

    @Override
    public String name() {
        return "reference";
    }

    @Override
    public long steps(JoinedOperation operation) {
        return algorithm(operation).steps(operation.participants());
    }

    @Override
    public Run start(JoinedOperation operation) {
        ReferenceRun run = idleRun(operation.participants());
        run.begin(operation, algorithm(operation));
        return run;
    }

    private Algorithm algorithm(JoinedOperation operation) {
        boolean alone = operation.participants() == 1;
        return switch (operation.kind()) {
            case ALL_REDUCE -> alone ? ALONE : allReduce;
            case REDUCE -> alone ? ALONE : REDUCE;
            case BROADCAST -> alone ? ALONE : BROADCAST;
            case ALL_GATHER, ALL_GATHER_V -> alone ? ALONE : ALL_GATHER;
            case REDUCE_SCATTER, REDUCE_SCATTER_V -> alone ? ALONE : REDUCE_SCATTER;
            case GATHER, SCATTER, ALL_TO_ALL, ALL_TO_ALL_V, SEND_RECV -> DIRECT;
            case BARRIER -> BARRIER;
            case SPLIT, EXCHANGE_COUNTS ->
                    throw new IllegalArgumentException(
                            operation.kind().operation() + " moves no data through an engine");
        };
    }

    private ReferenceRun idleRun(int participants) {
        synchronized (idle) {
            if (participants < idle.size() && !idle.get(participants).isEmpty()) {
                return idle.get(participants).pop();
            }
        }
        int limit = Math.max(SHORTEST_PIECE_BYTES, SCRATCH_BYTES / 2 / participants / 64 * 64);
        return new ReferenceRun(this, participants, Math.min(pieceBytes, limit));
    }

    /** Takes back a run that has finished. */
    void recycle(ReferenceRun run) {
        synchronized (idle) {
            while (idle.size() <= run.participants()) {
                idle.add(new ArrayDeque<>());
            }
            ArrayDeque<ReferenceRun> runs = idle.get(run.participants());
            if (runs.size() < IDLE_RUNS) {
                runs.push(run);
            }
        }
    }
}
