package org.nccl4j.bench;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;

/**
 * Runs the command in this JVM, on the CPU, with streams, environment and properties of its own.
 */
final class RunningBench {

    /** Runs that fail on purpose need not fill the test's output. */
    private static final Logger QUIET = Logger.getLogger("org.nccl4j");

    static {
        QUIET.setLevel(Level.WARNING);
    }

    final CapturedConsole console = new CapturedConsole();
    final Map<String, String> environment = new HashMap<>();
    final Map<String, String> properties = new HashMap<>();
    final WatchedBackend backend = new WatchedBackend(Backends.named("cpu"));

    /** What any value of --backend stands for. */
    Backend found = backend;

    /** What the installation has besides. */
    List<Backend> installed = List.of();

    ExitCode code;

    private RunningBench() {}

    /** Runs a command line as a shell would split it, without --jit-warmup unless it has one. */
    static RunningBench run(String line) {
        return run(line, bench -> {});
    }

    /** Runs a command line in a world that {@code prepare} has changed. */
    static RunningBench run(String line, Consumer<RunningBench> prepare) {
        RunningBench running = new RunningBench();
        prepare.accept(running);
        List<String> words = new ArrayList<>(List.of(line.split(" ")));
        if (!words.contains("--jit-warmup")) {
            words.addAll(List.of("--jit-warmup", "0"));
        }
        running.code = running.bench(running.console.console()).run(words);
        return running;
    }

    /** Runs the command for its report about backends and machine. */
    static RunningBench info(String line, Consumer<RunningBench> prepare) {
        RunningBench running = new RunningBench();
        running.installed = List.of(running.backend);
        prepare.accept(running);
        running.properties.putAll(systemProperties());
        running.code = running.bench(running.console.console()).run(List.of(line.split(" ")));
        return running;
    }

    private static Map<String, String> systemProperties() {
        Map<String, String> all = new HashMap<>();
        for (String name : System.getProperties().stringPropertyNames()) {
            all.put(name, System.getProperty(name));
        }
        return all;
    }

    /** For a run that goes on while the test looks at it. */
    static RunningBench idle() {
        return new RunningBench();
    }

    Bench bench(Console to) {
        return new Bench(to, environment, properties::get, name -> found, () -> installed);
    }

    /** The fields of each row. */
    List<String[]> rows() {
        return console.outLines().stream()
                .filter(line -> line.matches("^ +\\d.*"))
                .map(line -> line.trim().split(" +"))
                .toList();
    }

    /** A column of all rows. */
    List<String> column(int index) {
        return rows().stream().map(row -> row[index]).toList();
    }

    /** Both streams, for the description of a failed assertion. */
    @Override
    public String toString() {
        return code + "\n" + console.out() + "\n" + console.err();
    }
}
