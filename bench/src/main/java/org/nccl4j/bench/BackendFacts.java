package org.nccl4j.bench;

import java.util.List;
import java.util.Locale;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.LoadedLibrary;

/**
 * What the command line and the report need to know of a backend.
 *
 * @param name the backend's name, as {@code --backend} takes it
 * @param ncclHeaders version code of the NCCL headers that the bindings were made from; 0 without
 *     NCCL
 * @param ncclLibrary version code of the loaded NCCL library; 0 without NCCL
 * @param ncclVersion the same as people write it; empty without NCCL
 * @param captures true if operations can be captured in a graph (-G)
 * @param registers true if buffers can be registered (-R)
 * @param emulated true if its devices are not GPUs but the emulator's
 */
record BackendFacts(
        String name,
        int ncclHeaders,
        int ncclLibrary,
        String ncclVersion,
        boolean captures,
        boolean registers,
        boolean emulated) {

    /** The NCCL whose headers native-bindings was made from; a test compares it with those. */
    static final int NCCL_HEADERS = 23007;

    private static final String NCCL = "NCCL";

    /** The facts of a backend, which must be available. */
    static BackendFacts of(Backend backend) {
        Capabilities capabilities = backend.capabilities();
        List<LoadedLibrary> nccl =
                backend.libraries().stream()
                        .filter(library -> library.name().equals(NCCL))
                        .toList();
        return new BackendFacts(
                backend.name(),
                nccl.isEmpty() ? 0 : NCCL_HEADERS,
                nccl.isEmpty() ? 0 : nccl.getFirst().versionCode(),
                nccl.isEmpty() ? "" : nccl.getFirst().version(),
                capabilities.capture(),
                capabilities.registration(),
                !nccl.isEmpty()
                        && backend.devices().stream()
                                .anyMatch(device ->
                                        device.name().toLowerCase(Locale.ROOT).contains("emulat")));
    }

    /** True if it is NCCL that runs the operations. */
    boolean isNccl() {
        return ncclLibrary > 0;
    }
}
