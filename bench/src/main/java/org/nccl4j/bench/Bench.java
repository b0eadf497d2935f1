package org.nccl4j.bench;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.Explanation;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.LibraryUnavailableException;

/**
 * The {@code bench} command.
 *
 * <p>Thread safety: {@link #run} by one thread, once; {@link #interrupt} by any other at any time.
 */
public final class Bench {

    /** Set by the launcher if standard error is a terminal. */
    private static final String TERMINAL = "nccl4j.bench.terminal";

    /** Kept, because a logger that nobody holds forgets its level. */
    private static final Logger LOGGER = Logger.getLogger("org.nccl4j");

    /** How long an interrupted run may take to say so. */
    private static final Duration SHUTDOWN = Duration.ofSeconds(5);

    /** How long bench info waits for each answer. */
    private static final Duration PROBE_PATIENCE = Duration.ofSeconds(20);

    private final Console console;
    private final BenchEnvironment environment;
    private final Function<String, String> properties;
    private final Function<String, Backend> backends;
    private final Supplier<List<Backend>> installed;
    private volatile BenchRun running;
    private volatile boolean ended;

    /**
     * @param properties system properties by name; null where one is not set
     * @param backends the backend that a value of --backend stands for
     * @param installed the backends that are there, usable or not
     */
    Bench(
            Console console,
            Map<String, String> environment,
            Function<String, String> properties,
            Function<String, Backend> backends,
            Supplier<List<Backend>> installed) {
        this.console = console;
        this.environment = new BenchEnvironment(environment);
        this.properties = properties;
        this.backends = backends;
        this.installed = installed;
    }

    /**
     * Runs the command and exits with its code.
     *
     * @param args the program and its options
     */
    public static void main(String[] args) {
        quietLogs();
        Bench bench =
                new Bench(
                        Console.standard(),
                        System.getenv(),
                        System::getProperty,
                        name -> backend(name, Backends.installed()),
                        Backends::installed);
        Runtime.getRuntime().addShutdownHook(new Thread(bench::shutDown, "nccl4j-bench-shutdown"));
        System.exit(bench.run(List.of(args)).status());
    }

    /**
     * The process ends, by a signal unless the run has come to its own end. The footer is printed
     * by a thread that this one does not wait for without limit: standard output may be a full
     * pipe.
     */
    private void shutDown() {
        Thread interrupting =
                Thread.ofPlatform()
                        .daemon()
                        .name("nccl4j-bench-interrupt")
                        .start(() -> {
                            if (interrupt()) {
                                Runtime.getRuntime().halt(ExitCode.INTERRUPTED.status());
                            }
                        });
        try {
            if (!interrupting.join(SHUTDOWN)) {
                Runtime.getRuntime().halt(ExitCode.INTERRUPTED.status());
            }
        } catch (InterruptedException hurried) {
            Runtime.getRuntime().halt(ExitCode.INTERRUPTED.status());
        }
    }

    /** Leaves what is informative to those who ask for it: a table is not read among log lines. */
    private static void quietLogs() {
        if (System.getProperty("java.util.logging.config.file") == null) {
            LOGGER.setLevel(Level.WARNING);
        }
    }

    /**
     * The backend that a value of --backend stands for.
     *
     * @throws LibraryUnavailableException if it is not installed or cannot be used here
     */
    static Backend backend(String name, List<Backend> installed) {
        if (name.equals(BenchOptions.AUTO)) {
            return Backends.preferred();
        }
        Optional<Backend> named =
                installed.stream().filter(backend -> backend.name().equals(name)).findFirst();
        if (named.isEmpty()) {
            throw new LibraryUnavailableException(
                    "--backend "
                            + name
                            + ": this bench has "
                            + installed.stream()
                                    .map(Backend::name)
                                    .sorted()
                                    .collect(Collectors.joining(", "))
                            + " and no other backend; name one of these, or leave the option out");
        }
        if (named.get().availability() instanceof Availability.Unavailable no) {
            throw new LibraryUnavailableException(
                    "--backend "
                            + name
                            + " cannot be used here: "
                            + String.join("\n  ", no.reasons())
                            + (name.equals(BenchOptions.NCCL)
                                    ? "\n  (bench/bench info tells more; --backend cpu needs no GPU, and"
                                            + " --emulator stands in for one)"
                                    : "\n  (bench/bench info tells more)"));
        }
        return named.get();
    }

    /** A reason's beginning; the remedy behind it is for those who want a GPU. */
    private static String withoutRemedy(String reason) {
        return reason.split("; |\\R", 2)[0];
    }

    /** Says in one line why --backend auto did not take NCCL. */
    private void explain(Backend chosen) {
        for (Backend each : installed.get()) {
            if (each.name().equals(BenchOptions.NCCL)
                    && each.availability() instanceof Availability.Unavailable no) {
                console.err(
                        "bench: --backend auto takes "
                                + chosen.name()
                                + ", not nccl: "
                                + withoutRemedy(no.reasons().getFirst())
                                + " (bench/bench info tells more)");
            }
        }
    }

    /**
     * Runs the command.
     *
     * @param arguments the program and its options
     */
    ExitCode run(List<String> arguments) {
        try {
            return start(arguments);
        } catch (CollectiveException unavailable) {
            console.err("bench: " + unavailable.getMessage());
            return ExitCode.UNSUPPORTED;
        } catch (UncheckedIOException failed) {
            if (Console.isReaderGone(failed)) {
                // Nobody reads on: there is nobody to tell.
                return ExitCode.OUTPUT_CLOSED;
            }
            console.err(
                    "bench: standard output cannot be written, the rest of the table is lost: "
                            + failed.getCause().getMessage());
            return ExitCode.INTERNAL;
        } catch (RuntimeException | Error unexpected) {
            Optional<OutOfMemoryError> lack = lack(unexpected);
            if (lack.isPresent()) {
                console.err("bench: " + remedy(lack.get()));
                return ExitCode.INTERNAL;
            }
            StringWriter trace = new StringWriter();
            unexpected.printStackTrace(new PrintWriter(trace));
            console.err("bench: this is a bug in bench or its backend: " + trace);
            return ExitCode.INTERNAL;
        } finally {
            ended = true;
        }
    }

    /** What the JVM had too little of, if that is why a run failed. */
    private static Optional<OutOfMemoryError> lack(Throwable unexpected) {
        return Stream.iterate(unexpected, Objects::nonNull, Throwable::getCause)
                .filter(OutOfMemoryError.class::isInstance)
                .map(OutOfMemoryError.class::cast)
                .findFirst();
    }

    private static String remedy(OutOfMemoryError lack) {
        String what = String.valueOf(lack.getMessage());
        return what.contains("native thread")
                ? "the system refuses another thread: lower -t or -g, or allow more processes"
                        + " (ulimit -u) or memory"
                : "the JVM is out of memory ("
                        + what
                        + "): give it more, as with NCCL4J_JAVA_OPTS=-Xmx4G, or lower -g, -n or -m";
    }

    private ExitCode start(List<String> arguments) {
        Optional<Corruption> corruption;
        try {
            corruption = Corruption.parse(properties.apply(Corruption.PROPERTY));
        } catch (IllegalArgumentException malformed) {
            console.err("bench: " + malformed.getMessage());
            return ExitCode.ARGUMENTS;
        }
        Map<String, Backend> found = new HashMap<>();
        Function<String, Backend> once = name -> found.computeIfAbsent(name, backends);
        CommandLine.Outcome outcome =
                CommandLine.parse(arguments, name -> BackendFacts.of(once.apply(name)), console);
        return switch (outcome) {
            case CommandLine.Exit exit -> exit.code();
            case CommandLine.Info info -> report(info.json());
            case CommandLine.Explain explain -> show(explain.options(), once);
            case CommandLine.Calibrate calibrate -> calibrate(calibrate, once);
            case CommandLine.Run run -> {
                Backend backend = once.apply(run.options().backend());
                if (run.options().backend().equals(BenchOptions.AUTO)) {
                    explain(backend);
                }
                BackendFacts facts = BackendFacts.of(backend);
                if (facts.emulated()) {
                    console.err(
                            "bench: this is the emulator and not a GPU: results are checked as"
                                    + " always, times mean nothing");
                }
                BenchRun started =
                        new BenchRun(
                                console,
                                environment,
                                run.options(),
                                backend,
                                facts,
                                corruption,
                                properties.apply(TERMINAL) != null);
                running = started;
                yield started.run();
            }
        };
    }

    private ExitCode show(ExplainOptions options, Function<String, Backend> found) {
        Explanation explanation;
        try {
            explanation =
                    found.apply(options.backend())
                            .explain(
                                    options.operation(),
                                    options.algorithm(),
                                    options.ranks(),
                                    options.type().dataType(),
                                    options.sizeBytes());
        } catch (InvalidArgumentException refused) {
            console.err("bench: " + refused.getMessage());
            return ExitCode.ARGUMENTS;
        }
        explanation.text().lines().forEach(console::out);
        if (options.svgFile().isPresent()) {
            try {
                Files.writeString(options.svgFile().get(), explanation.svg());
            } catch (IOException failed) {
                console.err(
                        "bench: --svg "
                                + options.svgFile().get()
                                + " cannot be written: "
                                + failed
                                + "; name another file");
                return ExitCode.INTERNAL;
            }
            console.err("bench: the picture is in " + options.svgFile().get());
        }
        return ExitCode.OK;
    }

    private ExitCode calibrate(CommandLine.Calibrate wanted, Function<String, Backend> found) {
        Backend backend = found.apply(wanted.backend());
        if (properties.apply(TERMINAL) == null) {
            console.err("bench: measuring this machine, which takes about half a minute");
            backend.calibrate(wanted.file(), share -> {}).lines().forEach(console::out);
            return ExitCode.OK;
        }
        try {
            int[] shown = {-1};
            String text =
                    backend.calibrate(
                            wanted.file(),
                            share -> {
                                int percent = (int) (100 * share);
                                if (percent != shown[0]) {
                                    shown[0] = percent;
                                    console.errPart(
                                            Progress.ERASE
                                                    + "bench: measuring this machine, "
                                                    + percent
                                                    + " %");
                                }
                            });
            console.errPart(Progress.ERASE);
            text.lines().forEach(console::out);
            return ExitCode.OK;
        } catch (CollectiveException failed) {
            console.errPart(Progress.ERASE);
            throw failed;
        }
    }

    private ExitCode report(boolean json) {
        List<InfoProbe> probes = new ArrayList<>(new BackendProbes(installed.get()).all());
        probes.addAll(new MachineProbes(environment.variables(), properties, Path.of("/")).all());
        InfoReport report = new InfoReport(probes, PROBE_PATIENCE);
        try {
            if (json) {
                report.printJson(console);
            } else {
                report.print(console);
            }
        } catch (InterruptedException interrupted) {
            return ExitCode.INTERRUPTED;
        }
        return ExitCode.OK;
    }

    /**
     * Ends the run at once, see {@link BenchRun#interrupt}.
     *
     * @return false if there is nothing left to end
     */
    boolean interrupt() {
        if (ended) {
            return false;
        }
        BenchRun interrupted = running;
        try {
            return interrupted == null || interrupted.interrupt();
        } catch (UncheckedIOException closed) {
            return true;
        } catch (InterruptedException alreadyEnding) {
            Thread.currentThread().interrupt();
            return true;
        }
    }
}
