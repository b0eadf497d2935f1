package org.nccl4j.contract;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/** Counts cases. Thread safety: all methods may be called from any thread. */
final class Ledger {
    private static final System.Logger LOG = System.getLogger(Ledger.class.getName());

    private final String label;
    private final long startNanos = System.nanoTime();
    private final Map<String, Integer> unsupportedByReason = new TreeMap<>();
    private int cases;
    private int failed;
    private int unsupported;

    Ledger(String label) {
        this.label = label;
    }

    synchronized void ran(int casesRun, int casesFailed) {
        cases += casesRun;
        failed += casesFailed;
    }

    synchronized void unsupported(int casesSkipped, String reason) {
        unsupported += casesSkipped;
        unsupportedByReason.merge(reason, casesSkipped, Integer::sum);
    }

    /** Whether no case has been counted. */
    synchronized boolean isEmpty() {
        return cases == 0 && unsupported == 0;
    }

    synchronized String summary() {
        double seconds = (System.nanoTime() - startNanos) / 1e9;
        return String.format(
                Locale.ROOT,
                "contract[%s]: %d cases, %d failed, %d unsupported, %.1f s",
                label,
                cases,
                failed,
                unsupported,
                seconds);
    }

    /** Logs the summary and leaves it under target/, with the reasons of what is unsupported. */
    synchronized void publish(long seed) {
        StringBuilder text = new StringBuilder(summary()).append(System.lineSeparator());
        text.append("seed ").append(seed).append(System.lineSeparator());
        unsupportedByReason.forEach((reason, count) ->
                text.append("unsupported: ")
                        .append(count)
                        .append(" x ")
                        .append(reason)
                        .append(System.lineSeparator()));
        LOG.log(System.Logger.Level.INFO, summary());
        Path file =
                Path.of("target", "contract-" + label.replaceAll("[^A-Za-z0-9]+", "-") + ".txt");
        try {
            Files.createDirectories(file.getParent());
            Files.writeString(file, text);
        } catch (IOException e) {
            throw new UncheckedIOException("cannot write " + file, e);
        }
    }
}
