package org.nccl4j.bindings;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The last step of regenerate.sh, on sample files. */
final class UseOurLookupTest {
    private static final String STATEMENT = "    static final " + JextractFolder.GENERATED_LOOKUP;

    @TempDir Path root;

    private Path header;

    @BeforeEach
    void makeHeader() throws IOException {
        header = Files.createDirectories(root.resolve("a")).resolve("Header.java");
    }

    @Test
    void onePlaceIsReplacedAndNothingElse() throws IOException, InterruptedException {
        String before = "first\n    static final int X = 1;\n\n";
        String after = "\n    last();\n";
        Files.writeString(header, before + STATEMENT + after);
        Path other = write("Other.java", "class Other {}\n");

        JextractFolder.Result result = step("a/Header.java=NCCL");

        assertThat(result).isEqualTo(new JextractFolder.Result(0, ""));
        assertThat(header)
                .hasContent(
                        before
                                + "    static final SymbolLookup SYMBOL_LOOKUP ="
                                + " org.nccl4j.bindings.NativeLibrary.NCCL.symbols();\n"
                                + after);
        assertThat(other).hasContent("class Other {}\n");
    }

    @Test
    void noPlaceIsRefused() throws IOException, InterruptedException {
        refuses("class Header {}\n", "Header.java has 0 places", "expected 1");
    }

    @Test
    void twoPlacesAreRefused() throws IOException, InterruptedException {
        refuses(STATEMENT + "\n" + STATEMENT, "Header.java has 2 places", "expected 1");
    }

    @Test
    void halfAStatementIsNoPlace() throws IOException, InterruptedException {
        refuses(STATEMENT.lines().findFirst().orElseThrow() + "\n", "Header.java has 0 places");
    }

    @Test
    void aStatementOfOtherWordsIsNoPlace() throws IOException, InterruptedException {
        refuses(
                STATEMENT.replace(
                        "SymbolLookup.loaderLookup()", "SymbolLookup.libraryLookup(x, y)"),
                "Header.java has 0 places");
    }

    @Test
    void aSecondLookupBesideTheOneIsRefused() throws IOException, InterruptedException {
        refuses(
                STATEMENT + "    SymbolLookup more = SymbolLookup.loaderLookup();\n",
                "Header.java has 3 lines with a symbol lookup, expected the 2");
    }

    @Test
    void aLookupInAnotherFileIsRefused() throws IOException, InterruptedException {
        write("Second.java", STATEMENT);

        refuses(STATEMENT, "Second.java has a symbol lookup and is no header class");
    }

    @Test
    void aMissingHeaderIsRefusedBeforeAnotherIsChanged() throws IOException, InterruptedException {
        Files.writeString(header, STATEMENT);

        JextractFolder.Result result = step("a/Header.java=NCCL", "a/Absent.java=CUDA_RUNTIME");

        assertThat(result.code()).isEqualTo(1);
        assertThat(result.output()).contains("no header class", "a/Absent.java");
        assertThat(header).hasContent(STATEMENT);
    }

    private void refuses(String source, String... words) throws IOException, InterruptedException {
        Files.writeString(header, source);

        JextractFolder.Result result = step("a/Header.java=NCCL");

        assertThat(result.code()).isEqualTo(1);
        assertThat(result.output()).contains(words).contains("nothing is changed");
        assertThat(header).hasContent(source);
    }

    private Path write(String name, String source) throws IOException {
        return Files.writeString(root.resolve("a").resolve(name), source);
    }

    private JextractFolder.Result step(String... headers) throws IOException, InterruptedException {
        List<String> words = new ArrayList<>();
        words.add(JextractFolder.PATH.resolve("use-our-lookup.sh").toString());
        words.add(root.toString());
        words.addAll(List.of(headers));
        return JextractFolder.run(root, Map.of(), words);
    }
}
