package org.nccl4j.nccl;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.spi.Durations;

/**
 * Has NCCL abort communicators that belong together, on threads of its own, because NCCL may not
 * return from it. All at once, since none may wait for another's; but one after the other in all of
 * the process before 2.19.1, which does not support aborts by several threads at once
 * (NVIDIA/nccl#992).
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class Aborting {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    /** After so long an abort that does not return is reported. */
    static final Duration REPORTED = Duration.ofSeconds(10);

    private static final int AT_ONCE_SINCE = 21901;

    /** For libraries that want one at a time; not for ever, or one that hangs would hold up all. */
    private static final ReentrantLock TURN = new ReentrantLock();

    /**
     * A communicator that NCCL shall abort.
     *
     * @param address NCCL's handle, which is dead from now on
     * @param device its device
     * @param whose whose it is, for messages
     */
    record Handle(long address, NcclDevice device, String whose) {}

    private final String name;
    private final List<Thread> threads = new ArrayList<>();

    private Aborting(String name) {
        this.name = name;
    }

    /** Begins to abort communicators; returns at once. */
    static Aborting start(String name, List<Handle> handles) {
        Aborting aborting = new Aborting(name);
        if (isAtOnce(NcclLibrary.versionCode())) {
            for (Handle handle : handles) {
                aborting.startThread(List.of(handle));
            }
        } else if (!handles.isEmpty()) {
            aborting.startThread(handles);
        }
        return aborting;
    }

    /** Whether a version can abort several communicators of a process at the same time. */
    static boolean isAtOnce(int version) {
        return version >= AT_ONCE_SINCE;
    }

    private void startThread(List<Handle> handles) {
        threads.add(
                NativeThread.start(
                        "abort-" + name + "-" + threads.size(),
                        handles.getFirst().device(),
                        () -> handles.forEach(Aborting::abort)));
    }

    private static void abort(Handle handle) {
        boolean hasTurn = false;
        try {
            CurrentDevice.stay(handle.device());
            hasTurn = isAtOnce(NcclLibrary.versionCode()) || awaitTurn();
            NcclLibrary.commAbort(handle.address(), "aborting " + handle.whose());
        } catch (CollectiveException e) {
            LOG.log(
                    System.Logger.Level.ERROR,
                    handle.whose()
                            + " could not be aborted: what NCCL has allocated for it on device "
                            + handle.device().ordinal()
                            + " (some hundred MB) stays until the process ends, and its kernels may"
                            + " still run there; restart the process if the device is needed",
                    e);
        } finally {
            if (hasTurn && TURN.isHeldByCurrentThread()) {
                TURN.unlock();
            }
        }
    }

    /** An abort that does not return loses its turn after a while. */
    private static boolean awaitTurn() {
        try {
            return TURN.tryLock(REPORTED.toNanos(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            // Nobody interrupts this thread; if somebody does, the abort is due all the same.
            Thread.currentThread().interrupt();
            return false;
        }
    }

    /** Whether NCCL has returned from all of them. */
    boolean isOver() {
        return threads.stream().noneMatch(Thread::isAlive);
    }

    /** Waits until NCCL has returned, for ever if need be, and reports that it takes long. */
    void join() {
        if (Waiting.untilUninterruptibly(this::isOver, System.nanoTime(), REPORTED.toNanos())
                == Waiting.Outcome.OVER) {
            return;
        }
        LOG.log(
                System.Logger.Level.ERROR,
                "the abort of communicator '"
                        + name
                        + "' has not returned from NCCL within "
                        + Durations.text(REPORTED)
                        + "; until it does its buffers and streams are in use; destroy captured"
                        + " graphs, or restart the process");
        Waiting.untilUninterruptibly(this::isOver, System.nanoTime(), Long.MAX_VALUE);
    }
}
