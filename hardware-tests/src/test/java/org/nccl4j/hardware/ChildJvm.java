package org.nccl4j.hardware;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * A JVM with the class path of this one, whose output goes to files; killed when closed.
 *
 * @param process the JVM
 * @param out its standard output
 * @param err its standard error
 */
record ChildJvm(Process process, Path out, Path err) implements AutoCloseable {

    static ChildJvm start(
            Path folder,
            String name,
            EmulatorLibraries libraries,
            Map<String, String> environment,
            Class<?> program,
            String... arguments) {
        List<String> command =
                new ArrayList<>(
                        List.of(
                                ProcessHandle.current().info().command().orElseThrow(),
                                "-Xmx256m",
                                "-XX:TieredStopAtLevel=1",
                                "--enable-native-access=ALL-UNNAMED"));
        libraries.properties().forEach((key, value) -> command.add("-D" + key + "=" + value));
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), program.getName()));
        command.addAll(List.of(arguments));
        Path out = folder.resolve(name + ".out");
        Path err = folder.resolve(name + ".err");
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().putAll(environment);
        builder.redirectOutput(out.toFile()).redirectError(err.toFile());
        try {
            return new ChildJvm(builder.start(), out, err);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Waits for its end; fails with what it said if that is not a success. */
    void awaitSuccess(Duration deadline) {
        awaitExit(deadline);
        if (process.exitValue() != 0) {
            throw new AssertionError("exit code " + process.exitValue() + said());
        }
    }

    void awaitExit(Duration deadline) {
        try {
            if (!process.waitFor(deadline.toMillis(), TimeUnit.MILLISECONDS)) {
                throw new AssertionError("runs longer than " + deadline + said());
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AssertionError("interrupted: the test's own deadline has passed", e);
        }
    }

    String said() {
        try {
            return "\nstdout:\n" + Files.readString(out) + "\nstderr:\n" + Files.readString(err);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** As kill -9 does. */
    void kill() {
        process.destroyForcibly();
    }

    @Override
    public void close() {
        kill();
        awaitExit(Duration.ofSeconds(10));
    }
}
