package org.nccl4j.bench;

import java.time.Clock;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import tools.jackson.core.JacksonException;

/**
 * What a run shows: rows as they come, then one end: a verdict, a failure, or the footer of an
 * interrupted run. After the end nothing is shown any more.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class RunReport {

    /** How long an interrupted run waits for a row that is just being printed. */
    private static final long ROW_SECONDS = 2;

    private final ReentrantLock lock = new ReentrantLock();
    private final Console console;
    private final BenchOptions options;
    private final TableReport table;
    private final OptionalDouble expectedBusBwGBps;
    private final Supplier<MemoryUsage> memory;
    private final Progress progress;
    private final BusBandwidthMean mean = new BusBandwidthMean();
    private final List<String> summaries = new ArrayList<>();
    private Optional<JsonReport> json = Optional.empty();
    private Optional<MemoryUsage> memoryAtEnd = Optional.empty();
    private long outOfBounds;
    private long rows;
    private volatile String current;
    private volatile boolean interrupted;
    private boolean started;
    private boolean ended;

    /**
     * @param memory what -M reports, asked at the end if it is on
     */
    RunReport(
            Console console,
            BenchOptions options,
            OptionalDouble expectedBusBwGBps,
            Supplier<MemoryUsage> memory,
            Progress progress) {
        this.console = console;
        this.options = options;
        this.table = new TableReport(console, options);
        this.expectedBusBwGBps = expectedBusBwGBps;
        this.memory = memory;
        this.progress = progress;
    }

    /**
     * Creates the JSON file, if there is to be one, and prints the first lines. An interruption
     * comes before or after: it finds no file or a valid one.
     *
     * @param environment {@link BenchEnvironment#reported}
     * @param gpusPerThread what {@link BenchOptions.Layout#gpusPerThread(int, boolean)} came to
     */
    void begin(BackendFacts facts, int gpusPerThread, List<String> environment) {
        locked(() -> {
            Clock clock = Clock.systemDefaultZone();
            json =
                    options.output()
                            .jsonFile()
                            .flatMap(path -> JsonReport.open(path, clock, console));
            json.ifPresent(file -> file.start(options.commandLine(), environment, facts));
            table.start(facts, gpusPerThread);
        });
    }

    /** Lists the devices. */
    void devices(List<DeviceLine> devices, int gpusPerThread) {
        locked(() -> {
            table.devices(devices);
            json.ifPresent(file -> file.config(options, gpusPerThread, devices));
        });
    }

    /** Prints the column headers; from here on the run has a footer. */
    void start() {
        locked(() -> {
            progress.erase();
            table.columns();
            started = true;
        });
    }

    /** Shows on a terminal that buffers are being allocated, which can take a while. */
    void allocating(long totalBytes) {
        locked(() -> progress.allocating(totalBytes));
    }

    /** Notes what is about to run, and shows it on a terminal. */
    void progress(RowPlan plan, Placement placement) {
        locked(() -> {
            current = plan.describe(placement);
            progress.starting(plan, placement);
        });
    }

    /** What ran last, for the message of a failure; empty before the first cell. */
    Optional<String> current() {
        return Optional.ofNullable(current);
    }

    /** Lines that belong to the next row; they are printed before it. */
    void summary(List<String> lines) {
        locked(() -> summaries.addAll(lines));
    }

    /** Counts a thread's failed check. */
    void outOfBounds() {
        locked(() -> outOfBounds++);
    }

    void row(Row row) {
        locked(() -> {
            progress.erase();
            summaries.forEach(console::out);
            summaries.clear();
            table.row(row);
            json.ifPresent(file -> file.row(row, options));
            mean.add(row);
            rows++;
        });
    }

    void skipped(int ranks) {
        locked(() -> table.skipped(ranks));
    }

    /** Notes that all rows are there. The memory that -M reports is still in use. */
    void ran() {
        locked(() -> {
            current = null;
            memoryAtEnd = memory();
        });
    }

    private Optional<MemoryUsage> memory() {
        return options.output().memory() ? Optional.of(memory.get()) : Optional.empty();
    }

    /**
     * Prints the footer and ends the JSON file.
     *
     * @return the run's exit code, or INTERRUPTED if that came first
     */
    ExitCode finish() {
        lock.lock();
        try {
            return ended ? ExitCode.INTERRUPTED : footer();
        } finally {
            lock.unlock();
        }
    }

    /** Ends the JSON file of a failed run, which has no footer; nothing if the run has ended. */
    void fail() {
        locked(() -> {
            ended = true;
            progress.erase();
            closeJson();
        });
    }

    /** Closes the file of a run that ends for another reason: one that cannot be is only noted. */
    private void closeJson() {
        try {
            json.ifPresent(JsonReport::close);
        } catch (JacksonException unwritable) {
            unwritable(unwritable);
        }
    }

    /** Says on standard error that the JSON file cannot be written. */
    void unwritable(JacksonException failed) {
        console.err(
                "bench: -J "
                        + options.output().jsonFile().orElse("")
                        + ": "
                        + failed.getOriginalMessage()
                        + "; the file ends there: free space, or name another file");
    }

    /** True if {@link #interrupt} ended the run. */
    boolean isInterrupted() {
        return interrupted;
    }

    /**
     * Ends a run at once, from another thread: prints the footer of what has run and ends the JSON
     * file. Waits for nothing but a row that is just being printed, and not long for that.
     *
     * @return false if the run had ended already
     */
    boolean interrupt() throws InterruptedException {
        if (!lock.tryLock(ROW_SECONDS, TimeUnit.SECONDS)) {
            return true;
        }
        try {
            if (ended) {
                return false;
            }
            interrupted = true;
            if (started) {
                footer();
                console.err(
                        "bench: interrupted after "
                                + rows
                                + (rows == 1 ? " row" : " rows")
                                + "; the average is of what had run");
            } else {
                ended = true;
                closeJson();
            }
            return true;
        } finally {
            lock.unlock();
        }
    }

    private ExitCode footer() {
        ended = true;
        progress.erase();
        Summary summary = new Summary(outOfBounds, mean.meanGBps(), expectedBusBwGBps);
        // Ended first: standard output may be closed, and the file must be valid all the same.
        try {
            json.ifPresent(file -> file.finish(summary, Optional.empty()));
        } catch (JacksonException unwritable) {
            if (!interrupted) {
                throw unwritable;
            }
            unwritable(unwritable);
        }
        table.footer(summary, memoryAtEnd.isPresent() ? memoryAtEnd : memory(), Optional.empty());
        return summary.exitCode();
    }

    private void locked(Runnable action) {
        lock.lock();
        try {
            if (!ended) {
                action.run();
            }
        } finally {
            lock.unlock();
        }
    }
}
