package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.Reader;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.DoubleConsumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.UnsupportedException;

/** {@code bench calibrate}: options, progress, refusals. What is measured is the backend's. */
final class CalibrateTest {

    private static final int KILL = 9;

    @TempDir private Path folder;

    /** A backend that measures nothing. */
    private static Backend quick() {
        return backend(progress -> {
            progress.accept(0);
            progress.accept(0.5);
        });
    }

    private static Backend backend(Consumer<DoubleConsumer> measuring) {
        return (Backend)
                Proxy.newProxyInstance(
                        Backend.class.getClassLoader(),
                        new Class<?>[] {Backend.class},
                        (proxy, method, arguments) -> {
                            if (!method.getName().equals("calibrate")) {
                                throw new UnsupportedOperationException(method.getName());
                            }
                            measuring.accept((DoubleConsumer) arguments[1]);
                            return "found\nwritten to " + ((Optional<?>) arguments[0]).orElse(null);
                        });
    }

    private static RunningBench calibrate(String line) {
        return RunningBench.info(("calibrate " + line).strip(), bench -> bench.found = quick());
    }

    @Test
    void showsWhatTheBackendHasFound() {
        RunningBench run = calibrate("");
        assertThat(run.code).isEqualTo(ExitCode.OK);
        assertThat(run.console.outLines()).containsExactly("found", "written to null");
        assertThat(run.console.err()).doesNotContain("%").contains("about half a minute");
        assertThat(calibrate("--out some/file").console.outLines())
                .contains("written to some/file");
        assertThat(calibrate("--backend cpu --out=some/file").console.outLines())
                .contains("written to some/file");
    }

    @Test
    void aTerminalSeesProgress() {
        RunningBench run =
                RunningBench.info(
                        "calibrate",
                        bench -> {
                            bench.found = quick();
                            bench.properties.put("nccl4j.bench.terminal", "true");
                        });
        assertThat(run.console.err())
                .isEqualTo(
                        "\r\u001b[Kbench: measuring this machine, 0 %"
                                + "\r\u001b[Kbench: measuring this machine, 50 %\r\u001b[K");
    }

    @ParameterizedTest
    @CsvSource({
        "--ot x, 'not --ot. Did you mean --out?'",
        "--out, calibrate: --out needs a value",
        "-g 2, 'calibrate takes --out FILE, --backend NAME and --help, not -g'"
    })
    void refusesWithAdvice(String line, String advice) {
        RunningBench run = calibrate(line);
        assertThat(run.code).isEqualTo(ExitCode.ARGUMENTS);
        assertThat(run.console.err()).startsWith("bench: ").contains(advice);
        assertThat(run.console.out()).isEmpty();
    }

    @Test
    void aFileThatCannotBeWrittenIsSaidAtOnce() {
        RunningBench run =
                RunningBench.info(
                        "calibrate --out " + folder, bench -> bench.found = Backends.named("cpu"));
        assertThat(run.code).isEqualTo(ExitCode.UNSUPPORTED);
        assertThat(run.console.err())
                .contains("bench: calibrate: " + folder + " cannot be written: ")
                .contains("name another file");
    }

    @Test
    void aBusyMachineIsSaidAndIsAFailure() {
        RunningBench run =
                RunningBench.info(
                        "calibrate",
                        bench ->
                                bench.found =
                                        backend(progress -> {
                                            throw new UnsupportedException(
                                                    "calibrate: busy; repeat");
                                        }));
        assertThat(run.code).isEqualTo(ExitCode.UNSUPPORTED);
        assertThat(run.console.err()).contains("bench: calibrate: busy; repeat");
        assertThat(run.console.out()).isEmpty();
        assertThat(Help.calibrate())
                .anyMatch(line -> line.startsWith("Exit code: ") && line.contains("5 "));
    }

    /**
     * With the signal of {@code kill -9}, and with one that Java hears of, as it does of Ctrl-C.
     */
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    @Timeout(60)
    void whoeverIsInterruptedKeepsTheEarlierFile(boolean hears) throws Exception {
        Path file = Files.writeString(folder.resolve("rates.properties"), "earlier");
        ProcessBuilder builder =
                BenchProcess.of(List.of(), List.of("calibrate", "--out", file.toString()));
        builder.environment().put("JDK_JAVA_OPTIONS", "-Dnccl4j.bench.terminal=true");
        Process process = builder.start();
        try {
            Reader said = process.errorReader();
            StringBuilder text = new StringBuilder();
            while (!text.toString().endsWith("measuring this machine, 0 %")) {
                int letter = said.read();
                assertThat(letter).as("%s", text).isNotNegative();
                text.append((char) letter);
            }
            // By its handle, because those of Process close what it writes to.
            assertThat(hears ? process.toHandle().destroy() : process.toHandle().destroyForcibly())
                    .isTrue();
            assertThat(process.waitFor(20, TimeUnit.SECONDS)).isTrue();
        } finally {
            process.destroyForcibly();
        }
        assertThat(process.exitValue())
                .isEqualTo(hears ? ExitCode.INTERRUPTED.status() : 128 + KILL);
        assertThat(file).hasContent("earlier");
        try (Stream<Path> files = Files.list(folder)) {
            assertThat(files).containsExactly(file);
        }
    }

    @Test
    void ncclIsNotCalibrated() {
        RunningBench run =
                RunningBench.info(
                        "calibrate",
                        bench -> bench.found = new OpaqueBackend(Backends.named("cpu")));
        assertThat(run.code).isEqualTo(ExitCode.UNSUPPORTED);
        assertThat(run.console.err()).contains("is not calibrated; the CPU backend is");
    }

    @Test
    void helpIsGivenAndFitsATerminal() {
        RunningBench run = calibrate("--help");
        assertThat(run.code).isEqualTo(ExitCode.OK);
        assertThat(run.console.outLines())
                .startsWith("USAGE: bench calibrate [--out FILE]")
                .allMatch(line -> line.length() <= 100);
        assertThat(Help.overview()).anyMatch(line -> line.contains("bench calibrate "));
    }
}
