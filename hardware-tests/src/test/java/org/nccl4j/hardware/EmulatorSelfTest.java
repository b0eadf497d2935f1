package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The emulator's own tests: C programs that the build compiles with it. */
final class EmulatorSelfTest {
    private static final int DEADLINE_SECONDS = 50;

    @TempDir Path folder;

    @ParameterizedTest
    @CsvSource({"cudart_test, 2.30", "nccl_test, 2.30", "nccl_test, 2.18"})
    void itsOwnProgramsPass(String program, String version) throws Exception {
        Path libraries = EmulatorLibraries.of(version).folder();
        Path output = folder.resolve("output");
        ProcessBuilder builder =
                new ProcessBuilder(libraries.resolveSibling("tests").resolve(program).toString());
        builder.environment().put("LD_LIBRARY_PATH", libraries.toString());
        builder.redirectErrorStream(true).redirectOutput(output.toFile());
        Process process = builder.start();
        try {
            assertThat(process.waitFor(DEADLINE_SECONDS, TimeUnit.SECONDS))
                    .as("%s ends within %d s: %s", program, DEADLINE_SECONDS, text(output))
                    .isTrue();
            assertThat(process.exitValue())
                    .as("%s on %s: %s", program, version, text(output))
                    .isZero();
        } finally {
            process.destroyForcibly();
        }
    }

    private static String text(Path output) throws IOException {
        return Files.readString(output);
    }
}
