package org.nccl4j.bindings;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * regenerate.sh with a script in jextract's place that writes what jextract once wrote: everything
 * but jextract itself.
 */
final class RegenerateTest {

    /**
     * Dumps the committed include lists, or copies the committed sources as they were generated.
     */
    private static final String FAKE_JEXTRACT =
            """
            #!/bin/sh
            set -eu
            output=; package=; dump=
            while [ $# -gt 0 ]; do
              case $1 in
                --dump-includes) dump=$2; shift ;;
                --output) output=$2; shift ;;
                -t) package=$2; shift ;;
                -I|--header-class-name) shift ;;
                @*) [ -s "${1#@}" ] ;;
                *) header=$1 ;;
              esac
              shift
            done
            if [ -n "$dump" ]; then
              case $header in */nccl.h) list=nccl.includes ;; *) list=cudart.includes ;; esac
              sed "s|\\$| # header: $header|" "$list" > "$dump"
              exit 0
            fi
            folder=$(echo "$package" | tr . /)
            mkdir -p "$output/$folder"
            for file in "$SOURCES/$folder"/*.java; do
              awk '/SYMBOL_LOOKUP = org/ {
                     print "    static final SymbolLookup SYMBOL_LOOKUP = SymbolLookup.loaderLookup()"
                     print "            .or(Linker.nativeLinker().defaultLookup());"
                     next }
                   { print }' "$file" > "$output/$folder/$(basename "$file")"
            done
            """;

    @TempDir Path scratch;

    private final Map<String, String> environment = new HashMap<>();

    @BeforeEach
    void makeInputs() throws IOException {
        Path jextract = scratch.resolve("jextract");
        Files.writeString(jextract, FAKE_JEXTRACT);
        assertThat(jextract.toFile().setExecutable(true)).isTrue();
        Path cuda = Files.createDirectories(scratch.resolve("cuda"));
        Files.writeString(cuda.resolve("cuda_runtime_api.h"), "#define CUDART_VERSION 13000\n");
        Files.writeString(cuda.resolve("driver_types.h"), "");
        environment.put("JEXTRACT", jextract.toString());
        environment.put("SOURCES", JextractFolder.SOURCES.toString());
        environment.put("CUDA_INCLUDE", cuda.toString());
        environment.put("NCCL_H", header("30").toString());
    }

    @Test
    void writesTheSourcesThatAreCommitted() throws IOException, InterruptedException {
        Path out = scratch.resolve("out");

        assertThat(regenerate(out)).isEqualTo(new JextractFolder.Result(0, ""));

        for (String file :
                List.of(
                        "org/nccl4j/bindings/nccl/Nccl.java",
                        "org/nccl4j/bindings/nccl/ncclConfig_t.java",
                        "org/nccl4j/bindings/cudart/CudaRt.java")) {
            assertThat(out.resolve(file))
                    .hasSameTextualContentAs(JextractFolder.SOURCES.resolve(file));
        }
    }

    @Test
    void saysThatItNeedsJextract() throws IOException, InterruptedException {
        environment.put("JEXTRACT", scratch.resolve("absent").toString());

        refuses("no jextract", "on the PATH", "JEXTRACT=FILE");
    }

    @Test
    void saysThatItNeedsCudasHeaders() throws IOException, InterruptedException {
        environment.put("CUDA_INCLUDE", scratch.resolve("absent").toString());

        refuses("no CUDA headers", "CUDA_INCLUDE=FOLDER");
    }

    @Test
    void saysThatItNeedsNcclsHeader() throws IOException, InterruptedException {
        environment.put("NCCL_H", "");

        refuses("no nccl.h", "NCCL_H=FILE", "NCCL_H_IN=FILE");
    }

    @Test
    void refusesAHeaderOfAnotherVersion() throws IOException, InterruptedException {
        environment.put("NCCL_H", header("31").toString());

        refuses("nccl.h is not version 2.30.7");
    }

    @Test
    void fillsTheTemplateOfNcclsSource() throws IOException, InterruptedException {
        Path template = scratch.resolve("nccl.h.in");
        Files.writeString(
                template,
                """
                #define NCCL_MAJOR ${nccl:Major}
                #define NCCL_MINOR ${nccl:Minor}
                #define NCCL_PATCH ${nccl:Patch}
                """);
        environment.put("NCCL_H", "");
        environment.put("NCCL_H_IN", template.toString());

        assertThat(regenerate(scratch.resolve("out"))).isEqualTo(new JextractFolder.Result(0, ""));
    }

    @Test
    void aWordOfJextractIsAFailureThatLeavesTheSources() throws IOException, InterruptedException {
        Path jextract = scratch.resolve("jextract");
        Files.writeString(jextract, FAKE_JEXTRACT + "echo 'warning: skipped ncclFuture' >&2\n");

        refuses("skipped ncclFuture", "jextract said something");
    }

    private void refuses(String... words) throws IOException, InterruptedException {
        Path out = Files.createDirectories(scratch.resolve("out/org/nccl4j/bindings/nccl"));
        Path old = Files.writeString(out.resolve("Nccl.java"), "old\n");

        JextractFolder.Result result = regenerate(scratch.resolve("out"));

        assertThat(result.code()).isEqualTo(1);
        assertThat(result.output()).contains(words);
        assertThat(old).hasContent("old\n");
    }

    private Path header(String minor) throws IOException {
        return Files.writeString(
                scratch.resolve("nccl.h"),
                "#define NCCL_MAJOR 2\n#define NCCL_MINOR " + minor + "\n#define NCCL_PATCH 7\n");
    }

    private JextractFolder.Result regenerate(Path out) throws IOException, InterruptedException {
        return JextractFolder.run(
                scratch,
                environment,
                List.of(JextractFolder.PATH.resolve("regenerate.sh").toString(), out.toString()));
    }
}
