package org.nccl4j.bench;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import tools.jackson.core.JsonGenerator;
import tools.jackson.core.ObjectWriteContext;
import tools.jackson.core.json.JsonFactory;

/**
 * What one pastes into a bug report, as text or JSON. A probe that fails or does not answer is a
 * line that says so, never the end of the report.
 *
 * <p>Thread safety: one thread at a time.
 */
final class InfoReport {

    /** So that all fits on a page: what a section has beyond this is counted. */
    private static final int MOST_LINES = 24;

    /** A longer text is cut: a path list of a cluster's module system can be kilobytes. */
    private static final int MOST_CHARACTERS = 600;

    private static final int NAME_WIDTH = 16;

    private final List<InfoProbe> probes;
    private final Duration patience;

    /**
     * @param patience how long a probe may take; a driver that hangs takes for ever
     */
    InfoReport(List<InfoProbe> probes, Duration patience) {
        this.probes = List.copyOf(probes);
        this.patience = patience;
    }

    /** Prints the report. */
    void print(Console console) throws InterruptedException {
        for (Map.Entry<String, List<InfoEntry>> section : sections().entrySet()) {
            console.out(section.getKey());
            for (InfoEntry entry : shortened(section.getValue())) {
                String name = entry.name();
                String padding = " ".repeat(Math.max(1, NAME_WIDTH - name.length()));
                console.out(("  " + name + padding + entry.text()).stripTrailing());
            }
        }
    }

    /** Prints the report as one JSON object: sections, each with lists of texts by name. */
    void printJson(Console console) throws InterruptedException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (JsonGenerator json =
                JsonFactory.builder().build().createGenerator(ObjectWriteContext.empty(), bytes)) {
            json.writeStartObject();
            for (Map.Entry<String, List<InfoEntry>> section : sections().entrySet()) {
                json.writeName(section.getKey()).writeStartObject();
                for (Map.Entry<String, List<String>> texts : byName(section.getValue())) {
                    json.writeName(texts.getKey()).writeStartArray();
                    texts.getValue().forEach(json::writeString);
                    json.writeEndArray();
                }
                json.writeEndObject();
            }
            json.writeEndObject();
        }
        console.out(bytes.toString(StandardCharsets.UTF_8));
    }

    private static Iterable<Map.Entry<String, List<String>>> byName(List<InfoEntry> entries) {
        Map<String, List<String>> texts = new LinkedHashMap<>();
        String name = "";
        for (InfoEntry entry : entries) {
            name = entry.name().isEmpty() ? name : entry.name();
            texts.computeIfAbsent(name, any -> new ArrayList<>()).add(entry.text());
        }
        return texts.entrySet();
    }

    private static List<InfoEntry> shortened(List<InfoEntry> entries) {
        List<InfoEntry> shown = new ArrayList<>();
        for (InfoEntry entry : entries.subList(0, Math.min(MOST_LINES, entries.size()))) {
            String text = entry.text().replace('\n', ' ');
            shown.add(
                    new InfoEntry(
                            entry.name(),
                            text.length() > MOST_CHARACTERS
                                    ? text.substring(0, MOST_CHARACTERS) + "..."
                                    : text));
        }
        if (entries.size() > MOST_LINES) {
            int left = entries.size() - MOST_LINES;
            shown.add(new InfoEntry("", "... " + left + " more lines; --json has all"));
        }
        return shown;
    }

    private Map<String, List<InfoEntry>> sections() throws InterruptedException {
        Map<String, List<InfoEntry>> sections = new LinkedHashMap<>();
        ExecutorService threads =
                Executors.newThreadPerTaskExecutor(
                        Thread.ofPlatform().daemon().name("nccl4j-bench-info-", 0).factory());
        try {
            for (InfoProbe probe : probes) {
                // One after another: what the first loads the next one asks.
                sections.computeIfAbsent(probe.title(), any -> new ArrayList<>())
                        .addAll(answer(threads.submit(probe.lines())));
            }
        } finally {
            threads.shutdownNow();
        }
        return sections;
    }

    private List<InfoEntry> answer(Future<List<InfoEntry>> probe) throws InterruptedException {
        try {
            return probe.get(patience.toMillis(), TimeUnit.MILLISECONDS);
        } catch (ExecutionException failed) {
            return List.of(new InfoEntry("?", "cannot be told: " + failed.getCause()));
        } catch (TimeoutException slow) {
            return List.of(
                    new InfoEntry(
                            "?",
                            "no answer within "
                                    + patience.toSeconds()
                                    + " s; a library or driver may hang"));
        }
    }
}
