package org.nccl4j.bindings.child;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.nccl4j.bindings.LibraryNotLoadedException;
import org.nccl4j.bindings.NativeLibrary;
import org.nccl4j.bindings.ProcessEnvironment;
import org.nccl4j.bindings.cudart.CudaRt;
import org.nccl4j.bindings.nccl.Nccl;
import org.nccl4j.bindings.nccl.ncclConfig_t;
import org.nccl4j.bindings.nccl.ncclUniqueId;

/** What a JVM of its own does for a test, the answer in a file. */
public final class Probe {
    private final List<String> answer = new ArrayList<>();

    private Probe() {}

    /**
     * Starts here.
     *
     * @param words the file for the answer, what to do, and more
     * @throws IOException if the answer cannot be written
     */
    public static void main(String[] words) throws IOException {
        Probe probe = new Probe();
        switch (words[1]) {
            case "path" -> probe.path();
            case "constants" -> probe.constants();
            case "functions" -> probe.functions();
            case "second-copy" -> probe.secondCopy(words[2]);
            case "environment" -> probe.environment();
            default -> throw new IllegalArgumentException(words[1]);
        }
        Files.write(Path.of(words[0]), probe.answer);
    }

    private void path() {
        try {
            answer.add(NativeLibrary.NCCL.path());
        } catch (LibraryNotLoadedException e) {
            answer.add(e.getMessage());
        }
    }

    private void constants() {
        answer.add(
                String.join(
                        " ",
                        "" + Nccl.ncclInProgress(),
                        "" + Nccl.NCCL_VERSION_CODE(),
                        "" + Nccl.ncclFloat8e5m2(),
                        "" + ncclConfig_t.sizeof(),
                        "" + ncclUniqueId.layout().byteSize(),
                        "" + CudaRt.cudaErrorInsufficientDriver(),
                        "" + CudaRt.CUDART_VERSION()));
        answer.add(
                NativeLibrary.NCCL.isLoaded()
                        + " "
                        + NativeLibrary.CUDA_RUNTIME.isLoaded()
                        + " "
                        + NativeLibrary.CUDA_DRIVER.isLoaded());
    }

    /** What the generated functions throw when there is no library. */
    private void functions() {
        for (int call = 0; call < 2; call++) {
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment version = arena.allocate(Integer.BYTES);
                answer.add("returned " + Nccl.ncclGetVersion(version));
            } catch (ExceptionInInitializerError | NoClassDefFoundError e) {
                answer.add(e.getClass().getSimpleName() + ": " + e.getCause());
            }
        }
    }

    private void secondCopy(String other) {
        System.load(other);
        answer.add(NativeLibrary.NCCL.path());
        answer.addAll(NativeLibrary.NCCL.otherCopies());
        answer.add("" + NativeLibrary.NCCL.has("ncclAlltoAll"));
    }

    private void environment() {
        try {
            ProcessEnvironment.set("NCCL_DEBUG", "WARN");
            answer.add("set");
        } catch (IllegalCallerException e) {
            answer.add(e.getMessage());
        }
    }
}
