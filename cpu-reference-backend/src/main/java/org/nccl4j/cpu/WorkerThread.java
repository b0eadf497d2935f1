package org.nccl4j.cpu;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * A worker as the system knows it, so that it can be woken beside its waker instead of in its
 * place. Where a machine does not say which cores share a cache, as many virtual ones do not, Linux
 * lets a thread that wakes run where it ran last, even if its waker runs there now and another core
 * is idle, and may take tenths of a second to move one of them. Only this thread's own cores are
 * ever changed, and only until it has woken; where the system does not know of such things nothing
 * happens.
 *
 * <p>Thread safety: guarded by itself.
 */
final class WorkerThread {
    private static final int SET_BYTES = 128;

    private final int id = PosixCalls.currentThread();

    /** The cores that it may use otherwise, a bit each. */
    private final MemorySegment allowed = Arena.ofAuto().allocate(SET_BYTES, Long.BYTES);

    /** The same but one. */
    private final MemorySegment others = Arena.ofAuto().allocate(SET_BYTES, Long.BYTES);

    private boolean kept;

    /** The calling thread. */
    WorkerThread() {}

    /** Keeps it off the core of the calling thread, if there is another, until it is released. */
    synchronized void keepOffMyCore() {
        int core = PosixCalls.currentCore();
        // Asked each time: somebody may have chosen cores for the whole process meanwhile.
        if (kept
                || core < 0
                || core >= SET_BYTES * Byte.SIZE
                || !PosixCalls.allowedCores(id, allowed)) {
            return;
        }
        others.copyFrom(allowed);
        byte bits = others.get(ValueLayout.JAVA_BYTE, core / Byte.SIZE);
        bits &= (byte) ~(1 << core % Byte.SIZE);
        others.set(ValueLayout.JAVA_BYTE, core / Byte.SIZE, bits);
        // Refused if none is left.
        kept = PosixCalls.allowCores(id, others);
    }

    /** Lets it run anywhere again, which does not move it. */
    synchronized void release() {
        if (kept) {
            kept = false;
            PosixCalls.allowCores(id, allowed);
        }
    }
}
