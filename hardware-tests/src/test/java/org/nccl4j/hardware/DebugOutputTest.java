package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** C10: what NCCL says of itself does not get into the table that a program prints. */
final class DebugOutputTest {
    private static EmulatorLibraries libraries;

    @TempDir Path folder;

    @BeforeAll
    static void needEmulator() {
        libraries = EmulatorLibraries.of("2.30");
    }

    @Test
    void standardOutputIsTheSameWithNcclsDebugOutput() throws Exception {
        ChildJvm quiet = run("quiet", Map.of());
        ChildJvm loud = run("loud", Map.of("NCCL_DEBUG", "INFO"));

        assertThat(loud.out()).hasSameTextualContentAs(quiet.out());
        assertThat(allOf("loud")).contains("NCCL INFO");
        assertThat(allOf("quiet")).doesNotContain("NCCL INFO");
    }

    /** Where standard error is a file, NCCL, which would begin it anew, gets one beside it. */
    private String allOf(String name) throws IOException {
        StringBuilder text = new StringBuilder();
        try (Stream<Path> files = Files.list(folder)) {
            for (Path file : files.sorted().toList()) {
                if (file.getFileName().toString().startsWith(name + ".err")) {
                    text.append(Files.readString(file));
                }
            }
        }
        return text.toString();
    }

    @Test
    void anOwnFileForItIsHonoured() throws Exception {
        Path file = folder.resolve("nccl.log");
        ChildJvm child =
                run("to a file", Map.of("NCCL_DEBUG", "INFO", "NCCL_DEBUG_FILE", file.toString()));

        assertThat(file).content().contains("NCCL INFO");
        assertThat(child.out()).isEmptyFile();
        assertThat(Files.readString(child.err())).doesNotContain("NCCL INFO");
    }

    /** NCCL would write to standard output instead. */
    @Test
    void aFileThatCannotBeOpenedIsReplaced() throws Exception {
        String file = folder.resolve("absent").resolve("nccl.log").toString();
        ChildJvm child = run("absent", Map.of("NCCL_DEBUG", "INFO", "NCCL_DEBUG_FILE", file));

        assertThat(child.out()).isEmptyFile();
        assertThat(allOf("absent")).contains("NCCL INFO").contains("cannot write");
    }

    private ChildJvm run(String name, Map<String, String> environment) {
        ChildJvm child =
                ChildJvm.start(
                        folder,
                        name,
                        libraries,
                        environment,
                        RankProcess.class,
                        folder.toString(),
                        "sum",
                        "0",
                        "1",
                        "5000");
        try (child) {
            child.awaitSuccess(Duration.ofSeconds(20));
        }
        return child;
    }
}
