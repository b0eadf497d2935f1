package org.nccl4j.hardware;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.stream.Stream;
import org.nccl4j.bindings.NativeLibrary;
import org.opentest4j.TestAbortedException;

/**
 * The emulator's libraries as the build has left them, a folder for each version of NCCL.
 *
 * @param folder where they are
 */
record EmulatorLibraries(Path folder) {
    private static final Path BUILT = Path.of("target", "emulator").toAbsolutePath();

    /**
     * Those of a version.
     *
     * @param version of NCCL, such as 2.30
     * @return the libraries
     * @throws TestAbortedException if this machine cannot build them
     */
    static EmulatorLibraries of(String version) {
        return in(BUILT, version);
    }

    static EmulatorLibraries in(Path built, String version) {
        Path reason = built.resolve("unsupported.txt");
        try {
            if (Files.exists(reason)) {
                throw new TestAbortedException("unsupported: " + Files.readString(reason).strip());
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        if (!System.getProperty("os.name").equals("Linux")) {
            throw new TestAbortedException(
                    "unsupported: the emulator of CUDA and NCCL needs Linux, this is "
                            + System.getProperty("os.name"));
        }
        Path folder = built.resolve(version);
        if (!Files.exists(folder.resolve("libnccl.so.2"))) {
            throw new AssertionError(
                    folder
                            + " has no libnccl.so.2: run the tests by ./mvnw, which compiles the"
                            + " emulator (hardware-tests/build-emulator.sh "
                            + built
                            + ")");
        }
        return new EmulatorLibraries(folder);
    }

    /**
     * What has the bindings of a JVM load these and no others, whatever else is named to them for
     * tests of a real library.
     */
    Map<String, String> properties() {
        return Map.of(
                "nccl4j.nccl.library", folder.resolve("libnccl.so.2").toString(),
                "nccl4j.cudart.library", cudaRuntime().toString(),
                "nccl4j.cuda.library", folder.resolve("libcuda.so.1").toString());
    }

    /** Has the bindings of this JVM load these, which they do once. */
    void select() {
        if (NativeLibrary.NCCL.isLoaded() && !NativeLibrary.NCCL.path().equals(ncclFile())) {
            throw new AssertionError(
                    "a JVM loads one NCCL, and this one has "
                            + NativeLibrary.NCCL.path()
                            + "; run each class of tests in a JVM of its own, as ./mvnw does");
        }
        properties().forEach(System::setProperty);
    }

    /** As the loader gives it, with links followed. */
    private String ncclFile() {
        try {
            return folder.resolve("libnccl.so.2").toRealPath().toString();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The CUDA runtime, 13 or 12. */
    Path cudaRuntime() {
        return Stream.of("libcudart.so.13", "libcudart.so.12")
                .map(folder::resolve)
                .filter(Files::exists)
                .findFirst()
                .orElseThrow(() -> new AssertionError(folder + " has no libcudart.so.13 or .12"));
    }
}
