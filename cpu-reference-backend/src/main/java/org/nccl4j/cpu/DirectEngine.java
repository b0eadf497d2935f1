package org.nccl4j.cpu;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;

/**
 * For ranks that share an address space: one pass over memory, straight from all inputs into all
 * outputs, with the fewest bytes that can be read and written (but a long range is read once for
 * each participant that it is copied to, if that saves more). The data is cut into a contiguous
 * share per core, however many ranks there are; whoever advances a share reads that part of every
 * input, combines, and writes that part of every output, so that threads never wait for one
 * another. {@code docs/algorithms.md} says for each operation the order of additions and what the
 * traffic counters count.
 *
 * <p>Thread safety: any thread may start operations.
 */
final class DirectEngine implements Engine {
    /** Shorter data is cut into fewer shares: handing it over would take longer than moving it. */
    static final int LEAST_SHARE_BYTES = 4 << 10;

    /** All ranges of one piece together, unless it is copied to one participant. */
    private static final int PIECE_BYTES = 256 << 10;

    /** Runs kept for reuse per number of participants; more only run at once by many streams. */
    private static final int IDLE_RUNS = Train.MOST;

    private final int mostShares;
    private final KernelChoice kernels;
    private final int pieceBytes;
    private final int leastShareBytes;

    /** By number of participants. Guarded by itself. */
    private final List<ArrayDeque<DirectRun>> idle = new ArrayList<>();

    DirectEngine() {
        this(
                Runtime.getRuntime().availableProcessors(),
                KernelChoice.ofThisProcess(),
                PIECE_BYTES,
                LEAST_SHARE_BYTES);
    }

    /**
     * An engine with a choice of kernels and sizes.
     *
     * @param mostShares how many threads may run an operation
     * @param kernels what reduces
     * @param pieceBytes the most that a step reads and writes at once; but what is copied to one
     *     participant goes in pieces of up to twice {@link DirectRun#COPY_PIECES} times that
     * @param leastShareBytes the shortest share; a multiple of a cache line
     */
    DirectEngine(int mostShares, KernelChoice kernels, int pieceBytes, int leastShareBytes) {
        if (leastShareBytes <= 0 || leastShareBytes % DirectRun.LINE_BYTES != 0) {
            throw new IllegalArgumentException(
                    "the shortest share must be a positive multiple of "
                            + DirectRun.LINE_BYTES
                            + " bytes, got "
                            + leastShareBytes);
        }
        if (pieceBytes <= 0) {
            throw new IllegalArgumentException(
                    "a piece must have a positive size, got " + pieceBytes + " bytes");
        }
        this.mostShares = mostShares;
        this.kernels = kernels;
        this.pieceBytes = pieceBytes;
        this.leastShareBytes = leastShareBytes;
    }

    @Override
    public String name() {
        return "direct";
    }

    @Override
    public String description() {
        return name() + " (" + kernels.description() + ")";
    }

    /** A share reads or writes a range of each participant. */
    @Override
    public long steps(JoinedOperation operation) {
        return steps(operation.kind(), operation.participants());
    }

    static long steps(OperationKind kind, int n) {
        return switch (kind) {
            case ALL_TO_ALL, ALL_TO_ALL_V -> (long) n * n;
            case BARRIER -> n;
            default -> 2L * n;
        };
    }

    @Override
    public int mostShares(int participants) {
        return mostShares;
    }

    @Override
    public Run start(JoinedOperation operation) {
        DirectRun run = idleRun(operation.participants());
        run.begin(operation);
        return run;
    }

    @Override
    public Persistent prepare(JoinedOperation operation) {
        DirectRun run = new DirectRun(this, operation.participants());
        run.begin(operation);
        return run.plan();
    }

    private DirectRun idleRun(int participants) {
        synchronized (idle) {
            if (participants < idle.size() && !idle.get(participants).isEmpty()) {
                return idle.get(participants).pop();
            }
        }
        return new DirectRun(this, participants);
    }

    /** Takes back a run that has finished. */
    void recycle(DirectRun run) {
        synchronized (idle) {
            while (idle.size() <= run.participants()) {
                idle.add(new ArrayDeque<>());
            }
            ArrayDeque<DirectRun> runs = idle.get(run.participants());
            if (runs.size() < IDLE_RUNS) {
                runs.push(run);
            }
        }
    }

    KernelChoice kernels() {
        return kernels;
    }

    int pieceBytes() {
        return pieceBytes;
    }

    int leastShareBytes() {
        return leastShareBytes;
    }
}
