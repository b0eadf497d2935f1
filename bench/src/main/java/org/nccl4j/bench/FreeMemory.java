package org.nccl4j.bench;

import java.util.List;
import org.nccl4j.collectives.Device;

/**
 * Free memory of the devices at the stages of a run.
 *
 * <p>Thread safety: {@link #usage} may be called from any thread, the rest by one.
 */
final class FreeMemory {

    private final List<Device> devices;
    private volatile long[] atStart;
    private volatile long[] connected;
    private volatile long[] allocated;

    FreeMemory(List<Device> devices) {
        this.devices = List.copyOf(devices);
        this.atStart = now();
        this.connected = atStart;
        this.allocated = atStart;
    }

    void connected() {
        connected = now();
        allocated = connected;
    }

    void allocated() {
        allocated = now();
    }

    /** The largest drops until now. */
    MemoryUsage usage() {
        return new MemoryUsage(
                drop(atStart, connected), drop(connected, allocated), drop(allocated, now()));
    }

    private long[] now() {
        return devices.stream().mapToLong(device -> device.memory().freeBytes()).toArray();
    }

    private static long drop(long[] before, long[] after) {
        long largest = 0;
        for (int i = 0; i < before.length; i++) {
            largest = Math.max(largest, before[i] - after[i]);
        }
        return largest;
    }
}
