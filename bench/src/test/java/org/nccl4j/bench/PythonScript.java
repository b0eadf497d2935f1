package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** Runs scripts by the Python that is on the PATH, whatever PATH they get themselves. */
final class PythonScript {

    private final Path folder;
    private Path python;

    /** What a script left behind. */
    record Result(int status, String out, String err) {}

    /**
     * Skips the test where there is no Python.
     *
     * @param folder for what the scripts print
     */
    PythonScript(Path folder) throws Exception {
        this.folder = folder;
        Optional<Path> found =
                Stream.of(System.getenv("PATH").split(":"))
                        .map(place -> Path.of(place, "python3"))
                        .filter(Files::isExecutable)
                        .findFirst();
        assumeTrue(found.isPresent(), "unsupported: the scripts need python3");
        // What is on the PATH may be a script that finds another by the PATH.
        python = found.orElseThrow();
        Path itself =
                Files.writeString(folder.resolve("itself.py"), "import sys\nprint(sys.executable)");
        python = Path.of(run(Map.of(), itself).out().strip());
    }

    ProcessBuilder builder(Map<String, String> environment, Path script, String... arguments) {
        List<String> words = new ArrayList<>(List.of(python.toString(), script.toString()));
        words.addAll(List.of(arguments));
        ProcessBuilder builder = new ProcessBuilder(words);
        builder.environment().putAll(environment);
        return builder;
    }

    Result run(Map<String, String> environment, Path script, String... arguments) throws Exception {
        Path out = Files.createTempFile(folder, "stdout", "");
        Path err = Files.createTempFile(folder, "stderr", "");
        ProcessBuilder builder = builder(environment, script, arguments);
        Process process = builder.redirectOutput(out.toFile()).redirectError(err.toFile()).start();
        try {
            assertThat(process.waitFor(60, TimeUnit.SECONDS))
                    .as("%s ended", builder.command())
                    .isTrue();
        } finally {
            process.destroyForcibly();
        }
        return new Result(process.exitValue(), Files.readString(out), Files.readString(err));
    }
}
