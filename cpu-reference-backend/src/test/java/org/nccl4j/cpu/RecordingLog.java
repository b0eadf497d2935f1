package org.nccl4j.cpu;

import java.text.MessageFormat;
import java.util.List;
import java.util.ResourceBundle;
import java.util.concurrent.CopyOnWriteArrayList;

/** Keeps what is logged. Thread safety: any thread may log and read. */
final class RecordingLog implements System.Logger {
    record Entry(Level level, String text, Throwable thrown, Thread thread) {}

    private final List<Entry> entries = new CopyOnWriteArrayList<>();

    List<Entry> entries() {
        return entries;
    }

    List<Entry> entries(Level level) {
        return entries.stream().filter(entry -> entry.level() == level).toList();
    }

    @Override
    public String getName() {
        return "test";
    }

    @Override
    public boolean isLoggable(Level level) {
        return true;
    }

    @Override
    public void log(Level level, ResourceBundle bundle, String text, Throwable thrown) {
        entries.add(new Entry(level, text, thrown, Thread.currentThread()));
    }

    @Override
    public void log(Level level, ResourceBundle bundle, String format, Object... values) {
        entries.add(
                new Entry(
                        level, MessageFormat.format(format, values), null, Thread.currentThread()));
    }
}
