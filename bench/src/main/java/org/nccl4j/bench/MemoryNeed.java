package org.nccl4j.bench;

import java.math.BigInteger;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import org.nccl4j.collectives.Device;

/**
 * Whether a run's buffers fit into its devices.
 *
 * @param sweep the sizes
 * @param unalignElements -u
 * @param devices one per rank
 */
record MemoryNeed(BenchOptions.Sweep sweep, int unalignElements, List<Device> devices) {

    /** Send and receive buffer. */
    private static final int BUFFERS = 2;

    /** The widest element, by which -u shifts at most. */
    private static final long WIDEST_BYTES = 8;

    /** What stays free on a large device: backends keep queues and pieces in flight besides. */
    private static final long RESERVE_BYTES = 32L << 20;

    /** The part that stays free on a small one, such as a small share of one machine's memory. */
    private static final int RESERVE_PART = 8;

    /** The bytes of one buffer. */
    long bufferBytes() {
        return sweep.maxBytes() + shiftBytes();
    }

    /** The bytes of all buffers. */
    long totalBytes() {
        return bufferBytes() * BUFFERS * devices.size();
    }

    private long shiftBytes() {
        return WIDEST_BYTES * unalignElements;
    }

    /** Why the buffers do not fit and what would; empty if they do. */
    Optional<String> refusal() {
        long availableBytes =
                devices.stream().mapToLong(d -> d.memory().freeBytes()).min().orElse(0);
        // Sizes up to 2^63 parse.
        BigInteger neededBytes =
                BigInteger.valueOf(sweep.maxBytes())
                        .add(BigInteger.valueOf(shiftBytes()))
                        .multiply(BigInteger.valueOf(BUFFERS));
        long reserveBytes = Math.min(RESERVE_BYTES, availableBytes / RESERVE_PART);
        if (neededBytes.compareTo(BigInteger.valueOf(availableBytes - reserveBytes)) <= 0) {
            return Optional.empty();
        }
        long fitting = (availableBytes - reserveBytes) / BUFFERS - shiftBytes();
        String advice =
                fitting < Math.max(1, sweep.minBytes())
                        ? "not even -b " + sweep.minBytes() + " fits: use fewer devices (-g, -t)"
                        : "the largest that fits is -e " + rounded(fitting);
        return Optional.of(
                String.format(
                        Locale.ROOT,
                        "bench: -e %d needs %d bytes on each of %d devices (%d buffers of a rank);"
                                + " %d are free there, and %d of them stay in reserve; %s",
                        sweep.maxBytes(),
                        neededBytes,
                        devices.size(),
                        BUFFERS,
                        availableBytes,
                        reserveBytes,
                        advice));
    }

    /** A size as one types it, not more than the given. */
    private String rounded(long bytes) {
        String suffixes = "GMK";
        for (int i = 0; i < suffixes.length(); i++) {
            long unit = 1L << (30 - 10 * i);
            // At least three digits, so that little is lost by rounding down.
            if (bytes >= 100 * unit && bytes / unit * unit >= sweep.minBytes()) {
                return bytes / unit + suffixes.substring(i, i + 1);
            }
        }
        return Long.toString(bytes);
    }
}
