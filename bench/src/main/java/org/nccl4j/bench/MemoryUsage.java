package org.nccl4j.bench;

/**
 * Device memory taken by the run (-M), in bytes: the largest drop of free memory on any device.
 *
 * @param initializationBytes while communicators were created
 * @param userAllocatedBytes while buffers were allocated and registered
 * @param collectiveBytes during the test
 */
record MemoryUsage(long initializationBytes, long userAllocatedBytes, long collectiveBytes) {

    private static final String[] UNITS = {"B", "KB", "MB", "GB"};

    long totalBytes() {
        return initializationBytes + userAllocatedBytes + collectiveBytes;
    }

    /** An amount in units of 1024 with about three digits. */
    static String amount(long bytes) {
        double amount = bytes;
        int unit = 0;
        while (Math.abs(amount) >= 1024 && unit < UNITS.length - 1) {
            amount /= 1024;
            unit++;
        }
        double magnitude = Math.abs(amount);
        int decimals = magnitude < 10 ? 2 : magnitude < 100 ? 1 : 0;
        return CNumber.fixed(amount, decimals) + " " + UNITS[unit];
    }
}
