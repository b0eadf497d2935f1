package org.nccl4j.bench;

/**
 * The average of the footer: the mean of busbw over every cell of every row, those of 0 bytes and
 * those that are not checked included.
 *
 * <p>Thread safety: all methods are synchronized; the footer of an interrupted run is written by
 * another thread.
 */
final class BusBandwidthMean {

    private double sumGBps;
    private long cells;

    synchronized void add(Row row) {
        sumGBps += row.outOfPlace().bandwidth().busBwGBps();
        sumGBps += row.inPlace().bandwidth().busBwGBps();
        cells += 2;
    }

    /** The mean in GB/s; NaN before the first row. */
    synchronized double meanGBps() {
        return sumGBps / cells;
    }
}
