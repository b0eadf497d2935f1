package org.nccl4j.bench;

import java.util.Locale;
import java.util.function.LongSupplier;

/**
 * One line on a terminal's standard error about a sweep that takes long: what runs, how far it is,
 * how long it may still take. It is rewritten in place and erased before anything else is printed.
 *
 * <p>Thread safety: none; {@link RunReport} calls it under its lock.
 */
final class Progress {

    /** Carriage return, then "erase to the end of the line". */
    static final String ERASE = "\r\u001b[K";

    /** Sweeps shorter than this show nothing. */
    private static final long SILENT_NANOS = 3_000_000_000L;

    /** A cell's fixed costs, as bytes: small rows take time as well. */
    private static final long FIXED_BYTES = 256 << 10;

    /** Allocations below this take no time to speak of. */
    private static final long LARGE_BYTES = 256L << 20;

    private final Console console;
    private final boolean enabled;
    private final LongSupplier nanoTime;
    private final double totalBytes;
    private double doneBytes;
    private double currentBytes;
    private long startNanos;
    private boolean begun;
    private boolean shown;

    /**
     * @param enabled whether standard error is a terminal
     * @param seriesCount how many sweeps over the sizes there will be
     * @param nanoTime the clock
     */
    Progress(
            Console console,
            boolean enabled,
            BenchOptions.Sweep sizes,
            int seriesCount,
            LongSupplier nanoTime) {
        this.console = console;
        this.enabled = enabled;
        this.nanoTime = nanoTime;
        this.totalBytes =
                sizes.endless()
                        ? Double.POSITIVE_INFINITY
                        : cycleBytes(sizes) * sizes.runCycles() * seriesCount;
    }

    private static double cycleBytes(BenchOptions.Sweep sizes) {
        if (sizes.multiplies()) {
            return sizes.sizesBytes().mapToDouble(Progress::cost).sum();
        }
        // Not added up one by one: a small step through gigabytes has too many rows.
        double rows =
                Math.floor((sizes.maxBytes() - sizes.minBytes()) / (double) sizes.stepBytes());
        double last = sizes.minBytes() + rows * sizes.stepBytes();
        return (rows + 1) * 2 * ((sizes.minBytes() + last) / 2 + FIXED_BYTES);
    }

    private static double cost(long sizeBytes) {
        return 2.0 * (sizeBytes + FIXED_BYTES);
    }

    /** A cell is about to run. */
    void starting(RowPlan plan, Placement placement) {
        if (!enabled) {
            return;
        }
        long now = nanoTime.getAsLong();
        if (!begun) {
            begun = true;
            startNanos = now;
        }
        doneBytes += currentBytes;
        currentBytes = cost(plan.sizeBytes()) / 2;
        long elapsedNanos = now - startNanos;
        if (elapsedNanos < SILENT_NANOS) {
            return;
        }
        show("bench: " + plan.describe(placement) + ", " + outlook(elapsedNanos / 1e9));
    }

    /** Buffers are about to be allocated. */
    void allocating(long totalBytes) {
        if (enabled && totalBytes >= LARGE_BYTES) {
            show("bench: allocating " + (totalBytes >> 20) + " MiB");
        }
    }

    private void show(String line) {
        erase();
        console.errPart(line);
        shown = true;
    }

    private String outlook(double elapsedSeconds) {
        if (Double.isInfinite(totalBytes)) {
            return String.format(Locale.ROOT, "running for %.0f s until stopped", elapsedSeconds);
        }
        double share = Math.min(1, doneBytes / totalBytes);
        if (share == 0) {
            return "0 %";
        }
        double leftSeconds = elapsedSeconds / share - elapsedSeconds;
        return String.format(
                Locale.ROOT, "%.0f %%, about %.0f s left", 100 * share, Math.ceil(leftSeconds));
    }

    /** Takes the line away. */
    void erase() {
        if (shown) {
            console.errPart(ERASE);
            shown = false;
        }
    }
}
