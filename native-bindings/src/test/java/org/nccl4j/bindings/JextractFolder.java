package org.nccl4j.bindings;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** The folder with the scripts that make the bindings; tests run in the module's folder. */
final class JextractFolder {
    static final Path PATH = Path.of("jextract").toAbsolutePath();
    static final Path SOURCES = Path.of("src", "generated", "java").toAbsolutePath();

    /** What jextract writes into a header class from "SymbolLookup" on. */
    static final String GENERATED_LOOKUP =
            """
            SymbolLookup SYMBOL_LOOKUP = SymbolLookup.loaderLookup()
                        .or(Linker.nativeLinker().defaultLookup());
            """;

    private static final int DEADLINE_SECONDS = 30;

    /** How a script ended. */
    record Result(int code, String output) {}

    private JextractFolder() {}

    /** Runs one of the scripts; a machine without a shell cannot. */
    static Result run(Path scratch, Map<String, String> environment, List<String> words)
            throws IOException, InterruptedException {
        assumeTrue(
                Stream.of(System.getenv().getOrDefault("PATH", "").split(File.pathSeparator))
                        .anyMatch(folder -> Files.isExecutable(Path.of(folder, "sh"))),
                "unsupported: no shell on the PATH");
        Path output = Files.createTempFile(scratch, "script", ".txt");
        ProcessBuilder builder =
                new ProcessBuilder(
                                Stream.concat(Stream.of("sh"), words.stream())
                                        .toArray(String[]::new))
                        .redirectErrorStream(true)
                        .redirectOutput(output.toFile());
        builder.environment().putAll(environment);
        Process process = builder.start();
        try {
            assertThat(process.waitFor(DEADLINE_SECONDS, TimeUnit.SECONDS))
                    .as("%s ends within %d s", words, DEADLINE_SECONDS)
                    .isTrue();
        } finally {
            process.destroyForcibly();
        }
        return new Result(process.exitValue(), Files.readString(output));
    }
}
