package org.nccl4j.bindings;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * Libraries that are compiled for a test. None has a soname: the dynamic linker would find it by
 * that in every later test of this JVM.
 */
final class CLibrary {
    /** What the loader asks of each library, and a function that older ones lack. */
    static final String NCCL =
            "int ncclGetVersion(int *version) { *version = 23007; return 0; }\n"
                    + "int ncclAlltoAll(void) { return 0; }\n";

    /** Without the newer function. */
    static final String OLD_NCCL =
            "int ncclGetVersion(int *version) { *version = 21801; return 0; }\n";

    static final String CUDA_RUNTIME =
            "int cudaRuntimeGetVersion(int *version) { *version = 12080; return 0; }\n";

    private static final int DEADLINE_SECONDS = 30;

    private CLibrary() {}

    /** Compiles a library; a machine without a compiler cannot. */
    static Path compile(Path file, String source, String... flags)
            throws IOException, InterruptedException {
        assumeTrue(
                Stream.of(System.getenv().getOrDefault("PATH", "").split(File.pathSeparator))
                        .anyMatch(folder -> Files.isExecutable(Path.of(folder, "cc"))),
                "unsupported: no C compiler (cc) on the PATH");
        Files.createDirectories(file.getParent());
        Path c = Files.writeString(file.resolveSibling(file.getFileName() + ".c"), source);
        List<String> command =
                new ArrayList<>(
                        List.of("cc", "-shared", "-fPIC", "-o", file.toString(), c.toString()));
        command.addAll(List.of(flags));
        Path output = file.resolveSibling(file.getFileName() + ".txt");
        Process process =
                new ProcessBuilder(command)
                        .redirectErrorStream(true)
                        .redirectOutput(output.toFile())
                        .start();
        try {
            assertThat(process.waitFor(DEADLINE_SECONDS, TimeUnit.SECONDS))
                    .as("cc ends within %d s", DEADLINE_SECONDS)
                    .isTrue();
        } finally {
            process.destroyForcibly();
        }
        assertThat(process.exitValue()).as("%s: %s", command, Files.readString(output)).isZero();
        return file;
    }
}
