package org.nccl4j.bench;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Clock;
import java.time.LocalDateTime;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import tools.jackson.core.JacksonException;
import tools.jackson.core.JsonGenerator;
import tools.jackson.core.ObjectWriteContext;
import tools.jackson.core.json.JsonFactory;
import tools.jackson.core.json.JsonWriteFeature;

/**
 * The file of -J in nccl-tests' format 3, written as the run goes. Each method writes a complete
 * part, so the file is valid JSON whenever {@link #close} is called.
 *
 * <p>A file that can no longer be written fails the run: every method may throw {@link
 * JacksonException}, once; the file is then closed as it is.
 *
 * <p>Thread safety: all methods are synchronized, and do nothing once the file is closed: an
 * interrupted run is finished by another thread while rows may still be on their way.
 */
final class JsonReport implements AutoCloseable {

    private static final int FORMAT_VERSION = 3;

    /** Bytes of a string, escapes included; the rest is cut. */
    private static final int STRING_LIMIT = 2047;

    private final OutputStream file;
    private final JsonGenerator json;
    private final Clock clock;
    private boolean closed;

    /** Writes to an open file, which it closes. */
    JsonReport(OutputStream file, Clock clock) {
        this.file = file;
        this.clock = clock;
        // Otherwise the defaults: no blanks, and close() ends open lists and objects.
        this.json =
                JsonFactory.builder()
                        .enable(JsonWriteFeature.ESCAPE_FORWARD_SLASHES)
                        .build()
                        .createGenerator(ObjectWriteContext.empty(), file);
    }

    /**
     * Creates the file, or the first of {@code path.0}, {@code path.1}, ... that does not exist,
     * and says on standard output which; no existing file is ever touched. Where none can be
     * created, says so there and returns nothing: the run goes on.
     */
    static Optional<JsonReport> open(String path, Clock clock, Console console) {
        try {
            for (int suffix = -1; ; suffix++) {
                String candidate = suffix < 0 ? path : path + "." + suffix;
                Optional<OutputStream> file = create(Path.of(candidate));
                if (file.isPresent()) {
                    console.out("# Writing JSON output to " + candidate);
                    return Optional.of(new JsonReport(file.get(), clock));
                }
            }
        } catch (IOException | InvalidPathException cause) {
            console.out("# skipping json output; " + path + " not accessible");
            console.err("bench: -J " + path + ": " + cause);
            return Optional.empty();
        }
    }

    private static Optional<OutputStream> create(Path path) throws IOException {
        try {
            return Optional.of(
                    Files.newOutputStream(
                            path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE));
        } catch (FileAlreadyExistsException taken) {
            return Optional.empty();
        }
    }

    /**
     * Begins the file: format, time, command line, environment, NCCL's version.
     *
     * @param commandLine {@link BenchOptions#commandLine}
     * @param environment {@link BenchEnvironment#reported}
     */
    synchronized void start(
            List<String> commandLine, List<String> environment, BackendFacts facts) {
        write(() -> {
            json.writeStartObject();
            integer("version", FORMAT_VERSION);
            string("start_time", now());
            strings("args", commandLine);
            strings("env", environment);
            integer("nccl_version", facts.ncclLibrary());
            if (facts.emulated()) {
                bool("emulator", true);
            }
        });
    }

    /**
     * Writes the configuration and opens the list of results.
     *
     * @param gpusPerThread what {@link BenchOptions.Layout#gpusPerThread(int, boolean)} came to
     * @param devices every rank of every process (nccl-tests lists one per process)
     */
    synchronized void config(BenchOptions options, int gpusPerThread, List<DeviceLine> devices) {
        write(() -> writeConfig(options, gpusPerThread, devices));
    }

    private void writeConfig(BenchOptions options, int gpusPerThread, List<DeviceLine> devices) {
        BenchOptions.Sweep sweep = options.sweep();
        BenchOptions.Timing timing = options.timing();
        json.writeName("config").writeStartObject();
        integer("nthreads", options.layout().threads());
        integer("ngpus", gpusPerThread);
        integer("minimum_bytes", sweep.minBytes());
        integer("maximum_bytes", sweep.maxBytes());
        if (sweep.multiplies()) {
            integer("step_factor", sweep.stepFactor());
        } else {
            integer("step_bytes", sweep.stepBytes());
        }
        integer("warmup_iters", timing.warmupIterations());
        integer("iterations", timing.iterations());
        integer("aggregated_iterations", timing.aggregated());
        integer("validation", options.work().checkRounds());
        integer("graph", timing.graphLaunches());
        bool("blocking_collectives", timing.blocking() != 0);
        bool("per_iter_timing", timing.perIteration());
        integer("per_iter_skip", timing.perIterationSkip());
        bool("parallel_init", options.layout().parallelInit());
        json.writeName("devices").writeStartArray();
        for (DeviceLine device : devices) {
            json.writeStartObject();
            integer("rank", device.rank());
            integer("group", device.group());
            integer("pid", device.pid());
            string("hostname", device.hostname());
            integer("device", device.device());
            string("device_hex", device.busId());
            string("device_info", device.name());
            json.writeEndObject();
        }
        json.writeEndArray();
        json.writeEndObject();
        json.writeName("results").writeStartArray();
    }

    /** Adds one row to the results. */
    synchronized void row(Row row, BenchOptions options) {
        write(() -> writeRow(row, options));
    }

    private void writeRow(Row row, BenchOptions options) {
        String time = options.output().cpuTime() ? "cpu_time" : "time";
        json.writeStartObject();
        integer("size", row.shape().sizeBytes());
        integer("count", row.shape().paramCount());
        string("type", row.series().type().label());
        string("redop", row.series().redop());
        string("root", CNumber.right(Integer.toString(row.series().root()), 6));
        placement("out_of_place", time, row.outOfPlace());
        placement("in_place", time, row.inPlace());
        row.algorithm().ifPresent(name -> string("algorithm", name));
        integer("actual_iterations", options.timing().iterations());
        string("experiment_name", "");
        json.writeEndObject();
    }

    private void placement(String name, String time, Cell cell) {
        json.writeName(name).writeStartObject();
        real(time, cell.micros());
        real("alg_bw", cell.bandwidth().algBwGBps());
        real("bus_bw", cell.bandwidth().busBwGBps());
        OptionalLong wrong = cell.wrongElements();
        if (wrong.isPresent()) {
            real("nwrong", (double) wrong.getAsLong());
        } else {
            json.writeName("nwrong").writeNull();
        }
        json.writeEndObject();
        if (cell.iterations().isPresent()) {
            iterations(name + "_per_iter", cell.iterations().get());
        }
    }

    private void iterations(String name, IterationTimes times) {
        json.writeName(name).writeStartObject();
        integer("skipped_iterations", times.skipped());
        real("min_us", times.minMicros());
        real("max_us", times.maxMicros());
        real("avg_us", times.meanMicros());
        real("p50_us", times.p50Micros());
        real("p95_us", times.p95Micros());
        real("p99_us", times.p99Micros());
        real("stdev_us", times.stdevMicros());
        real("cv_pct", times.cvPercent());
        json.writeName("times_us");
        reals(times.samplesMicros());
        if (times.perProcessMicros().size() > 1) {
            json.writeName("per_process_max_times_us").writeStartArray();
            times.perProcessMicros().forEach(this::reals);
            json.writeEndArray();
        }
        json.writeEndObject();
    }

    /**
     * Ends the file of a run that came to its verdict, and closes it.
     *
     * @param lastError the backend's last error text, if it has one
     */
    synchronized void finish(Summary summary, Optional<String> lastError) {
        write(() -> writeVerdict(summary, lastError));
        close();
    }

    private void writeVerdict(Summary summary, Optional<String> lastError) {
        json.writeEndArray();
        json.writeName("out_of_bounds").writeStartObject();
        integer("count", summary.outOfBounds());
        bool("okay", summary.allCorrect());
        json.writeEndObject();
        json.writeName("average_bus_bandwidth").writeStartObject();
        real("bandwidth", summary.meanBusBwGBps());
        if (summary.expectedBusBwGBps().isEmpty()) {
            string("okay", "unchecked");
        } else {
            bool("okay", summary.fastEnough());
        }
        json.writeEndObject();
        strings("errors", List.of(lastError.orElse("")));
    }

    /**
     * Closes the file as it is: open lists and objects are ended, keys that are not there yet stay
     * away. {@code end_time} is written if nothing but the outermost object was open, that is,
     * unless the run was cut off among its results. Does nothing if the file is closed already.
     */
    @Override
    public synchronized void close() {
        write(() -> {
            if (json.streamWriteContext().getNestingDepth() == 1) {
                string("end_time", now());
            }
            json.close();
            closed = true;
        });
    }

    /** Writes a part through to the file, unless that is closed. */
    private void write(Runnable part) {
        if (closed) {
            return;
        }
        try {
            part.run();
            if (!closed) {
                json.flush();
            }
        } catch (JacksonException unwritable) {
            // Nothing more is tried: the generator would write the rest of its buffer again.
            closed = true;
            try {
                file.close();
            } catch (IOException closing) {
                unwritable.addSuppressed(closing);
            }
            throw unwritable;
        }
    }

    private String now() {
        return TableReport.timestamp(LocalDateTime.now(clock));
    }

    private void integer(String name, long value) {
        json.writeName(name).writeNumber(value);
    }

    private void string(String name, String value) {
        json.writeName(name).writeString(printable(value));
    }

    private void strings(String name, List<String> values) {
        json.writeName(name).writeStartArray();
        for (String value : values) {
            json.writeString(printable(value));
        }
        json.writeEndArray();
    }

    /** Booleans are strings in this format. */
    private void bool(String name, boolean value) {
        json.writeName(name).writeString(Boolean.toString(value));
    }

    private void real(String name, double value) {
        json.writeName(name);
        real(value);
    }

    private void reals(List<Double> values) {
        json.writeStartArray();
        values.forEach(this::real);
        json.writeEndArray();
    }

    private void real(double value) {
        if (Double.isNaN(value)) {
            json.writeString("nan");
        } else if (Double.isInfinite(value)) {
            // nccl-tests writes a bare inf, which no JSON parser takes.
            json.writeString(value > 0 ? "inf" : "-inf");
        } else {
            json.writeNumber(CNumber.fixed(value, 6));
        }
    }

    /**
     * The part of a text that nccl-tests would write: up to the first odd character or the limit.
     */
    private static String printable(String text) {
        int bytes = 0;
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            boolean escaped = c == '"' || c == '\\' || c == '/' || c == '\t' || c == '\n';
            bytes += escaped ? 2 : 1;
            boolean odd = (c < ' ' && !escaped) || c >= 0x7f;
            if (odd || bytes > STRING_LIMIT) {
                return text.substring(0, i);
            }
        }
        return text;
    }
}
