package org.nccl4j.cpu;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.nccl4j.collectives.ReduceOp;

/**
 * Runs a {@link VectorKernel} on memory of its own, in a thread that all share, until the JIT has
 * made it faster than the plain kernel for the same; if it never does, plain kernels it is.
 *
 * <p>Thread safety: one thread at a time.
 */
final class VectorWarmup implements Runnable {
    enum State {
        COLD,
        RUNNING,
        WARM
    }

    private static final int BLOCK_BYTES = 1 << 10;
    private static final int CALLS = 50;

    /**
     * After so many C2 has been asked to compile the loop, for which it wants 600 calls and 15000
     * steps, and the plain one, which is slow at first too.
     */
    private static final int BUSY_ROUNDS = 26;

    private static final int MOST_ROUNDS = 10_000;
    private static final long PAUSE_NANOS = 1_000_000;

    /** One thread: more would only take the processors from the operations and the compiler. */
    private static final ThreadPoolExecutor THREAD =
            new ThreadPoolExecutor(
                    1,
                    1,
                    1,
                    TimeUnit.SECONDS,
                    new LinkedBlockingQueue<>(),
                    task -> Thread.ofPlatform().daemon().name("nccl4j-cpu-warmup").unstarted(task));

    static {
        THREAD.allowCoreThreadTimeOut(true);
    }

    private final VectorKernel kernel;
    private final int inputs;
    private final Kernels plain = new Kernels();
    private final MemorySegment[] ranges = new MemorySegment[2 * VectorKernel.MOST_RANGES];
    private final long[] places = new long[2 * VectorKernel.MOST_RANGES];
    private final int count;

    private VectorWarmup(VectorKernel kernel) {
        VectorKernel.Shape shape = kernel.shape();
        this.kernel = kernel;
        this.inputs = shape.inputs();
        this.count = BLOCK_BYTES / shape.type().sizeBytes();
        Arrays.fill(ranges, Arena.ofAuto().allocate((long) ranges.length * BLOCK_BYTES, 64));
        Arrays.setAll(places, i -> (long) i * BLOCK_BYTES);
        plain.begin(shape.type(), reduction(shape), inputs);
    }

    private static ReduceOp reduction(VectorKernel.Shape shape) {
        if (shape.inputs() == 1) {
            return new ReduceOp.PreMulSum(shape.type(), shape.type().bitsOf(1));
        }
        return switch (shape.fold()) {
            case SUM -> ReduceOp.SUM;
            case PROD -> ReduceOp.PROD;
            case MIN -> ReduceOp.MIN;
            case MAX -> ReduceOp.MAX;
        };
    }

    /** Whether a kernel may be used; the first call for it begins its warm-up. */
    static boolean isOver(VectorKernel kernel) {
        State state = kernel.warmth.get();
        if (state == State.COLD && kernel.warmth.compareAndSet(State.COLD, State.RUNNING)) {
            try {
                THREAD.execute(new VectorWarmup(kernel));
            } catch (OutOfMemoryError e) {
                // Plain kernels go on; a later operation tries again.
                kernel.warmth.set(State.COLD);
            }
        }
        return state == State.WARM;
    }

    @Override
    public void run() {
        for (int round = 0; round < MOST_ROUNDS; round++) {
            long plainNanos = Long.MAX_VALUE;
            long vectorNanos = Long.MAX_VALUE;
            for (int i = 0; i < CALLS; i++) {
                long t0 = System.nanoTime();
                byPlainKernels();
                long t1 = System.nanoTime();
                byVectors();
                long t2 = System.nanoTime();
                plainNanos = Math.min(plainNanos, t1 - t0);
                vectorNanos = Math.min(vectorNanos, t2 - t1);
            }
            if (round < BUSY_ROUNDS) {
                continue;
            }
            if (vectorNanos <= plainNanos) {
                kernel.warmth.set(State.WARM);
                return;
            }
            // Leave the processor to the compiler.
            LockSupport.parkNanos(PAUSE_NANOS);
        }
    }

    private void byPlainKernels() {
        MemorySegment memory = ranges[0];
        if (inputs == 1) {
            plain.scale(memory, places[1], memory, 0, count);
            return;
        }
        long sum = 0;
        for (int p = 1; p < inputs; p++) {
            boolean last = p == inputs - 1;
            plain.combine(memory, places[inputs], memory, places[p], memory, sum, count, last);
            sum = places[inputs];
        }
    }

    private void byVectors() {
        MemorySegment memory = ranges[0];
        if (inputs == 1) {
            kernel.scale(memory, 0, plain.factorBits(), memory, places[1], BLOCK_BYTES);
            return;
        }
        long out = places[inputs];
        kernel.combine(
                memory, 0, ranges, places, 1, memory, out, ranges, places, inputs, 0, BLOCK_BYTES);
    }
}
