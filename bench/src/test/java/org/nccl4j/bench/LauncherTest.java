package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The scripts {@code bench/bench}, {@code bench/image.sh}, {@code examples/run} and {@code mvnw},
 * copied into a small tree whose JDK, image and Maven are scripts that say how they were called.
 * Nothing is built.
 */
final class LauncherTest {

    /** What the scripts may call; there is no java and no mvn among it. */
    private static final List<String> TOOLS =
            List.of(
                    ("awk bash cat chmod cksum cp dirname env find flock grep locale mkdir mktemp mv"
                                    + " readlink rm sed sort tail tr xargs")
                            .split(" "));

    private static final List<String> SCRIPTS =
            List.of(
                    "mvnw",
                    ".mvn/jdk25.sh",
                    ".mvn/nearest.sh",
                    "bench/bench",
                    "bench/image.sh",
                    "bench/jmh",
                    "examples/run");

    /** A program that prints its name and its arguments, one per line, and exits with 7. */
    private static final String ECHO = "#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\"\nexit 7\n";

    @TempDir private Path folder;

    private Path tree;
    private Path jdk;
    private final Map<String, String> environment = new TreeMap<>();

    /** What a process left behind. */
    private record Result(int status, List<String> out, List<String> err) {}

    @BeforeEach
    void plant() throws IOException {
        assumeTrue(
                FileSystems.getDefault().supportedFileAttributeViews().contains("posix"),
                "unsupported: the launcher is a script for Unix");
        folder = folder.toRealPath();
        tree = folder.resolve("tree with a blank");
        Path checkout = Path.of("").toAbsolutePath().getParent();
        for (String script : SCRIPTS) {
            Path copy = tree.resolve(script);
            Files.createDirectories(copy.getParent());
            Files.copy(checkout.resolve(script), copy, StandardCopyOption.COPY_ATTRIBUTES);
        }
        Files.writeString(tree.resolve("pom.xml"), "<project/>\n");
        Files.writeString(tree.resolve("bench/pom.xml"), "<project/>\n");
        Files.createDirectories(tree.resolve("bench/src/main/java"));
        Files.writeString(source(), "class Source {}\n");
        Path examples = tree.resolve("examples/src/main/java/org/nccl4j/examples");
        Files.createDirectories(examples);
        Files.writeString(
                examples.resolve("GradientAveraging.java"),
                "public final class GradientAveraging {}\n");
        Files.writeString(
                examples.resolve("Average.java"),
                """
                /**
                 * Averages, as {@link Other#average} does.
                 */
                public final class Average {
                    /**
                     * @param arguments none
                     */
                    public static void main(String[] arguments) {}
                }
                """);
        Files.createDirectories(tree.resolve("bench/src/jmh/java"));
        Files.createFile(tree.resolve("bench/src/jmh/java/KernelBenchmark.java"));
        jdk = jdk("jdk-25", "25.0.1");
        Path tools = Files.createDirectory(folder.resolve("tools"));
        for (String tool : TOOLS) {
            for (String place : System.getenv("PATH").split(":")) {
                Path program = Path.of(place, tool);
                if (Files.isExecutable(program) && !Files.exists(tools.resolve(tool))) {
                    script(tools.resolve(tool), "#!/bin/sh\nexec '" + program + "' \"$@\"\n");
                }
            }
        }
        environment.put("PATH", tools.toString());
        environment.put("JAVA_HOME", jdk.toString());
        environment.put("NCCL4J_JVM_DIRS", folder.resolve("none").toString());
    }

    private Path source() {
        return tree.resolve("bench/src/main/java/Source.java");
    }

    private Path jdk(String name, String version) throws IOException {
        Path home = folder.resolve("jvm").resolve(name);
        script(home.resolve("bin/java"), ECHO);
        script(home.resolve("bin/javac"), ECHO);
        Files.writeString(home.resolve("release"), "JAVA_VERSION=\"" + version + "\"\n");
        return home;
    }

    private static void script(Path file, String text) throws IOException {
        Files.createDirectories(file.getParent());
        Files.writeString(file, text);
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rwxr-xr-x"));
    }

    /** The image of the sources as they are, by the name that the scripts give it. */
    private Path image() throws Exception {
        Path mark = folder.resolve("mark");
        Result marked = run(tree, "bench/image.sh", "mark", mark.toString());
        assertThat(marked).isEqualTo(new Result(0, List.of(), List.of()));
        String fingerprint = Files.readString(mark.resolve("fingerprint")).strip();
        assertThat(fingerprint).matches("\\d+-\\d+");
        return Files.createDirectories(tree.resolve("bench/target/image").resolve(fingerprint));
    }

    private Result run(Path directory, String... command) throws Exception {
        Path out = Files.createTempFile(folder, "stdout", "");
        Path err = Files.createTempFile(folder, "stderr", "");
        List<String> words = new ArrayList<>(Arrays.asList(command));
        words.set(0, directory.resolve(command[0]).toString());
        ProcessBuilder builder = new ProcessBuilder(words).directory(directory.toFile());
        builder.redirectOutput(out.toFile()).redirectError(err.toFile());
        builder.environment().clear();
        builder.environment().putAll(environment);
        Process process = builder.start();
        try {
            assertThat(process.waitFor(30, TimeUnit.SECONDS)).as("%s ended", words).isTrue();
        } finally {
            process.destroyForcibly();
        }
        return new Result(process.exitValue(), Files.readAllLines(out), Files.readAllLines(err));
    }

    @ParameterizedTest
    @ValueSource(strings = {"bench/bench", "mvnw"})
    void withoutAJdk25OneLineSaysWhatToDo(String script) throws Exception {
        environment.remove("JAVA_HOME");
        jdk("jdk-21", "21.0.2");
        Files.delete(jdk.resolve("release"));
        String places = folder.resolve("none") + ":" + folder.resolve("jvm");
        environment.put("NCCL4J_JVM_DIRS", places);
        Result result = run(tree, script, "allreduce");
        assertThat(result.status()).isEqualTo(1);
        assertThat(result.out()).isEmpty();
        assertThat(result.err())
                .singleElement()
                .asString()
                .startsWith("nccl4j needs a JDK 25, and there is none")
                .contains(places, "install one", "set JAVA_HOME");
    }

    @ParameterizedTest
    @CsvSource({"jvm", "none:jvm", "jvm/jdk-25"})
    void aJdk25IsFoundAmongOthers(String places) throws Exception {
        image();
        jdk("jdk-21", "21.0.2");
        jdk("jdk-250", "250");
        environment.remove("JAVA_HOME");
        environment.put(
                "NCCL4J_JVM_DIRS",
                String.join(
                        ":",
                        Stream.of(places.split(":"))
                                .map(place -> folder.resolve(place).toString())
                                .toList()));
        assertThat(run(tree, "bench/bench").out()).startsWith(jdk.resolve("bin/java").toString());
    }

    @Test
    void theJdkOnThePathIsFound() throws Exception {
        image();
        environment.remove("JAVA_HOME");
        Path java = jdk.resolve("bin/java");
        Files.createSymbolicLink(folder.resolve("tools/java"), java);
        assertThat(run(tree, "bench/bench").out()).startsWith(java.toString());
    }

    @Test
    void emptyVariablesCountAsUnset() throws Exception {
        image();
        List<String> unset = run(tree, "bench/bench", "allreduce").out();
        environment.put("NCCL4J_JAVA_OPTS", "");
        environment.put("NCCL4J_JVM_DIRS", "");
        assertThat(run(tree, "bench/bench", "allreduce").out()).isEqualTo(unset);
        // What folders there are depends on the machine: the one below HOME is among them.
        environment.remove("JAVA_HOME");
        environment.put("HOME", folder.toString());
        Files.createSymbolicLink(folder.resolve(".jdks"), folder.resolve("jvm"));
        String found = ". .mvn/jdk25.sh && use_jdk25 && echo \"$JAVA_HOME\"";
        assertThat(run(tree, folder.resolve("tools/bash").toString(), "-c", found).status())
                .isZero();
    }

    @Test
    void argumentsAndExitStatusPassThrough() throws Exception {
        Path image = image();
        environment.put("NCCL4J_JAVA_OPTS", "-Xmx1g  *");
        Result result = run(tree, "bench/bench", "all_reduce", "-J", "a b.json", "", "*", "$HOME");
        assertThat(result.status()).isEqualTo(7);
        assertThat(result.err()).isEmpty();
        assertThat(result.out())
                .startsWith(jdk.resolve("bin/java").toString(), "--module-path", image.toString())
                .containsSequence("-Xmx1g", "*", "--module")
                .endsWith(
                        "org.nccl4j.bench/org.nccl4j.bench.Bench",
                        "all_reduce",
                        "-J",
                        "a b.json",
                        "",
                        "*",
                        "$HOME");
    }

    @Test
    void whatTheJvmSaysStaysOffStandardOutputAndAnAsteriskIsOne() throws Exception {
        image();
        environment.put("NCCL4J_JAVA_OPTS", " -Xmx1g \t* ");
        Result result = run(tree, "bench/bench", "allreduce");
        assertThat(result.out())
                .containsSequence(
                        "-XX:+DisplayVMOutputToStderr", "-Xlog:disable", "-Xlog:all=warning:stderr")
                .containsSequence("-Xmx1g", "*", "--module");
    }

    @ParameterizedTest
    @ValueSource(strings = {"bench/bench", "examples/run"})
    void theVectorModuleIsAddedWhereTheJdkHasIt(String script) throws Exception {
        image();
        Path maven = folder.resolve("maven");
        script(maven.resolve("bin/mvn"), "#!/bin/sh\n");
        environment.put("MAVEN_HOME", maven.toString());
        String option = "--add-modules=jdk.incubator.vector";
        assertThat(run(tree, script, "GradientAveraging").out())
                .startsWith(jdk.resolve("bin/java").toString())
                .doesNotContain(option);
        Files.writeString(
                jdk.resolve("release"),
                "MODULES=\"java.base jdk.incubator.vector\"\n",
                StandardOpenOption.APPEND);
        assertThat(run(tree, script, "GradientAveraging").out()).contains(option);
    }

    @ParameterizedTest
    @CsvSource({
        "averge, examples/run: there is no example 'averge' (did you mean Average?); the examples are:",
        "Averag, examples/run: there is no example 'Averag' (did you mean Average?); the examples are:",
        "Nothing, examples/run: there is no example 'Nothing'; the examples are:",
        "'', usage: examples/run EXAMPLE [arguments]; the examples are:"
    })
    void anExampleThatIsNotThereIsRefusedBeforeTheBuild(String name, String says) throws Exception {
        Result result = run(tree, "examples/run", name);
        assertThat(result)
                .isEqualTo(
                        new Result(
                                2,
                                List.of(),
                                List.of(says, "    Average", "    GradientAveraging")));
    }

    @Test
    void theExamplesHelpNamesThemAndSaysWhatToType() throws Exception {
        Result result = run(tree, "examples/run", "--help");
        assertThat(result.status()).isZero();
        assertThat(result.err()).isEmpty();
        assertThat(result.out())
                .contains(
                        "    Average",
                        "  examples/run GradientAveraging cpu 4         a backend, and how many ranks");
    }

    @Test
    void anExampleTellsWhatItIsAndTakesBeforeTheBuild() throws Exception {
        assertThat(run(tree, "examples/run", "Average", "--help"))
                .isEqualTo(
                        new Result(
                                0,
                                List.of(
                                        "usage: examples/run Average",
                                        "",
                                        "Averages, as Other#average does.",
                                        "",
                                        "arguments: none"),
                                List.of()));
        assertThat(run(tree, "examples/run", "Average", "4", "ranks"))
                .isEqualTo(
                        new Result(
                                2,
                                List.of(),
                                List.of(
                                        "examples/run: Average takes no arguments, got '4 ranks'")));
    }

    @ParameterizedTest
    @ValueSource(strings = {"--help", "call-cost --help", "kernels -f 1 --help"})
    void theHelpOfTheMicrobenchmarksNeedsNoBuild(String words) throws Exception {
        List<String> command = new ArrayList<>(List.of("bench/jmh"));
        command.addAll(List.of(words.split(" ")));
        Result result = run(tree, command.toArray(String[]::new));
        assertThat(result.status()).isZero();
        assertThat(result.err()).isEmpty();
        assertThat(result.out()).anyMatch(line -> line.startsWith("  bench/jmh call-cost "));
    }

    @ParameterizedTest
    @CsvSource({"kernel, kernels", "call-cots, call-cost"})
    void aWordThatIsNearlyOneOfTheMicrobenchmarksIsRefused(String word, String meant)
            throws Exception {
        assertThat(run(tree, "bench/jmh", word))
                .isEqualTo(
                        new Result(
                                2,
                                List.of(),
                                List.of(
                                        "bench/jmh: there is no benchmark '"
                                                + word
                                                + "' (did you mean "
                                                + meant
                                                + "?); bench/jmh --help tells more")));
    }

    @ParameterizedTest
    @ValueSource(strings = {"bench/jmh Kernel", "bench/jmh", "examples/run Average"})
    void aBuildIsAnnouncedAndItsColoursAreNotPassedOn(String line) throws Exception {
        Path maven = folder.resolve("maven");
        script(maven.resolve("bin/mvn"), "#!/bin/sh\nprintf '\\033[0mwarning\\033[0m\\n'\n");
        environment.put("MAVEN_HOME", maven.toString());
        Files.createDirectories(tree.resolve("bench/target/jmh"));
        Files.writeString(tree.resolve("bench/target/jmh/jmh-classpath"), "jmh.jar");
        String[] words = line.split(" ");
        Result result = run(tree, words);
        assertThat(result.err())
                .containsExactly(
                        words[0] + ": building what has changed (a minute or two the first time)",
                        "warning");
        assertThat(result.out()).startsWith(jdk.resolve("bin/java").toString());
    }

    /** An emulator whose build says what a test wants it to, and a JVM that shows the variable. */
    private void plantEmulator(String build) throws Exception {
        image();
        script(
                tree.resolve("hardware-tests/emulator/build.sh"),
                "#!/bin/sh\n"
                        + build.replace(
                                "BUILD",
                                "mkdir -p \"$1/2.30\" \"$1/2.18\"; :> \"$1/.built\";"
                                        + " :> \"$1/2.30/libnccl.so.2\"; :> \"$1/2.18/libnccl.so.2\"; echo emulator: built"));
        script(
                jdk.resolve("bin/java"),
                "#!/bin/sh\nprintf '%s\\n' \"${NCCL4J_LIBRARY_PATH-none}\" \"${NCCL4J_NCCL_LIBRARY-none}\"\n");
    }

    @ParameterizedTest
    @CsvSource({
        "--emulator, 2.30",
        "--emulator=2.30, 2.30",
        "--emulator=2.18, 2.18",
        "--emu=2.18, 2.18",
        "--emulator=2.18 --emulator, 2.30"
    })
    void theEmulatorIsBuiltOnceAndTheLoaderPointedToIt(String words, String version)
            throws Exception {
        plantEmulator("BUILD");
        environment.put("NCCL4J_NCCL_LIBRARY", "/opt/libnccl.so.2");
        Path out = tree.resolve("bench/target/emulator");
        List<String> command = new ArrayList<>(List.of("bench/bench", "allreduce"));
        command.addAll(List.of(words.split(" ")));
        Result first = run(tree, command.toArray(String[]::new));
        assertThat(first.err()).containsExactly("bench: building the emulator in " + out);
        assertThat(first.out()).containsExactly(out.resolve(version).toString(), "none");
        Result second = run(tree, command.toArray(String[]::new));
        assertThat(second.err()).isEmpty();
        assertThat(second.out()).isEqualTo(first.out());
    }

    @Test
    void withoutTheOptionThereIsNoEmulator() throws Exception {
        plantEmulator("echo called >&2; exit 1");
        environment.put("NCCL4J_NCCL_LIBRARY", "/opt/libnccl.so.2");
        Result result = run(tree, "bench/bench", "allreduce", "-e", "1M", "--", "--emulator");
        assertThat(result)
                .isEqualTo(new Result(0, List.of("none", "/opt/libnccl.so.2"), List.of()));
    }

    @ParameterizedTest
    @CsvSource({
        "echo 'emulator: no C compiler (cc is not on the PATH)'; exit 3, 5, --emulator needs a C compiler",
        "echo 'emulator: does not compile'; exit 1, 1, the emulator cannot be built: emulator: does not"
    })
    void anEmulatorThatCannotBeBuiltIsOneMessage(String build, int status, String says)
            throws Exception {
        plantEmulator(build);
        Result result = run(tree, "bench/bench", "allreduce", "--emulator");
        assertThat(result.status()).isEqualTo(status);
        assertThat(result.out()).isEmpty();
        assertThat(result.err()).hasSize(2);
        assertThat(result.err().getLast()).startsWith("bench: " + says);
    }

    @Test
    void anEmulatorThatIsNotThereIsOneMessage() throws Exception {
        plantEmulator("BUILD");
        Result unknown = run(tree, "bench/bench", "allreduce", "--emulator=2.7");
        assertThat(unknown.status()).isEqualTo(255);
        assertThat(tree.resolve("bench/target/emulator")).doesNotExist();
        assertThat(unknown.err())
                .containsExactly(
                        "bench: --emulator=2.7: there is no such version; there are 2.30 (as without"
                                + " =) and 2.18");
        Files.delete(tree.resolve("hardware-tests/emulator/build.sh"));
        Result gone = run(tree, "bench/bench", "allreduce", "--emulator");
        assertThat(gone.status()).isEqualTo(5);
        assertThat(gone.err()).singleElement().asString().contains("build.sh is not there");
    }

    /** A path without ./ in front is what a CDPATH applies to. */
    @Test
    void aCdpathLeadsNowhereElse() throws Exception {
        Path image = image();
        Path decoy = folder.resolve("decoy");
        Files.createDirectories(decoy.resolve("bench"));
        environment.put("CDPATH", decoy + ":" + tree);
        Path bash = folder.resolve("tools/bash");
        Result result = run(tree, bash.toString(), "bench/bench", "allreduce");
        assertThat(result.err()).isEmpty();
        assertThat(result.status()).isEqualTo(7);
        assertThat(result.out()).contains(image.toString());
        String mark = folder.resolve("marked").toString();
        assertThat(run(tree, bash.toString(), "bench/image.sh", "mark", mark))
                .isEqualTo(new Result(0, List.of(), List.of()));
        assertThat(Path.of(mark).resolve("fingerprint"))
                .content()
                .isEqualToIgnoringNewLines(image.getFileName().toString());
    }

    @Test
    void noHomeIsNeeded() throws Exception {
        image();
        environment.remove("NCCL4J_JVM_DIRS");
        assertThat(environment).doesNotContainKey("HOME");
        Result result = run(tree, "bench/bench", "allreduce");
        assertThat(result.err()).isEmpty();
        assertThat(result.out()).startsWith(jdk.resolve("bin/java").toString());
    }

    @ParameterizedTest
    @CsvSource({"ANSI_X3.4-1968, C.UTF-8", "UTF-8, C"})
    void theJvmRunsInALocaleWithEveryCharacter(String encoding, String locale) throws Exception {
        image();
        script(folder.resolve("tools/locale"), "#!/bin/sh\necho " + encoding + "\n");
        script(jdk.resolve("bin/java"), "#!/bin/sh\necho \"$LC_ALL\"\n");
        Path maven = folder.resolve("maven");
        script(maven.resolve("bin/mvn"), "#!/bin/sh\necho \"$LC_ALL\"\n");
        environment.put("MAVEN_HOME", maven.toString());
        environment.put("LC_ALL", "C");
        for (String script : List.of("bench/bench", "mvnw")) {
            assertThat(run(tree, script, "allreduce").out()).containsExactly(locale);
        }
    }

    @Test
    void aTreeThatCannotBeWrittenIsOneLine() throws Exception {
        Files.writeString(tree.resolve("bench/target"), "in the way");
        Result result = run(tree, "bench/bench", "allreduce");
        assertThat(result.status()).isEqualTo(1);
        assertThat(result.out()).isEmpty();
        assertThat(result.err())
                .singleElement()
                .asString()
                .startsWith("bench: nccl4j is not built, and " + tree.resolve("bench/target"));
    }

    /** By links to links, one of them relative, from a folder that is none of theirs. */
    @Test
    void aLinkRunsTheTreeThatItLeadsTo() throws Exception {
        Path image = image();
        Path links = Files.createDirectories(folder.resolve("links/deep"));
        Path elsewhere = Files.createDirectory(folder.resolve("elsewhere"));
        Files.createSymbolicLink(links.resolve("first"), tree.resolve("bench/bench"));
        Files.createSymbolicLink(folder.resolve("links/second"), Path.of("deep/first"));
        Files.createSymbolicLink(elsewhere.resolve("bench"), folder.resolve("links/second"));
        Path caller = Files.createDirectory(folder.resolve("caller"));
        Result result = run(caller, elsewhere.resolve("bench").toString(), "sendrecv");
        assertThat(result.status()).isEqualTo(7);
        assertThat(result.err()).isEmpty();
        assertThat(result.out()).contains(image.toString()).endsWith("sendrecv");
    }

    @ParameterizedTest
    @CsvSource({"examples/run, usage: examples/run EXAMPLE", "bench/jmh, Builds and runs the JMH"})
    void otherScriptsMayBeLinkedToo(String script, String begins) throws Exception {
        Path links = Files.createDirectories(folder.resolve("links/deep"));
        Files.createSymbolicLink(links.resolve("first"), tree.resolve(script));
        Files.createSymbolicLink(folder.resolve("links/second"), Path.of("deep/first"));
        Result result = run(folder, "links/second", "--help");
        assertThat(result.err()).isEmpty();
        assertThat(result.status()).isZero();
        assertThat(result.out().getFirst()).startsWith(begins);
    }

    @ParameterizedTest
    @ValueSource(strings = {"bench/bench", "./bench/bench", "cd ./bench && ./bench"})
    void aRelativePathIsNotSoughtElsewhere(String command) throws Exception {
        Path image = image();
        Path decoys = folder.resolve("decoys");
        Files.createDirectories(decoys.resolve("bench"));
        environment.put("CDPATH", decoys.toString());
        Result result = run(tree, folder.resolve("tools/bash").toString(), "-c", command);
        assertThat(result.err()).isEmpty();
        assertThat(result.status()).isEqualTo(7);
        assertThat(result.out()).contains(image.toString());
    }

    /** A build that makes the image of the sources that it finds, as the real one does. */
    private void buildThatWorks() throws IOException {
        script(
                tree.resolve("mvnw"),
                """
                #!/bin/sh
                root=$(dirname "$0")
                printf '%s\\n' "$@" >>"$root/built"
                echo noise
                echo noise >&2
                "$root/bench/image.sh" mark "$root/marked"
                mkdir -p "$root/bench/target/image/$(cat "$root/marked/fingerprint")"
                """);
    }

    @ParameterizedTest
    @ValueSource(strings = {"changed", "added", "removed"})
    void aStaleImageIsBuiltAnewOnceAndNeverRun(String change) throws Exception {
        buildThatWorks();
        Path added = source().resolveSibling("Added.java");
        Files.writeString(added, "class Added {}\n");
        Path stale = image();
        assertThat(run(tree, "bench/bench").err()).as("up to date").isEmpty();
        assertThat(tree.resolve("built")).doesNotExist();
        switch (change) {
            case "changed" -> Files.writeString(source(), "class Source { int changed; }\n");
            case "added" -> Files.writeString(source().resolveSibling("B.java"), "class B {}\n");
            case "removed" -> Files.delete(added);
            default -> throw new AssertionError(change);
        }
        Result result = run(tree, "bench/bench", "allreduce");
        assertThat(result.status()).isEqualTo(7);
        assertThat(result.err())
                .singleElement()
                .asString()
                .startsWith("bench: building nccl4j (the log is ");
        Path fresh = image();
        assertThat(fresh).isNotEqualTo(stale);
        assertThat(result.out())
                .contains(fresh.toString())
                .doesNotContain(stale.toString(), "noise")
                .endsWith("allreduce");
        assertThat(Files.readAllLines(tree.resolve("built")))
                .contains("--also-make", "-Dmaven.test.skip=true")
                .containsOnlyOnce("package");
        assertThat(run(tree, "bench/bench").err()).as("up to date again").isEmpty();
    }

    @Test
    void aFailedBuildShowsWhatFailedAndWhereTheRestIs() throws Exception {
        script(
                tree.resolve("mvnw"),
                """
                #!/bin/sh
                echo '[INFO] Compiling'
                echo '[ERROR] Source.java:[1,2] no such thing'
                echo '[ERROR] Failed to execute goal compile'
                echo '[ERROR] Source.java:[1,2] no such thing'
                exit 1
                """);
        Result result = run(tree, "bench/bench", "allreduce");
        assertThat(result.status()).isEqualTo(1);
        assertThat(result.out()).isEmpty();
        Path log = tree.resolve("bench/target/bench-build.log");
        assertThat(result.err())
                .containsExactly(
                        "bench: building nccl4j (the log is " + log + ")",
                        "[ERROR] Source.java:[1,2] no such thing",
                        "[ERROR] Failed to execute goal compile",
                        "bench: the build failed; the whole log is " + log);
        assertThat(log).content().contains("[INFO] Compiling");
    }

    @Test
    void sourcesThatChangeDuringEachBuildEndIt() throws Exception {
        script(
                tree.resolve("mvnw"),
                "#!/bin/sh\necho '//' >>\"$(dirname \"$0\")/bench/src/main/java/Source.java\"\n");
        Result result = run(tree, "bench/bench", "allreduce");
        assertThat(result.status()).isEqualTo(1);
        assertThat(result.out()).isEmpty();
        assertThat(result.err())
                .hasSize(3)
                .last()
                .asString()
                .startsWith("bench: the sources changed during each of two builds");
    }

    @Test
    void anImageHoldsTheJarsAndOnlyOfTheSourcesThatWereMarked() throws Exception {
        Path jar = Files.writeString(folder.resolve("bench.jar"), "bench");
        Path library = Files.writeString(folder.resolve("library.jar"), "library");
        Path other = Files.writeString(folder.resolve("other.jar"), "other");
        Path classPath =
                Files.writeString(folder.resolve("class-path"), library + ":" + other + "\n");
        String mark = folder.resolve("mark").toString();
        String[] pack = {"bench/image.sh", "pack", mark, jar.toString(), classPath.toString()};
        Path images = tree.resolve("bench/target/image");
        run(tree, "bench/image.sh", "mark", mark);
        Files.writeString(source(), "class Source { int changed; }\n");
        assertThat(run(tree, pack).status()).isZero();
        assertThat(images).doesNotExist();
        run(tree, "bench/image.sh", "mark", mark);
        assertThat(run(tree, pack)).isEqualTo(new Result(0, List.of(), List.of()));
        try (Stream<Path> made = Files.list(images)) {
            assertThat(made)
                    .singleElement()
                    .satisfies(image ->
                            assertThat(image)
                                    .isEqualTo(image())
                                    .isDirectoryContaining("glob:**/bench.jar")
                                    .isDirectoryContaining("glob:**/library.jar")
                                    .isDirectoryContaining("glob:**/other.jar"));
        }
    }

    @Test
    void mvnwRunsMavenOnTheJdkFromAnyDirectory() throws Exception {
        Path maven = folder.resolve("maven");
        script(maven.resolve("bin/mvn"), ECHO.replace("\"$0\"", "\"$JAVA_HOME\""));
        environment.remove("JAVA_HOME");
        environment.put("NCCL4J_JVM_DIRS", folder.resolve("jvm").toString());
        environment.put("MAVEN_HOME", maven.toString());
        Path elsewhere = Files.createDirectory(folder.resolve("elsewhere"));
        Result result = run(elsewhere, tree.resolve("mvnw").toString(), "-Da=b c", "verify");
        assertThat(result)
                .isEqualTo(new Result(7, List.of(jdk.toString(), "-Da=b c", "verify"), List.of()));
    }

    @Test
    void withoutMavenOneLineSaysWhatToDo() throws Exception {
        Result result = run(tree, "mvnw", "verify");
        assertThat(result.status()).isEqualTo(1);
        assertThat(result.out()).isEmpty();
        assertThat(result.err())
                .singleElement()
                .asString()
                .contains("no mvn on the PATH", "MAVEN_HOME");
    }
}
