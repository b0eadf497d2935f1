package org.nccl4j.cpu;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * A worker as the system knows it, so that it can be woken beside its waker instead of in its
 * place. Where a machine does not say which cores share a cache, as many virtual ones do not, Linux
 * lets a thread that wakes run where it ran last, even if its waker runs there now and another core
 * is idle, and may take tenths of a second to move one of them. On other machines and systems
 * nothing happens here.
 *
 * <p>No other thread's cores are ever changed, and this one's only from the call until it has
 * woken. But the system then takes what it was allowed for its own choice: cores that the process
 * is given later do not come to workers that there are.
 *
 * <p>Thread safety: guarded by itself.
 */
final class WorkerThread {
    /** Room for 1024 cores; on a machine with more the system refuses, and nothing happens. */
    private static final int SET_BYTES = 128;

    private final int id = PosixCalls.currentThread();

    /** The cores that it may use otherwise, a bit each. */
    private final MemorySegment allowed = Arena.ofAuto().allocate(SET_BYTES, Long.BYTES);

    /** The same but one. */
    private final MemorySegment others = Arena.ofAuto().allocate(SET_BYTES, Long.BYTES);

    private final MemorySegment current = Arena.ofAuto().allocate(SET_BYTES, Long.BYTES);

    /** Whether it is parked, or about to be. A call may come late, when it runs again. */
    private boolean parked;

    private boolean restricted;

    /** The calling thread. */
    WorkerThread() {}

    /** It is about to park. */
    synchronized void parks() {
        parked = true;
    }

    /** If it is parked, keeps it off the core of the calling thread until it has woken. */
    synchronized void keepOffMyCore() {
        if (!parked || restricted) {
            return;
        }
        int core = PosixCalls.currentCore();
        // Asked each time: somebody may have chosen cores for the whole process meanwhile.
        if (core < 0 || core >= SET_BYTES * Byte.SIZE || !PosixCalls.allowedCores(id, allowed)) {
            return;
        }
        others.copyFrom(allowed);
        byte bits = others.get(ValueLayout.JAVA_BYTE, core / Byte.SIZE);
        bits &= (byte) ~(1 << core % Byte.SIZE);
        others.set(ValueLayout.JAVA_BYTE, core / Byte.SIZE, bits);
        // Refused if none is left.
        restricted = PosixCalls.allowCores(id, others);
    }

    /** It runs again, and may do so anywhere; that does not move it. */
    synchronized void hasWoken() {
        parked = false;
        if (restricted) {
            restricted = false;
            // Unless somebody has chosen other cores while it woke.
            if (PosixCalls.allowedCores(id, current) && current.mismatch(others) < 0) {
                PosixCalls.allowCores(id, allowed);
            }
        }
    }
}
