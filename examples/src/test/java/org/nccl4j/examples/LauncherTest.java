package org.nccl4j.examples;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Examples in JVMs of their own, which have neither JCuda nor JavaCPP nor a library of NCCL. */
final class LauncherTest {
    @TempDir private Path folder;

    /** What a process left behind. */
    private record Result(int status, String out, String err) {}

    private Result run(String line) throws Exception {
        Path out = folder.resolve("out");
        Path err = folder.resolve("err");
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(
                List.of(
                        "--enable-native-access=ALL-UNNAMED",
                        "-XX:-UsePerfData",
                        "-Dnccl4j.library.path=" + folder,
                        "-cp",
                        classPath(),
                        Launcher.class.getName()));
        command.addAll(List.of(line.split(" ")));
        Process process =
                new ProcessBuilder(command)
                        .redirectOutput(out.toFile())
                        .redirectError(err.toFile())
                        .start();
        try {
            assertThat(process.waitFor(60, TimeUnit.SECONDS)).as("%s ended", line).isTrue();
        } finally {
            process.destroyForcibly();
        }
        return new Result(process.exitValue(), Files.readString(out), Files.readString(err));
    }

    /** Everything on this JVM's paths but the jars that their users bring. */
    private static String classPath() {
        return Stream.of("jdk.module.path", "java.class.path")
                .map(System::getProperty)
                .filter(path -> path != null)
                .flatMap(path -> Stream.of(path.split(File.pathSeparator)))
                .filter(entry -> !entry.matches(".*(jcuda|bytedeco).*"))
                .collect(Collectors.joining(File.pathSeparator));
    }

    @ParameterizedTest
    @CsvSource({"Average, '[1.5, 2.5, 3.5]'", "GradientAveraging cpu 3, 'cpu, 3 ranks: loss '"})
    void runsAnExample(String line, String says) throws Exception {
        Result result = run(line);
        assertThat(result.status()).as("%s", result).isZero();
        assertThat(result.out()).startsWith(says);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "GradientAveraging --help",
                "GradientAveraging cpu four",
                "GradientAveraging cpu 0",
                "GradientAveraging cpu 1025",
                "GradientAveraging cpu 99999999999",
                "GradientAveraging cpu 2 3",
                "ProcessPerGpu --help",
                "ProcessPerGpu 0 two job.id",
                "ProcessPerGpu 2 2 job.id"
            })
    void whatIsNotUnderstoodIsAnsweredByTheUsage(String line) throws Exception {
        Result result = run(line);
        assertThat(result.status()).isEqualTo(2);
        assertThat(result.out()).isEmpty();
        assertThat(result.err().lines())
                .singleElement()
                .asString()
                .startsWith("usage: " + line.split(" ")[0] + " ");
    }

    @ParameterizedTest
    @ValueSource(strings = {"GradientAveraging nccl", "ProcessPerGpu 0 2 job.id"})
    void aBackendThatIsNotAvailableSaysWhyAndShowsNoStack(String line) throws Exception {
        Result result = run(line);
        assertThat(result.status()).isEqualTo(5);
        assertThat(result.err())
                .startsWith(line.split(" ")[0] + ": backend 'nccl' is not available here:\n  NCCL ")
                .doesNotContain("\tat ");
    }

    @Test
    void aBackendThatDoesNotExistNamesThoseThatDo() throws Exception {
        Result result = run("GradientAveraging gpu");
        assertThat(result.status()).isEqualTo(5);
        assertThat(result.err())
                .startsWith("GradientAveraging: no backend 'gpu' is installed; found [cpu, nccl]")
                .doesNotContain("\tat ");
    }

    @Test
    void withoutItsJarsAnExampleNamesTheClassPath() throws Exception {
        Result result = run("JCudaAllReduce");
        assertThat(result.status()).isEqualTo(5);
        assertThat(result.err())
                .startsWith("JCudaAllReduce: needs the jars of JCuda with their natives")
                .contains("\n  CLASSPATH=jcuda-", ".jar examples/run JCudaAllReduce")
                .doesNotContain("\tat ");
    }
}
