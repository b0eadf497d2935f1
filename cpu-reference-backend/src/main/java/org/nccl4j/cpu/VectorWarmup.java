package org.nccl4j.cpu;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.nccl4j.collectives.ReduceOp;

/**
 * Runs a {@link VectorSum} on memory of its own, in a thread of its own, until the JIT has made it
 * faster than the plain kernel for the same; if it never does, plain kernels it is.
 *
 * <p>Thread safety: one thread at a time.
 */
final class VectorWarmup implements Runnable {
    enum State {
        COLD,
        RUNNING,
        WARM
    }

    private static final int BLOCK_BYTES = 2 << 10;
    private static final int CALLS = 50;

    /** Ten seconds of a processor at least; time alone says nothing where others use it too. */
    private static final int MOST_ROUNDS = 20_000;

    private final VectorSum sum;
    private final Kernels plain = new Kernels();
    private final MemorySegment memory = Arena.ofAuto().allocate(4L * BLOCK_BYTES, 64);
    private final int count;

    private VectorWarmup(VectorSum sum) {
        this.sum = sum;
        this.count = BLOCK_BYTES / sum.type().sizeBytes();
        plain.begin(sum.type(), ReduceOp.SUM, 2);
    }

    /** Whether a sum may be used; the first call for it begins its warm-up. */
    static boolean isOver(VectorSum sum) {
        State state = sum.warmth.get();
        if (state == State.COLD && sum.warmth.compareAndSet(State.COLD, State.RUNNING)) {
            try {
                Thread.ofPlatform()
                        .daemon()
                        .name("nccl4j-cpu-warmup-" + sum.type())
                        .start(new VectorWarmup(sum));
            } catch (OutOfMemoryError e) {
                // Plain kernels go on; a later operation tries again.
                sum.warmth.set(State.COLD);
            }
        }
        return state == State.WARM;
    }

    @Override
    public void run() {
        for (int round = 0; round < MOST_ROUNDS; round++) {
            long plainNanos = Long.MAX_VALUE;
            long onceNanos = Long.MAX_VALUE;
            long twiceNanos = Long.MAX_VALUE;
            for (int i = 0; i < CALLS; i++) {
                long t0 = System.nanoTime();
                plain.combine(memory, 2 * BLOCK_BYTES, memory, 0, memory, BLOCK_BYTES, count, true);
                long t1 = System.nanoTime();
                sum.add(memory, 0, memory, BLOCK_BYTES, memory, 2 * BLOCK_BYTES, count);
                long t2 = System.nanoTime();
                sum.addTwice(
                        memory,
                        0,
                        memory,
                        BLOCK_BYTES,
                        memory,
                        2 * BLOCK_BYTES,
                        memory,
                        3 * BLOCK_BYTES,
                        count);
                long t3 = System.nanoTime();
                plainNanos = Math.min(plainNanos, t1 - t0);
                onceNanos = Math.min(onceNanos, t2 - t1);
                twiceNanos = Math.min(twiceNanos, t3 - t2);
            }
            if (Math.max(onceNanos, twiceNanos) <= plainNanos) {
                sum.warmth.set(State.WARM);
                return;
            }
        }
    }
}
