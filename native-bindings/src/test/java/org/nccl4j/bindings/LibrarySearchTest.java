package org.nccl4j.bindings;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowableOfType;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Which file is loaded, and what is said when none is. */
final class LibrarySearchTest {
    private static final int DEADLINE_SECONDS = 30;

    @TempDir Path folder;

    private final Map<String, String> properties = new HashMap<>();
    private final Map<String, String> variables = new HashMap<>();

    @BeforeEach
    void beThisMachine() throws IOException {
        folder = folder.toRealPath();
        properties.put("os.name", System.getProperty("os.name"));
        properties.put("os.arch", System.getProperty("os.arch"));
        assumeTrue(
                System.getProperty("os.name").equals("Linux"),
                "unsupported: NCCL and this loader run on Linux");
    }

    @Test
    void aPropertyBeatsAVariableBeatsAFolder() throws IOException, InterruptedException {
        Path byProperty = CLibrary.compile(folder.resolve("p/libp.so"), CLibrary.NCCL);
        Path byVariable = CLibrary.compile(folder.resolve("v/libv.so"), CLibrary.NCCL);
        Path inFolder = CLibrary.compile(folder.resolve("f/libnccl.so.2"), CLibrary.NCCL);
        Path inOther = CLibrary.compile(folder.resolve("g/libnccl.so.2"), CLibrary.NCCL);
        variables.put("NCCL4J_LIBRARY_PATH", inOther.getParent().toString());
        assertThat(nccl().path()).isEqualTo(inOther.toString());

        properties.put("nccl4j.library.path", inFolder.getParent().toString());
        assertThat(nccl().path()).isEqualTo(inFolder.toString());

        variables.put("NCCL4J_NCCL_LIBRARY", byVariable.toString());
        assertThat(nccl().path()).isEqualTo(byVariable.toString());

        properties.put("nccl4j.nccl.library", byProperty.toString());
        assertThat(nccl().path()).isEqualTo(byProperty.toString());
        assertThat(nccl().candidates())
                .containsExactly(
                        new LibraryCandidate(
                                "system property nccl4j.nccl.library",
                                byProperty.toString(),
                                "loaded"));
    }

    @Test
    void aNamedFileThatIsMissingIsAnErrorThoughAnotherWouldDo()
            throws IOException, InterruptedException {
        Path works = CLibrary.compile(folder.resolve("libworks.so"), CLibrary.NCCL);
        variables.put("NCCL4J_NCCL_LIBRARY", works.toString());
        Path missing = folder.resolve("missing.so");
        properties.put("nccl4j.nccl.library", missing.toString());

        LibraryNotLoadedException refusal = refusal(LibraryKind.NCCL);

        assertThat(refusal.summary())
                .isEqualTo(
                        "NCCL cannot be loaded from the file "
                                + missing
                                + ", which system property nccl4j.nccl.library names: cannot open"
                                + " shared object file: No such file or directory");
        assertThat(refusal)
                .hasMessageContaining("No other copy is tried, because this one was asked for.")
                .hasMessageContaining("Correct or unset the system property nccl4j.nccl.library");
        assertThat(refusal.candidates()).hasSize(1);
    }

    @Test
    void aVariableThatNamesNothingGoodIsAnErrorToo() {
        variables.put("NCCL4J_CUDART_LIBRARY", folder.resolve("missing.so").toString());

        assertThat(refusal(LibraryKind.CUDA_RUNTIME))
                .hasMessageContaining("the CUDA runtime cannot be loaded")
                .hasMessageContaining("environment variable NCCL4J_CUDART_LIBRARY");
    }

    @Test
    void aNamedFolderMustHaveTheLibrary() {
        properties.put("nccl4j.library.path", folder.toString());

        assertThat(refusal(LibraryKind.CUDA_RUNTIME))
                .hasMessageContaining("the folder " + folder)
                .hasMessageContaining("names: it has no libcudart.so.13 or libcudart.so.12")
                .hasMessageContaining(folder.resolve("libcudart.so.13").toString())
                .hasMessageContaining(folder.resolve("libcudart.so.12").toString())
                .hasMessageContaining("put the library or a link to it into that folder")
                .hasMessageContaining("-Dnccl4j.cudart.library=FILE");
    }

    @Test
    void aNamedFolderMustBeOne() throws IOException {
        Path missing = folder.resolve("missing");
        properties.put("nccl4j.library.path", missing.toString());
        assertThat(refusal(LibraryKind.NCCL))
                .hasMessageContaining("the folder " + missing)
                .hasMessageContaining("names: there is no such folder");

        Path file = Files.writeString(folder.resolve("libnccl.so.2"), "not a folder");
        properties.put("nccl4j.library.path", file.toString());
        assertThat(refusal(LibraryKind.NCCL))
                .hasMessageContaining("the folder " + file)
                .hasMessageContaining("names: it is a file and no folder");

        properties.put("nccl4j.library.path", folder.toString());
        assertThat(refusal(LibraryKind.NCCL)).hasMessageContaining("names: file too short");
    }

    @Test
    void cuda12IsTakenWhereThereIsNo13() throws IOException, InterruptedException {
        Path runtime = CLibrary.compile(folder.resolve("libcudart.so.12"), CLibrary.CUDA_RUNTIME);
        properties.put("nccl4j.library.path", folder.toString());

        NativeLibrary library = library(LibraryKind.CUDA_RUNTIME);

        assertThat(library.path()).isEqualTo(runtime.toString());
        assertThat(library.candidates())
                .extracting(LibraryCandidate::outcome)
                .containsExactly(
                        "cannot open shared object file: No such file or directory", "loaded");
    }

    @Test
    void aFileThatIsNoLibraryIsRefusedInTheLinkersWords() throws IOException {
        Path text = Files.writeString(folder.resolve("text.so"), "not a library ".repeat(100));
        Path empty = Files.writeString(folder.resolve("empty.so"), "");

        assertThat(reason(text)).isEqualTo("invalid ELF header");
        assertThat(reason(empty)).isEqualTo("file too short");
    }

    /** Shown to the linker, it kills the JVM. */
    @Test
    void aLibraryThatWasCopiedInPartIsRefused() throws IOException, InterruptedException {
        Path library = CLibrary.compile(folder.resolve("libnccl.so.2"), CLibrary.NCCL);
        long sizeBytes = Files.size(library);
        byte[] whole = Files.readAllBytes(library);
        properties.put("nccl4j.nccl.library", library.toString());
        for (long left = sizeBytes / 2; left >= 64; left /= 2) {
            Files.write(library, Arrays.copyOf(whole, (int) left));

            assertThat(refusal(LibraryKind.NCCL))
                    .hasMessageContaining("is cut off: it has " + left + " bytes")
                    .hasMessageContaining("copy or install it again");
        }
    }

    /** Shown to the linker, it is waited for until somebody writes into it. */
    @Test
    void aPipeIsRefused() throws IOException, InterruptedException {
        Path pipe = folder.resolve("libnccl.so.2");
        assertThat(new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor()).isZero();
        properties.put("nccl4j.nccl.library", pipe.toString());

        assertThat(refusal(LibraryKind.NCCL))
                .hasMessageContaining("is neither a file nor a link to one");
    }

    @Test
    void aLibraryForAnotherMachineIsSaidToBeOne() throws IOException, InterruptedException {
        Path library = CLibrary.compile(folder.resolve("other.so"), CLibrary.NCCL);
        boolean onArm = System.getProperty("os.arch").equals("aarch64");
        try (RandomAccessFile file = new RandomAccessFile(library.toFile(), "rw")) {
            file.seek(18);
            file.write(onArm ? 62 : 183);
        }

        assertThat(reason(library))
                .contains("built for " + (onArm ? "amd64" : "aarch64"))
                .contains("not " + System.getProperty("os.arch"));
    }

    @Test
    void aMissingDependencyIsNamed() throws IOException, InterruptedException {
        Path needed =
                CLibrary.compile(
                        folder.resolve("libneeded.so"),
                        "int needed(void) { return 1; }",
                        "-Wl,-soname,libneeded.so.7");
        Path library =
                CLibrary.compile(
                        folder.resolve("libneeds.so"),
                        CLibrary.NCCL + "int needed(void); int f(void) { return needed(); }\n",
                        needed.toString());

        assertThat(reason(library))
                .isEqualTo(
                        "it needs libneeded.so.7: cannot open shared object file: No such file or"
                                + " directory");
    }

    /** At the load and not at the first call, deep in some collective. */
    @Test
    void anUndefinedFunctionIsFoundAtOnce() throws IOException, InterruptedException {
        Path library =
                CLibrary.compile(
                        folder.resolve("libundefined.so"),
                        CLibrary.NCCL + "int absent(void); int f(void) { return absent(); }\n");

        assertThat(reason(library)).isEqualTo("undefined symbol: absent");
    }

    @Test
    void anotherLibraryIsNotTakenForThisOne() throws IOException, InterruptedException {
        Path library = CLibrary.compile(folder.resolve("libcudart.so"), CLibrary.CUDA_RUNTIME);

        assertThat(reason(library)).isEqualTo("is not NCCL: it has no function ncclGetVersion");
    }

    @Test
    void thePathIsTheFileBehindTheLink() throws IOException, InterruptedException {
        Path library = CLibrary.compile(folder.resolve("libnccl.so.2.30.7"), CLibrary.NCCL);
        Path link = Files.createSymbolicLink(folder.resolve("libnccl.so.2"), library);
        properties.put("nccl4j.nccl.library", link.toString());

        assertThat(nccl().path()).isEqualTo(library.toString());
    }

    @Test
    void aNameWithoutASlashIsAFileOfTheWorkingFolder() {
        properties.put("nccl4j.nccl.library", "libnccl-absent.so");

        assertThat(refusal(LibraryKind.NCCL).candidates().getFirst().file())
                .isEqualTo(Path.of("libnccl-absent.so").toAbsolutePath().toString());
    }

    @Test
    void whatIsNoPathIsRefused() {
        properties.put("nccl4j.nccl.library", "a\0b");

        assertThat(refusal(LibraryKind.NCCL))
                .hasMessageContaining("system property nccl4j.nccl.library names no path");
    }

    @Test
    void anEmptyNameIsNone() throws IOException, InterruptedException {
        properties.put("nccl4j.nccl.library", "");
        variables.put("NCCL4J_NCCL_LIBRARY", " ");
        Path library = CLibrary.compile(folder.resolve("libnccl.so.2"), CLibrary.NCCL);
        properties.put("nccl4j.library.path", folder.toString());

        assertThat(nccl().path()).isEqualTo(library.toString());
    }

    @Test
    void nothingIsLoadedBeforeItIsNeeded() throws IOException, InterruptedException {
        Path library = CLibrary.compile(folder.resolve("liblazy.so"), CLibrary.NCCL);
        properties.put("nccl4j.nccl.library", library.toString());
        NativeLibrary nccl = nccl();

        assertThat(nccl.symbols()).isNotNull();
        assertThat(nccl.isLoaded()).isFalse();
        assertThat(nccl.has("ncclGetVersion")).isTrue();
        assertThat(nccl.isLoaded()).isTrue();
    }

    @Test
    void aFailedLoadMayBeTriedAgain() throws IOException, InterruptedException {
        Path library = folder.resolve("liblater.so");
        properties.put("nccl4j.nccl.library", library.toString());
        NativeLibrary nccl = nccl();
        assertThat(catchThrowableOfType(LibraryNotLoadedException.class, nccl::path)).isNotNull();
        assertThat(nccl.isLoaded()).isFalse();

        CLibrary.compile(library, CLibrary.NCCL);

        assertThat(nccl.path()).isEqualTo(library.toString());
    }

    @Test
    void aLoadedLibraryStays() throws IOException, InterruptedException {
        Path library = CLibrary.compile(folder.resolve("libstays.so"), CLibrary.NCCL);
        properties.put("nccl4j.nccl.library", library.toString());
        NativeLibrary nccl = nccl();
        assertThat(nccl.path()).isEqualTo(library.toString());

        properties.put("nccl4j.nccl.library", "elsewhere");

        assertThat(nccl.path()).isEqualTo(library.toString());
    }

    @Test
    void aFunctionThatAnOlderLibraryLacksIsNamed() throws IOException, InterruptedException {
        Path library = CLibrary.compile(folder.resolve("libold.so"), CLibrary.OLD_NCCL);
        properties.put("nccl4j.nccl.library", library.toString());
        NativeLibrary nccl = nccl();

        MissingFunctionException missing =
                catchThrowableOfType(
                        MissingFunctionException.class,
                        () -> nccl.symbols().findOrThrow("ncclAlltoAll"));

        assertThat(nccl.has("ncclAlltoAll")).isFalse();
        assertThat(missing.function()).isEqualTo("ncclAlltoAll");
        assertThat(missing.libraryPath()).isEqualTo(library.toString());
        assertThat(missing).hasMessageContaining("ncclAlltoAll is not in " + library);
    }

    @Test
    void aVirtualThreadMayLoad() throws Exception {
        Path library = CLibrary.compile(folder.resolve("libvirtual.so"), CLibrary.NCCL);
        Path missing = folder.resolve("missing.so");
        NativeLibrary nccl = nccl();
        CompletableFuture<String> path = new CompletableFuture<>();
        Thread.ofVirtual()
                .start(() -> {
                    properties.put("nccl4j.nccl.library", missing.toString());
                    String reason = refusal(LibraryKind.NCCL).summary();
                    properties.put("nccl4j.nccl.library", library.toString());
                    // an interrupt does not cut the load short, and is not lost
                    Thread.currentThread().interrupt();
                    path.complete(
                            nccl.path()
                                    + " "
                                    + Thread.currentThread().isInterrupted()
                                    + " "
                                    + reason);
                });

        assertThat(path.get(DEADLINE_SECONDS, TimeUnit.SECONDS))
                .startsWith(library + " true ")
                .endsWith("No such file or directory");
    }

    @Test
    void threadsThatLoadAtOnceGetOneLibrary() throws Exception {
        Path library = CLibrary.compile(folder.resolve("libonce.so"), CLibrary.NCCL);
        properties.put("nccl4j.nccl.library", library.toString());
        NativeLibrary nccl = nccl();
        int threads = 8;
        CyclicBarrier start = new CyclicBarrier(threads);
        List<CompletableFuture<List<LibraryCandidate>>> loads = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            CompletableFuture<List<LibraryCandidate>> load = new CompletableFuture<>();
            loads.add(load);
            Thread.ofPlatform()
                    .daemon()
                    .start(() -> {
                        try {
                            start.await(DEADLINE_SECONDS, TimeUnit.SECONDS);
                            load.complete(nccl.candidates());
                        } catch (Exception | Error e) {
                            load.completeExceptionally(e);
                        }
                    });
        }

        List<LibraryCandidate> first = loads.getFirst().get(DEADLINE_SECONDS, TimeUnit.SECONDS);
        for (CompletableFuture<List<LibraryCandidate>> load : loads) {
            assertThat(load.get(DEADLINE_SECONDS, TimeUnit.SECONDS)).isSameAs(first);
        }
    }

    @Test
    void withoutANameTheLinkersSearchComesFirstAndThenTheFolders()
            throws IOException, InterruptedException {
        assumeNoNccl();
        Path toolkit = folder.resolve("toolkit/lib64");
        Files.createDirectories(toolkit);
        Files.writeString(toolkit.resolve("libnccl.so.2"), "");
        Path packaged =
                CLibrary.compile(
                        folder.resolve(
                                "venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"),
                        CLibrary.NCCL);
        variables.put("CUDA_HOME", folder.resolve("toolkit").toString());
        variables.put("VIRTUAL_ENV", folder.resolve("venv").toString());

        NativeLibrary nccl = nccl();

        assertThat(nccl.path()).isEqualTo(packaged.toString());
        assertThat(nccl.candidates().getFirst())
                .isEqualTo(
                        new LibraryCandidate(
                                "dynamic linker's search",
                                "libnccl.so.2",
                                "cannot open shared object file: No such file or directory"));
        assertThat(nccl.candidates())
                .contains(
                        new LibraryCandidate(
                                "$CUDA_HOME",
                                toolkit.resolve("libnccl.so.2").toString(),
                                "file too short"))
                .endsWith(new LibraryCandidate("pip, $VIRTUAL_ENV", packaged.toString(), "loaded"));
    }

    @Test
    void whenThereIsNoneEveryCandidateIsListedAndTheRemedy() throws IOException {
        assumeNoNccl();
        Path broken = Files.createDirectories(folder.resolve("usr/local/cuda/lib64"));
        Files.writeString(broken.resolve("libnccl.so.2"), "");

        LibraryNotLoadedException refusal = refusal(LibraryKind.NCCL);

        assertThat(refusal.summary())
                .isEqualTo(
                        "NCCL cannot be loaded: libnccl.so.2 works in none of "
                                + refusal.candidates().size()
                                + " places");
        for (LibraryCandidate candidate : refusal.candidates()) {
            assertThat(refusal)
                    .hasMessageContaining(candidate.file() + " (" + candidate.source() + ")");
        }
        assertThat(refusal)
                .hasMessageContaining(
                        "Not set: -Dnccl4j.nccl.library, NCCL4J_NCCL_LIBRARY, -Dnccl4j.library.path,"
                                + " NCCL4J_LIBRARY_PATH")
                .hasMessageContaining(
                        broken.resolve("libnccl.so.2") + " (CUDA toolkit): file too short")
                .hasMessageContaining("Install NCCL 2.18 or newer")
                .hasMessageContaining("-Dnccl4j.nccl.library=FILE");
    }

    @Test
    void anotherSystemIsToldAtOnce() {
        properties.put("os.name", "Mac OS X");

        assertThat(refusal(LibraryKind.NCCL))
                .hasMessageContaining("runs on Linux")
                .hasMessageContaining("this is Mac OS X");
    }

    @Test
    void copiesThatSomebodyElseHasLoadedAreFound() throws IOException, InterruptedException {
        Path library = CLibrary.compile(folder.resolve("libnccl.so.2"), CLibrary.NCCL);
        properties.put("nccl4j.nccl.library", library.toString());
        Path maps = Files.createDirectories(folder.resolve("proc/self")).resolve("maps");
        String line = "7f00-7f01 r-xp 00000000 08:01 42       ";
        Files.writeString(
                maps,
                List.of(
                                "7f00-7f01 rw-p 00000000 00:00 0 ",
                                line + library,
                                line + "/opt/torch lib/libnccl.so.2",
                                line + "/opt/torch lib/libnccl.so.2",
                                line + "/opt/gone/libnccl.so.2.19.3 (deleted)",
                                line + "/opt/plugin/libnccl-net.so",
                                line + "/opt/libncclx.so.1",
                                line + "[stack]")
                        .stream()
                        .collect(Collectors.joining("\n", "", "\n")));

        assertThat(nccl().otherCopies())
                .containsExactly("/opt/torch lib/libnccl.so.2", "/opt/gone/libnccl.so.2.19.3");
    }

    private static void assumeNoNccl() {
        assumeTrue(
                new DynamicLinker().open("libnccl.so.2") instanceof DynamicLinker.Refused,
                "unsupported: this machine has NCCL, so that the dynamic linker finds it");
    }

    private String reason(Path file) {
        properties.put("nccl4j.nccl.library", file.toString());
        return refusal(LibraryKind.NCCL).candidates().getFirst().outcome();
    }

    private LibraryNotLoadedException refusal(LibraryKind kind) {
        return catchThrowableOfType(LibraryNotLoadedException.class, library(kind)::path);
    }

    private NativeLibrary nccl() {
        return library(LibraryKind.NCCL);
    }

    private NativeLibrary library(LibraryKind kind) {
        return new NativeLibrary(kind, new Surroundings(properties::get, variables::get, folder));
    }
}
