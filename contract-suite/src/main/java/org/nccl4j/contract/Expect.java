package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.concurrent.Future;
import java.util.concurrent.locks.LockSupport;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;

/** What must happen, what must not, and the passing of time. */
final class Expect {
    private static final Duration OBSERVED = Duration.ofMillis(8);

    private Expect() {}

    /** A call that is refused. */
    static InvalidArgumentException refusal(Runnable call) {
        try {
            call.run();
        } catch (InvalidArgumentException e) {
            return e;
        }
        throw new AssertionError("expected an InvalidArgumentException, nothing was thrown");
    }

    /** Work that fails in any of the ways that the contract knows. */
    static CollectiveException failure(Runnable work) {
        try {
            work.run();
        } catch (CollectiveException e) {
            return e;
        }
        throw new AssertionError("expected a CollectiveException, nothing was thrown");
    }

    /** Looks for a while and fails if the stream's work ends. */
    static void staysBusy(String what, DeviceStream stream) {
        long end = System.nanoTime() + OBSERVED.toNanos();
        do {
            assertThat(stream.poll()).as(what + " must not be complete").isFalse();
            LockSupport.parkNanos(200_000);
        } while (System.nanoTime() < end);
    }

    /** Looks for a while and fails if a call returns. */
    static void staysBusy(String what, Future<?> call) {
        long end = System.nanoTime() + OBSERVED.toNanos();
        do {
            assertThat(call.isDone()).as(what + " must not return").isFalse();
            LockSupport.parkNanos(200_000);
        } while (System.nanoTime() < end);
    }

    /**
     * Waits until a device has all of its memory again. Those that nobody uses any more may keep
     * their share of it until the garbage collector has found out.
     */
    static void memory(Device device, long totalBytes) {
        long end = System.nanoTime() + RankSet.DEADLINE.toNanos();
        while (device.memory().totalBytes() < totalBytes && System.nanoTime() < end) {
            System.gc();
            LockSupport.parkNanos(10_000_000);
        }
        assertThat(device.memory().totalBytes())
                .as("memory of device %d", device.ordinal())
                .isGreaterThanOrEqualTo(totalBytes);
    }

    /** Lets time pass, where time is what is tested. */
    static void elapse(Duration duration) {
        long end = System.nanoTime() + duration.toNanos();
        for (long left = duration.toNanos(); left > 0; left = end - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}
