package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.opentest4j.TestAbortedException;

/** The build is green where the emulator cannot be compiled, and says why its tests did not run. */
final class EmulatorBuildTest {
    @TempDir Path target;

    @BeforeEach
    void needsLinux() {
        String system = System.getProperty("os.name");
        assumeTrue(system.equals("Linux"), "unsupported: no emulator on " + system);
    }

    @Test
    void withoutACompilerTheTestsAbortWithTheReason() throws Exception {
        Path stale = Files.createDirectories(target.resolve("2.30")).resolve("libnccl.so.2");
        Files.createFile(stale);

        assertThat(build("no-such-compiler")).isZero();

        assertThat(stale).doesNotExist();
        assertThatThrownBy(() -> EmulatorLibraries.in(target, "2.30"))
                .isInstanceOf(TestAbortedException.class)
                .hasMessageStartingWith("unsupported: ")
                .hasMessageContaining("no C compiler (no-such-compiler) on the PATH");
    }

    @Test
    void aForgottenBuildIsNoReasonToSkip() {
        assertThatThrownBy(() -> EmulatorLibraries.in(target, "2.30"))
                .isInstanceOf(AssertionError.class)
                .hasMessageContaining("build-emulator.sh");
    }

    private int build(String compiler) throws IOException, InterruptedException {
        ProcessBuilder builder =
                new ProcessBuilder(
                        Path.of("build-emulator.sh").toAbsolutePath().toString(),
                        target.toString());
        builder.environment().put("CC", compiler);
        builder.redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD);
        Process process = builder.start();
        assertThat(process.waitFor(30, TimeUnit.SECONDS)).isTrue();
        return process.exitValue();
    }
}
