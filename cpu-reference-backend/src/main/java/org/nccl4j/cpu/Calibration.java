package org.nccl4j.cpu;

import java.io.IOException;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.LocalDate;
import java.util.Locale;
import java.util.Optional;
import java.util.Properties;
import java.util.function.UnaryOperator;

/**
 * The {@link CostModel} of this machine: from the file that {@code bench/bench calibrate} has
 * written, or, without one, as shipped. A file that cannot be used is not used: one line in the log
 * says why and what to do.
 *
 * <p>Thread safety: all methods may be called from any thread; the file is read once.
 */
final class Calibration {
    static final String PROPERTY = "nccl4j.cpu.calibration";
    static final String VARIABLE = "NCCL4J_CPU_CALIBRATION";

    /** To be raised when the meaning of a rate changes, or the speed of an engine. */
    static final int FORMAT = 3;

    /** More than a file ever has. */
    private static final long MOST_BYTES = 1 << 20;

    private static final String REMEDY =
            "the figures that nccl4j comes with are used; run bench/bench calibrate";

    private final Path file;
    private final boolean named;
    private final Machine machine;
    private final System.Logger log;

    /** Guarded by this. */
    private CostModel model;

    private String origin;

    /**
     * What a calibration is for.
     *
     * @param processor its model
     * @param processors how many the process may use
     * @param kernels what the direct engine reduces with
     */
    record Machine(String processor, int processors, String kernels) {
        static Machine ofThisProcess(KernelChoice kernels) {
            return new Machine(
                    CpuDevices.processorModel(),
                    Runtime.getRuntime().availableProcessors(),
                    kernels.name());
        }

        /** Part of the file's name. */
        String key() {
            String plain = processor.toLowerCase(Locale.ROOT).replaceAll("[^a-z0-9]+", "-");
            return plain.replaceAll("^-|-$", "") + "-" + processors + "-" + kernels;
        }

        @Override
        public String toString() {
            return processors + " x " + processor + " with " + kernels + " kernels";
        }
    }

    /**
     * A calibration.
     *
     * @param file where it is or would be; null for the shipped one
     * @param named whether somebody has said so: then it is missed
     */
    Calibration(Path file, boolean named, Machine machine, System.Logger log) {
        this.file = file;
        this.named = named;
        this.machine = machine;
        this.log = log;
    }

    /** That of this machine. */
    static Calibration ofThisMachine() {
        return of(System::getProperty, System::getenv);
    }

    /** That of this machine by property and environment, as {@link Setting} reads them. */
    static Calibration of(UnaryOperator<String> properties, UnaryOperator<String> environment) {
        return of(
                properties,
                environment,
                Machine.ofThisProcess(KernelChoice.ofThisProcess()),
                System.getLogger(CpuBackend.class.getName()));
    }

    static Calibration of(
            UnaryOperator<String> properties,
            UnaryOperator<String> environment,
            Machine machine,
            System.Logger log) {
        Optional<Setting> named = Setting.of(PROPERTY, properties, VARIABLE, environment);
        try {
            if (named.isPresent()) {
                return new Calibration(Path.of(named.get().value()), true, machine, log);
            }
            return new Calibration(
                    folder(properties, environment)
                            .map(folder ->
                                    folder.resolve("nccl4j")
                                            .resolve(
                                                    "calibration-" + machine.key() + ".properties"))
                            .orElse(null),
                    false,
                    machine,
                    log);
        } catch (InvalidPathException e) {
            log.log(
                    System.Logger.Level.WARNING,
                    "calibration file {0} is no path: {1}; {2}",
                    e.getInput(),
                    e.getReason(),
                    REMEDY);
            return new Calibration(null, false, machine, log);
        }
    }

    private static Optional<Path> folder(
            UnaryOperator<String> properties, UnaryOperator<String> environment) {
        String cache = environment.apply("XDG_CACHE_HOME");
        if (cache != null && Path.of(cache).isAbsolute()) {
            return Optional.of(Path.of(cache));
        }
        return Optional.ofNullable(properties.apply("user.home"))
                .map(home -> Path.of(home, ".cache"))
                .filter(Path::isAbsolute);
    }

    /** Where it is or would be; empty if there is no place for it. */
    Optional<Path> file() {
        return Optional.ofNullable(file);
    }

    /** For people: what to do with a file that has been written, be it this one or another. */
    String use(Path written) {
        Path absolute = written.toAbsolutePath().normalize();
        boolean isFound = file != null && absolute.equals(file.toAbsolutePath().normalize());
        StringBuilder text = new StringBuilder("Written to ").append(absolute).append(".\n");
        if (isFound) {
            text.append("The CPU backend of a program that starts from now on chooses by it");
            text.append(
                    named
                            ? ", as long as " + VARIABLE + " or -D" + PROPERTY + " names it.\n"
                            : ".\n");
        } else {
            text.append("The CPU backend does not look there by itself. To choose by it, set ")
                    .append(VARIABLE)
                    .append('=')
                    .append(absolute)
                    .append("\nor -D")
                    .append(PROPERTY)
                    .append('=')
                    .append(absolute)
                    .append(".\n");
        }
        return text.append(
                        "Column algo of bench/bench allreduce --show-algo tells what is chosen.\n")
                .append("To go back to the rates that nccl4j comes with, delete the file.\n")
                .toString();
    }

    Machine machine() {
        return machine;
    }

    synchronized CostModel model() {
        if (model == null) {
            load();
        }
        return model;
    }

    /** Where the model comes from, in a few words. */
    synchronized String origin() {
        model();
        return origin;
    }

    private void load() {
        model = CostModel.SHIPPED;
        origin = "not calibrated";
        if (file == null) {
            return;
        }
        if (Files.exists(file) && !Files.isRegularFile(file)) {
            // A pipe would be waited for, and a device may have no end.
            refuse("is not a regular file");
            return;
        }
        try {
            if (Files.size(file) > MOST_BYTES) {
                refuse("is malformed: it has " + Files.size(file) + " bytes");
                return;
            }
            Properties read = properties(Files.readString(file));
            model = parse(read);
            origin = "calibrated " + read.getProperty("date");
        } catch (NoSuchFileException e) {
            if (named) {
                refuse("does not exist");
            }
        } catch (IOException e) {
            refuse("cannot be read: " + e);
        } catch (IllegalArgumentException e) {
            refuse(e.getMessage());
        }
    }

    private static Properties properties(String text) throws IOException {
        Properties properties = new Properties();
        try {
            properties.load(new StringReader(text));
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException("is malformed: " + e.getMessage(), e);
        }
        return properties;
    }

    private void refuse(String why) {
        log.log(
                System.Logger.Level.WARNING,
                "calibration file {0} is not used, it {1}; {2}",
                file,
                why,
                REMEDY);
    }

    /** The model in a file, or an exception that says what is wrong with the file. */
    private CostModel parse(Properties read) {
        require(read, "format", String.valueOf(FORMAT));
        require(read, "processor", machine.processor);
        require(read, "processors", String.valueOf(machine.processors));
        require(read, "kernels", machine.kernels);
        if (read.getProperty("date") == null) {
            throw new IllegalArgumentException("is malformed: it has no date");
        }
        return new CostModel(
                CostModel.THREADS,
                rates(read, CostModel.THREADS + ".direct."),
                rates(read, CostModel.THREADS + ".schedules."),
                rate(read, CostModel.THREADS + ".threshold"));
    }

    private static void require(Properties read, String key, String wanted) {
        String found = read.getProperty(key);
        if (found == null) {
            throw new IllegalArgumentException("is malformed: it has no " + key);
        }
        if (!found.equals(wanted)) {
            throw new IllegalArgumentException(
                    "was made for another machine or version: its "
                            + key
                            + " is "
                            + found
                            + ", here it is "
                            + wanted);
        }
    }

    private static Rates rates(Properties read, String prefix) {
        return new Rates(
                rate(read, prefix + "fixed-us"),
                rate(read, prefix + "handover-us"),
                rate(read, prefix + "rank-us"),
                rate(read, prefix + "alpha-us"),
                rate(read, prefix + "beta-us-per-mib"),
                rate(read, prefix + "gamma-us-per-mib"),
                rate(read, prefix + "spill-us-per-mib"),
                rate(read, prefix + "memory-us-per-mib"),
                rate(read, prefix + "inner-cache-mib"),
                rate(read, prefix + "outer-cache-mib"));
    }

    private static double rate(Properties read, String key) {
        String value = read.getProperty(key);
        double rate;
        try {
            rate = value == null ? -1 : Double.parseDouble(value);
        } catch (NumberFormatException e) {
            rate = -1;
        }
        if (!(rate >= 0 && rate < Double.POSITIVE_INFINITY)) {
            throw new IllegalArgumentException(
                    "is malformed: "
                            + key
                            + (value == null ? " is missing" : "=" + value + " is no rate"));
        }
        return rate;
    }

    /**
     * Tries whether {@link #store} could write a file.
     *
     * @throws IOException if not
     */
    static void requireWritable(Path file) throws IOException {
        if (Files.isDirectory(file)) {
            throw new FileSystemException(file.toString(), null, "it is a folder");
        }
        Files.delete(part(file));
    }

    /** A new file beside another one. */
    private static Path part(Path file) throws IOException {
        Path folder = file.toAbsolutePath().getParent();
        Files.createDirectories(folder);
        return Files.createTempFile(folder, ".calibration", ".part");
    }

    /**
     * Writes a model to a file, whole or not at all: whoever reads it, or whenever the process is
     * killed, there is the earlier file or the new one.
     *
     * @throws IOException if it cannot be written; the file is as before
     */
    static void store(Path file, Machine machine, CostModel model, LocalDate today)
            throws IOException {
        StringBuilder text = new StringBuilder();
        text.append(
                "# What operations cost on this machine, by bench/bench calibrate of nccl4j.\n");
        line(text, "format", String.valueOf(FORMAT));
        line(text, "date", today.toString());
        line(text, "processor", machine.processor.replace("\\", "\\\\"));
        line(text, "processors", String.valueOf(machine.processors));
        line(text, "kernels", machine.kernels);
        rates(text, model.transport() + ".direct.", model.direct());
        rates(text, model.transport() + ".schedules.", model.schedules());
        line(text, model.transport() + ".threshold", number(model.threshold()));
        Path part = part(file);
        try {
            Files.writeString(part, text, StandardCharsets.UTF_8);
            Files.move(part, file, StandardCopyOption.ATOMIC_MOVE);
        } finally {
            Files.deleteIfExists(part);
        }
    }

    private static void rates(StringBuilder text, String prefix, Rates rates) {
        line(text, prefix + "fixed-us", number(rates.fixedMicros()));
        line(text, prefix + "handover-us", number(rates.handoverMicros()));
        line(text, prefix + "rank-us", number(rates.rankMicros()));
        line(text, prefix + "alpha-us", number(rates.alphaMicros()));
        line(text, prefix + "beta-us-per-mib", number(rates.betaMicrosPerMiB()));
        line(text, prefix + "gamma-us-per-mib", number(rates.gammaMicrosPerMiB()));
        line(text, prefix + "spill-us-per-mib", number(rates.spillMicrosPerMiB()));
        line(text, prefix + "memory-us-per-mib", number(rates.memoryMicrosPerMiB()));
        line(text, prefix + "inner-cache-mib", number(rates.innerCacheMiB()));
        line(text, prefix + "outer-cache-mib", number(rates.outerCacheMiB()));
    }

    private static void line(StringBuilder text, String key, String value) {
        text.append(key).append('=').append(value).append('\n');
    }

    /** All digits: choices were checked with these very rates. */
    private static String number(double value) {
        return String.valueOf(value);
    }
}
