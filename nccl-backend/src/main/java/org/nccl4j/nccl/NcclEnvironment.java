package org.nccl4j.nccl;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.nccl4j.bindings.ProcessEnvironment;

/**
 * NCCL's variables as NCCL sees them: a system property {@code nccl4j.env.NAME}, which becomes the
 * environment variable {@code NAME} before NCCL's first call, else the environment, else NCCL's
 * configuration files.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class NcclEnvironment {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    private static final String PREFIX = "nccl4j.env.";
    private static final String DEBUG_FILE = "NCCL_DEBUG_FILE";
    private static final String CONFIGURATION_FILE = "NCCL_CONF_FILE";

    private NcclEnvironment() {}

    /** Read once, as NCCL does. */
    private static final class Configured {
        static final Map<String, String> VALUES = readFiles();

        /** The first file that sets a variable wins. */
        private static Map<String, String> readFiles() {
            String named = givenOrInherited(CONFIGURATION_FILE);
            Path own =
                    named == null || named.isBlank()
                            ? Path.of(System.getProperty("user.home"), ".nccl.conf")
                            : Path.of(named);
            Map<String, String> values = new TreeMap<>();
            for (Path file : List.of(own, Path.of("/etc/nccl.conf"))) {
                read(file).forEach(values::putIfAbsent);
            }
            return values;
        }
    }

    /** The variables that a configuration file sets, by lines NAME=VALUE. */
    static Map<String, String> read(Path file) {
        Map<String, String> values = new TreeMap<>();
        try {
            // NCCL does not care about the encoding; names and values that matter here are ASCII.
            for (String line : Files.readAllLines(file, StandardCharsets.ISO_8859_1)) {
                int equals = line.indexOf('=');
                if (equals > 0 && line.charAt(0) != '#') {
                    values.putIfAbsent(line.substring(0, equals), line.substring(equals + 1));
                }
            }
        } catch (NoSuchFileException e) {
            // As usual: nobody has to have one.
            return values;
        } catch (IOException e) {
            LOG.log(
                    System.Logger.Level.WARNING,
                    "cannot read " + file + ", which NCCL reads its settings from",
                    e);
        }
        return values;
    }

    private static String givenOrInherited(String name) {
        return System.getProperty(PREFIX + name, System.getenv(name));
    }

    /** A variable's value, or null. */
    static String value(String name) {
        String value = givenOrInherited(name);
        return value == null ? Configured.VALUES.get(name) : value;
    }

    private static boolean isSet(String name) {
        String value = value(name);
        return value != null && !value.isBlank();
    }

    /** Completes the environment before NCCL's first call. */
    static void complete() {
        Map<String, String> given = new TreeMap<>();
        for (String property : System.getProperties().stringPropertyNames()) {
            if (property.startsWith(PREFIX)) {
                given.put(property.substring(PREFIX.length()), System.getProperty(property));
            }
        }
        if (isSet("NCCL_DEBUG") && !(isSet(DEBUG_FILE) && isWritable(value(DEBUG_FILE)))) {
            Path temporary = Path.of(System.getProperty("java.io.tmpdir"));
            given.put(DEBUG_FILE, debugFile(Path.of("/dev/stderr"), temporary));
        }
        given.forEach(ProcessEnvironment::set);
    }

    /**
     * Whether NCCL can write to a file that somebody has named; where it cannot it would write to
     * standard output, which belongs to the program.
     *
     * @param name as NCCL takes it: with %h for the host and %p for the process
     */
    static boolean isWritable(String name) {
        Path file = Path.of(name).toAbsolutePath();
        Path folder = file.getParent();
        boolean isWritable =
                Files.exists(file)
                        ? !Files.isDirectory(file) && Files.isWritable(file)
                        : folder != null
                                && (folder.toString().contains("%") || Files.isWritable(folder));
        if (!isWritable) {
            LOG.log(
                    System.Logger.Level.WARNING,
                    "NCCL cannot write to NCCL_DEBUG_FILE={0}; name a file in a folder that exists"
                            + " and may be written",
                    name);
        }
        return isWritable;
    }

    /**
     * Where NCCL shall write. It opens the file for itself and empties it, so that a file that
     * standard error has been sent to cannot be shared with it; and where it cannot open it, as
     * when it is a socket, it would write to standard output.
     *
     * @param standardError the path of standard error
     * @param temporary a folder for a file in its stead
     */
    static String debugFile(Path standardError, Path temporary) {
        String file;
        if (Files.isRegularFile(standardError)) {
            file = target(standardError) + ".nccl.%p";
        } else if (isOpened(standardError)) {
            return standardError.toString();
        } else {
            file = temporary.resolve("nccl4j.%h.%p.log").toString();
        }
        LOG.log(
                System.Logger.Level.INFO,
                "NCCL_DEBUG output goes to {0} (%h is the host, %p the process id), because NCCL"
                        + " cannot share this process'' standard error; set NCCL_DEBUG_FILE to"
                        + " choose",
                file);
        return file;
    }

    private static Path target(Path link) {
        try {
            return link.toRealPath();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static boolean isOpened(Path file) {
        try {
            Files.newByteChannel(file, StandardOpenOption.WRITE).close();
            return true;
        } catch (IOException e) {
            // That it cannot be opened is the answer.
            return false;
        }
    }
}
