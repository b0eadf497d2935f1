package org.nccl4j.hardware;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.nccl4j.bindings.NativeLibrary;
import org.nccl4j.bindings.cudart.CudaRt;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.nccl.NcclBackend;

/**
 * Another library captures a stream of its own in CUDA's global mode, in which a look at an event
 * by any thread of the process in that mode spoils the capture.
 */
@OnEmulator
final class ForeignCaptureTest {
    private static final int GLOBAL_MODE = 0;

    private static final MethodHandle BEGIN =
            NativeLibrary.CUDA_RUNTIME.function(
                    "cudaStreamBeginCapture", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
    private static final MethodHandle END =
            NativeLibrary.CUDA_RUNTIME.function(
                    "cudaStreamEndCapture", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
    private static final MethodHandle DESTROY =
            NativeLibrary.CUDA_RUNTIME.function(
                    "cudaGraphDestroy", FunctionDescriptor.of(JAVA_INT, ADDRESS));

    private final Backend backend = new NcclBackend();

    @Test
    void threadsOfTheBackendSpoilNoCapture(EmulatorControls controls) throws Throwable {
        try (Team team = Team.local(backend, 2, CommunicatorConfig.defaults());
                Arena arena = Arena.ofConfined()) {
            assertThat(team.sum()).isEqualTo(team.expectedSum());
            DeviceBuffer mine = team.buffer(0, 4);
            DeviceBuffer others = team.buffer(1, 4);
            DeviceBuffer pinned = team.communicator(0).device().allocateHost(64);
            MemorySegment cell = arena.allocate(ADDRESS);
            assertThat(CudaRt.cudaStreamCreateWithFlags(cell, 1)).isZero();
            MemorySegment stream = cell.get(ADDRESS, 0);
            // The watchdog looks at this until the other rank joins.
            join(team, 0, mine);

            assertThat((int) BEGIN.invokeExact(stream, GLOBAL_MODE)).isZero();
            long before = controls.calls("cudaStreamQuery");
            // The reaper looks whether it can be freed.
            pinned.close();
            Awaitility.await()
                    .atMost(Team.PATIENCE)
                    .until(() -> controls.calls("cudaStreamQuery") > before + 20);
            assertThat((int) END.invokeExact(stream, cell)).isZero();

            MemorySegment graph = cell.get(ADDRESS, 0);
            assertThat((int) DESTROY.invokeExact(graph)).isZero();
            assertThat(CudaRt.cudaStreamDestroy(stream)).isZero();
            join(team, 1, others);
            team.synchronizeAll();
        }
    }

    private static void join(Team team, int rank, DeviceBuffer buffer) {
        team.communicator(rank)
                .allReduce(buffer, buffer, 1, DataType.INT32, ReduceOp.SUM, team.stream(rank));
    }
}
