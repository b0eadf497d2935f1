package org.nccl4j.bench;

/**
 * What a row runs.
 *
 * @param series type, reduction and root
 * @param sizeBytes the sweep's size
 * @param shape the counts that it comes to
 * @param blockBytes alltoallv: bytes {@code [from][to]}; otherwise null
 */
record RowPlan(Series series, long sizeBytes, Shape shape, long[][] blockBytes) {

    /** One cell of the row, in words. */
    String describe(Placement placement) {
        String redop = series.redop().isEmpty() ? "" : " " + series.redop();
        String root = series.root() < 0 ? "" : " root " + series.root();
        String where = placement == Placement.OUT_OF_PLACE ? "out-of-place" : "in-place";
        return sizeBytes + " B " + series.type().label() + redop + root + " " + where;
    }

    /** The blocks of alltoallv in elements; null for other programs. */
    long[][] blockCounts() {
        if (blockBytes == null) {
            return null;
        }
        int width = shape.type().widthBytes();
        long[][] counts = new long[blockBytes.length][];
        for (int from = 0; from < counts.length; from++) {
            counts[from] = blockBytes[from].clone();
            for (int to = 0; to < counts[from].length; to++) {
                counts[from][to] /= width;
            }
        }
        return counts;
    }
}
