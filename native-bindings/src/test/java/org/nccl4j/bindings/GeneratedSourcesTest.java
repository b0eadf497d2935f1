package org.nccl4j.bindings;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Holds the committed bindings to what jextract wrote, but for the one place in each header. */
final class GeneratedSourcesTest {

    /** With which jextract's symbol lookup is replaced in each header class. */
    private static final Map<String, String> LOOKUPS =
            Map.of(
                    "org/nccl4j/bindings/nccl/Nccl.java", "NCCL",
                    "org/nccl4j/bindings/cudart/CudaRt.java", "CUDA_RUNTIME");

    @Test
    void everyFileIsAsJextractWroteIt() throws IOException, NoSuchAlgorithmException {
        Map<String, String> expected = new TreeMap<>();
        for (String line : Files.readAllLines(JextractFolder.PATH.resolve("generated.sha256"))) {
            expected.put(line.substring(66), line.substring(0, 64));
        }
        Map<String, String> sums = new TreeMap<>();
        for (String file : files()) {
            String source = Files.readString(JextractFolder.SOURCES.resolve(file));
            String lookup = LOOKUPS.get(file);
            if (lookup != null) {
                source = asGenerated(file, source, lookup);
            }
            byte[] sum =
                    MessageDigest.getInstance("SHA-256")
                            .digest(source.getBytes(StandardCharsets.UTF_8));
            sums.put(file, HexFormat.of().formatHex(sum));
        }

        assertThat(sums)
                .as(
                        "checksums that regenerate.sh took before it replaced the symbol lookups;"
                                + " the generated code is not edited by hand, run"
                                + " jextract/regenerate.sh")
                .isEqualTo(expected);
    }

    @Test
    void noFileLooksForLibrariesItself() throws IOException {
        for (String file : files()) {
            assertThat(Files.readString(JextractFolder.SOURCES.resolve(file)))
                    .as(file)
                    .doesNotContain("loaderLookup", "libraryLookup", "defaultLookup");
        }
    }

    private static String asGenerated(String file, String source, String library) {
        String ours =
                "SymbolLookup SYMBOL_LOOKUP = org.nccl4j.bindings.NativeLibrary."
                        + library
                        + ".symbols();\n";
        String[] parts = source.split(Pattern.quote(ours), -1);
        assertThat(parts).as("places with our symbol lookup in %s, plus 1", file).hasSize(2);
        return parts[0] + JextractFolder.GENERATED_LOOKUP + parts[1];
    }

    private static Iterable<String> files() throws IOException {
        try (Stream<Path> files = Files.walk(JextractFolder.SOURCES)) {
            return files.filter(Files::isRegularFile)
                    .map(file -> JextractFolder.SOURCES.relativize(file).toString())
                    .sorted()
                    .toList();
        }
    }
}
