package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

final class CpuDevicesTest {

    private static final long TOTAL = 1000;

    @Test
    void whatOneDeviceTakesLeavesTheOthersTheirShares() {
        assertThat(CpuDevices.freeBytes(TOTAL, TOTAL, 2, 0, 0)).isEqualTo(500);
        // Device 0 has taken all of its share, so half is available.
        assertThat(CpuDevices.freeBytes(TOTAL, 500, 2, 500, 500)).isZero();
        assertThat(CpuDevices.freeBytes(TOTAL, 500, 2, 500, 0)).isEqualTo(500);
        // Device 1 has taken half of its share.
        assertThat(CpuDevices.freeBytes(TOTAL, 250, 2, 750, 250)).isEqualTo(250);
    }

    @Test
    void whatOtherProgramsTakeIsMissingFromEveryShare() {
        assertThat(CpuDevices.freeBytes(TOTAL, 600, 2, 0, 0)).isEqualTo(300);
        assertThat(CpuDevices.freeBytes(TOTAL, 100, 2, 500, 500)).isZero();
        assertThat(CpuDevices.freeBytes(TOTAL, 100, 2, 500, 0)).isEqualTo(100);
        // What they give back was never part of this process's memory.
        assertThat(CpuDevices.freeBytes(TOTAL, 5000, 2, 0, 0)).isEqualTo(500);
        assertThat(CpuDevices.freeBytes(TOTAL, -5, 2, 0, 0)).isZero();
    }
}
