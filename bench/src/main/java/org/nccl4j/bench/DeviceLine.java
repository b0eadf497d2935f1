package org.nccl4j.bench;

/**
 * A rank's line under {@code # Using devices} and its entry in the JSON file.
 *
 * @param rank the rank among all processes
 * @param group the process group's colour; 0 unless the processes are split
 * @param pid the process
 * @param hostname its host, without the domain
 * @param device the device's ordinal
 * @param busId the PCI address {@code dddd:bb:vv}; {@code 0000:00:00} for the CPU
 * @param name the device's product name
 */
record DeviceLine(
        int rank, int group, long pid, String hostname, int device, String busId, String name) {}
