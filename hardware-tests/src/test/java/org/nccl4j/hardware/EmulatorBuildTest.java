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

        assertThat(build("no-such-compiler", target)).isZero();

        assertThat(stale).doesNotExist();
        assertThatThrownBy(() -> EmulatorLibraries.in(target, "2.30"))
                .isInstanceOf(TestAbortedException.class)
                .hasMessageStartingWith("unsupported: ")
                .hasMessageContaining("no C compiler (no-such-compiler) on the PATH");
    }

    /** A home folder may have any name. */
    @Test
    void theFolderMayHaveBlanksAccentsAndCommas() throws Exception {
        Path folder = target.resolve("un café, deux");
        assertThat(build("cc", folder)).isZero();

        EmulatorLibraries libraries = EmulatorLibraries.in(folder, "2.30");
        assertThat(libraries.folder().resolve("libnccl.so.2")).isRegularFile();
        assertThat(libraries.cudaRuntime()).isRegularFile();
        assertThat(folder.resolve("2.18/libcudart.so.12")).isRegularFile();
        assertThat(folder.resolve("tests/nccl_test")).isExecutable();
    }

    @Test
    void aForgottenBuildIsNoReasonToSkip() {
        assertThatThrownBy(() -> EmulatorLibraries.in(target, "2.30"))
                .isInstanceOf(AssertionError.class)
                .hasMessageContaining("build-emulator.sh");
    }

    private static int build(String compiler, Path folder)
            throws IOException, InterruptedException {
        ProcessBuilder builder =
                new ProcessBuilder(
                        Path.of("build-emulator.sh").toAbsolutePath().toString(),
                        folder.toString());
        builder.environment().put("CC", compiler);
        builder.redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD);
        Process process = builder.start();
        assertThat(process.waitFor(120, TimeUnit.SECONDS)).isTrue();
        return process.exitValue();
    }
}
