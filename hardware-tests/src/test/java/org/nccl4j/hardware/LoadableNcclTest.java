package org.nccl4j.hardware;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.nccl4j.bindings.NativeLibrary;
import org.nccl4j.bindings.nccl.Nccl;
import org.nccl4j.bindings.nccl.ncclUniqueId;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.nccl.NcclBackend;

/**
 * A real libnccl, whether there is a GPU or not: {@code ./mvnw -pl hardware-tests -am test
 * -Dtest=LoadableNcclTest -Dsurefire.failIfNoSpecifiedTests=false
 * -Dnccl4j.nccl.library=/path/to/libnccl.so.2}.
 */
final class LoadableNcclTest {
    private static final String LIBRARY = "nccl4j.nccl.library";

    @BeforeAll
    static void needLibrary() {
        assumeTrue(
                System.getProperty(LIBRARY) != null,
                "unsupported: no libnccl is named by -D" + LIBRARY);
    }

    @Test
    void itIsTheOneThatWasNamed() {
        assertThat(NativeLibrary.NCCL.path()).isEqualTo(System.getProperty(LIBRARY));
    }

    @Test
    void version() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(JAVA_INT);

            assertThat(Nccl.ncclGetVersion(cell)).isZero();

            assertThat(cell.get(JAVA_INT, 0)).isBetween(21800, 39999);
        }
    }

    @Test
    void errorStrings() {
        List<String> texts =
                IntStream.rangeClosed(0, 7)
                        .mapToObj(code -> Nccl.ncclGetErrorString(code).getString(0))
                        .toList();

        assertThat(texts).doesNotHaveDuplicates().noneMatch(String::isBlank);
        assertThat(texts.getFirst()).containsIgnoringCase("no error");
    }

    @Test
    void uniqueIds() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment one = ncclUniqueId.allocate(arena);
            MemorySegment other = ncclUniqueId.allocate(arena);

            assertThat(Nccl.ncclGetUniqueId(one)).isZero();
            assertThat(Nccl.ncclGetUniqueId(other)).isZero();

            assertThat(one.mismatch(other)).isNotEqualTo(-1);
        }
    }

    private static void needNoGpu() {
        assumeTrue(
                new NcclBackend().availability() instanceof Availability.Unavailable,
                "unsupported: this machine has a GPU; GpuContractTest runs on it");
    }

    /** NCCL itself, which the backend does not let come to it: a code, no crash. */
    @Test
    void ncclsInitWithoutADriver() {
        needNoGpu();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment id = ncclUniqueId.allocate(arena);
            assertThat(Nccl.ncclGetUniqueId(id)).isZero();
            MemorySegment cell = arena.allocate(ADDRESS);

            assertThat(Nccl.ncclCommInitRank(cell, 1, id, 0))
                    .isEqualTo(Nccl.ncclUnhandledCudaError());
        }
    }

    /** Without a driver all that can be had is a clear message. */
    @Test
    void initWithoutADriverFailsClearly() {
        needNoGpu();
        NcclBackend backend = new NcclBackend();

        assertThatThrownBy(() -> backend.createLocal(1, CommunicatorConfig.defaults()))
                .isInstanceOf(CollectiveException.class)
                .hasMessageMatching("(?s).*(driver|GPU|CUDA).*");
    }
}
