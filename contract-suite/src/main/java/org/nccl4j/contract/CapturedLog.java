package org.nccl4j.contract;

import java.util.ArrayList;
import java.util.List;
import java.util.logging.Formatter;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;

/**
 * Keeps what is logged during a scenario instead of printing it: failures that are part of a story
 * are not news, and when the story itself fails they belong to its report.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class CapturedLog extends Handler implements AutoCloseable {
    private static final Logger ROOT = Logger.getLogger("");

    private final Formatter formatter = new SimpleFormatter();
    private final List<LogRecord> records = new ArrayList<>();
    private final List<Handler> replaced = List.of(ROOT.getHandlers());

    CapturedLog() {
        replaced.forEach(ROOT::removeHandler);
        ROOT.addHandler(this);
    }

    @Override
    public void publish(LogRecord entry) {
        synchronized (records) {
            records.add(entry);
        }
    }

    /** Whether a warning or worse has these words. */
    boolean warns(String words) {
        synchronized (records) {
            return records.stream()
                    .filter(entry -> entry.getLevel().intValue() >= Level.WARNING.intValue())
                    .anyMatch(entry -> formatter.formatMessage(entry).contains(words));
        }
    }

    /** All that was logged, as it would have been printed. */
    String text() {
        StringBuilder text = new StringBuilder();
        synchronized (records) {
            records.forEach(entry -> text.append(formatter.format(entry)));
        }
        return text.toString();
    }

    @Override
    public void flush() {}

    /** Puts the usual handlers back. */
    @Override
    public void close() {
        ROOT.removeHandler(this);
        replaced.forEach(ROOT::addHandler);
    }
}
