package org.nccl4j.bindings;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.nccl4j.bindings.child.Probe;

/** What only a JVM of its own can show: its flags, its environment, and that nothing is loaded. */
final class ChildJvmTest {
    private static final int DEADLINE_SECONDS = 40;

    @TempDir Path folder;

    private final Map<String, String> environment = new HashMap<>();

    /** The last child's standard error. */
    private String stderr;

    @BeforeEach
    void followLinks() throws IOException {
        folder = folder.toRealPath();
    }

    @Test
    void theFlagThatTheClassPathLacksIsNamed() throws Exception {
        assertThat(classPath("path", "--illegal-native-access=deny"))
                .singleElement()
                .asString()
                .startsWith("NCCL cannot be loaded: this JVM does not let nccl4j call native code")
                .contains("start it with --enable-native-access=ALL-UNNAMED ");
    }

    @Test
    void theFlagThatTheModuleLacksIsNamed() throws Exception {
        assertThat(modulePath("path", "--illegal-native-access=deny"))
                .singleElement()
                .asString()
                .contains("start it with --enable-native-access=org.nccl4j.bindings ");
    }

    @Test
    void theFlagThatIsNamedIsTheOneThatHelps() throws Exception {
        String missing = "-Dnccl4j.nccl.library=" + folder.resolve("missing.so");

        assertThat(
                        modulePath(
                                "path",
                                "--illegal-native-access=deny",
                                "--enable-native-access=org.nccl4j.bindings",
                                missing))
                .first()
                .asString()
                .endsWith("No such file or directory");
        assertThat(
                        classPath(
                                "path",
                                "--illegal-native-access=deny",
                                "--enable-native-access=ALL-UNNAMED",
                                missing))
                .first()
                .asString()
                .endsWith("No such file or directory");
    }

    @Test
    void settingAVariableNamesTheFlagToo() throws Exception {
        assertThat(modulePath("environment", "--illegal-native-access=deny"))
                .singleElement()
                .asString()
                .contains("start it with --enable-native-access=org.nccl4j.bindings ");
    }

    @Test
    void constantsAndLayoutsNeedNoLibrary() throws Exception {
        assertThat(
                        modulePath(
                                "constants",
                                "--enable-native-access=org.nccl4j.bindings",
                                "-Dnccl4j.library.path=" + folder))
                .containsExactly("7 23007 11 96 128 35 13000", "false false false");
    }

    /** As NativeLibrary's documentation warns. */
    @Test
    void aGeneratedFunctionWithoutALibraryIsLostForTheJvm() throws Exception {
        List<String> answer =
                modulePath(
                        "functions",
                        "--enable-native-access=org.nccl4j.bindings",
                        "-Dnccl4j.library.path=" + folder);

        assertThat(answer.getFirst())
                .startsWith(
                        "ExceptionInInitializerError: "
                                + LibraryNotLoadedException.class.getName()
                                + ": NCCL cannot be loaded from the folder "
                                + folder);
        assertThat(answer).anyMatch(line -> line.startsWith("NoClassDefFoundError: "));
    }

    @Test
    void theEnvironmentNamesAFile() throws Exception {
        Path library = CLibrary.compile(folder.resolve("libvariable.so"), CLibrary.NCCL);
        environment.put("NCCL4J_NCCL_LIBRARY", library.toString());

        assertThat(modulePath("path", "--enable-native-access=org.nccl4j.bindings"))
                .containsExactly(library.toString());
    }

    @Test
    void aSecondCopyIsWarnedAboutOnceWithBothPaths() throws Exception {
        Path ours = CLibrary.compile(folder.resolve("ours/libnccl.so.2"), CLibrary.NCCL);
        Path theirs = CLibrary.compile(folder.resolve("theirs/libnccl.so.2"), CLibrary.OLD_NCCL);

        List<String> answer =
                run(
                        List.of("-cp", classes() + ":" + testClasses()),
                        List.of("second-copy", theirs.toString()),
                        "--enable-native-access=ALL-UNNAMED",
                        "-Dnccl4j.nccl.library=" + ours);

        assertThat(answer).containsExactly(ours.toString(), theirs.toString(), "true");
        assertThat(stderr)
                .containsOnlyOnce("two copies of NCCL are in this process")
                .containsOnlyOnce(ours.toString())
                .containsOnlyOnce(theirs.toString());
    }

    private List<String> classPath(String task, String... flags) throws Exception {
        return run(List.of("-cp", classes() + ":" + testClasses()), List.of(task), flags);
    }

    private List<String> modulePath(String task, String... flags) throws Exception {
        return run(
                List.of(
                        "-p",
                        classes().toString(),
                        "--add-modules",
                        "org.nccl4j.bindings",
                        "-cp",
                        testClasses().toString()),
                List.of(task),
                flags);
    }

    private List<String> run(List<String> paths, List<String> task, String... flags)
            throws Exception {
        Path answer = folder.resolve("answer.txt");
        Path output = folder.resolve("output.txt");
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("-Xmx128m", "-XX:TieredStopAtLevel=1"));
        command.addAll(List.of(flags));
        command.addAll(paths);
        command.add(Probe.class.getName());
        command.add(answer.toString());
        command.addAll(task);
        ProcessBuilder builder =
                new ProcessBuilder(command)
                        .redirectErrorStream(true)
                        .redirectOutput(output.toFile());
        // What this machine is set up for is not what is tested.
        builder.environment().keySet().removeIf(name -> name.startsWith("NCCL4J_"));
        builder.environment().remove("JDK_JAVA_OPTIONS");
        builder.environment().remove("JAVA_TOOL_OPTIONS");
        builder.environment().putAll(environment);
        Process process = builder.start();
        try {
            assertThat(process.waitFor(DEADLINE_SECONDS, TimeUnit.SECONDS))
                    .as("%s ends within %d s", command, DEADLINE_SECONDS)
                    .isTrue();
        } finally {
            process.destroyForcibly();
        }
        stderr = Files.readString(output);
        assertThat(process.exitValue()).as("%s: %s", command, stderr).isZero();
        return Files.readAllLines(answer);
    }

    private static Path classes() throws URISyntaxException {
        return Path.of(
                NativeLibrary.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    }

    private static Path testClasses() throws URISyntaxException {
        return Path.of(
                        Objects.requireNonNull(
                                        ChildJvmTest.class.getResource("/nccl-abi-2.30.7.json"))
                                .toURI())
                .getParent();
    }
}
