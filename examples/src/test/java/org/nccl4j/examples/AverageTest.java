package org.nccl4j.examples;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The README's example as a file of its own. */
final class AverageTest {
    @Test
    void yieldsTheAverage() {
        assertThat(Average.averageOfRanks()).containsExactly(1.5f, 2.5f, 3.5f);
    }

    /** The README shows the body of the method and links to the file. */
    @Test
    void isWhatTheReadmeShows() throws IOException {
        String file = "examples/src/main/java/org/nccl4j/examples/Average.java";
        List<String> source = Files.readAllLines(Path.of("..").resolve(file));
        String body =
                source.stream()
                        .dropWhile(line -> !line.endsWith(" averageOfRanks() {"))
                        .skip(1)
                        .takeWhile(line -> !line.equals("    }"))
                        .map(line -> line.isBlank() ? "" : line.substring(8))
                        .collect(Collectors.joining("\n", "```java\n", "\n```"));
        assertThat(Files.readString(Path.of("../README.md"))).contains(body, "(" + file + ")");
    }
}
