package org.nccl4j.hardware;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.nccl4j.bindings.cudart.CudaRt;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.nccl.NcclBackend;

/** Memory and streams that somebody else made by CUDA: used in place, and left alone by a close. */
@OnEmulator
final class ForeignMemoryTest {
    private static final int RANKS = 2;
    private static final int SIZE_BYTES = 40_000;
    private static final int STREAM_NON_BLOCKING = 1;
    private static final int DEVICE_TO_DEVICE = 3;

    private final Backend backend = new NcclBackend();

    /** What another library holds on a device. */
    private record Foreign(int device, MemorySegment stream, MemorySegment in, MemorySegment out) {
        static Foreign on(int device) {
            require(CudaRt.cudaSetDevice(device));
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment cell = arena.allocate(ADDRESS);
                require(CudaRt.cudaStreamCreateWithFlags(cell, STREAM_NON_BLOCKING));
                MemorySegment stream = cell.get(ADDRESS, 0);
                require(CudaRt.cudaMalloc(cell, SIZE_BYTES));
                MemorySegment in = cell.get(ADDRESS, 0);
                require(CudaRt.cudaMalloc(cell, SIZE_BYTES));
                return new Foreign(device, stream, in, cell.get(ADDRESS, 0));
            }
        }

        void free() {
            require(CudaRt.cudaSetDevice(device));
            require(CudaRt.cudaStreamDestroy(stream));
            require(CudaRt.cudaFree(in));
            require(CudaRt.cudaFree(out));
        }
    }

    private static void require(int code) {
        assertThat(code).as("CUDA's code").isZero();
    }

    /** The owner's copy, enqueued as soon as the operation has returned, sees its result. */
    @Test
    void theOwnerEnqueuesBehindAnOperation() {
        List<Foreign> foreign = new ArrayList<>();
        try (Team team =
                Team.local(
                        backend,
                        RANKS,
                        CommunicatorConfig.defaults().withOperationTimeout(Team.PATIENCE))) {
            List<DeviceStream> streams = new ArrayList<>();
            List<DeviceBuffer> ins = new ArrayList<>();
            List<DeviceBuffer> outs = new ArrayList<>();
            for (int rank = 0; rank < RANKS; rank++) {
                Foreign one = Foreign.on(rank);
                foreign.add(one);
                var device = team.communicator(rank).device();
                streams.add(team.closing(device.wrapStream(one.stream().address())));
                ins.add(DeviceBuffer.wrap(device, one.in().address(), SIZE_BYTES));
                outs.add(DeviceBuffer.wrap(device, one.out().address(), SIZE_BYTES));
                streams.get(rank).fill(ins.get(rank), (byte) (rank + 1));
            }

            backend.group(group -> {
                for (int rank = 0; rank < RANKS; rank++) {
                    DeviceBuffer in = ins.get(rank);
                    group.on(team.communicator(rank))
                            .allReduce(
                                    in,
                                    in,
                                    SIZE_BYTES,
                                    DataType.INT8,
                                    ReduceOp.SUM,
                                    streams.get(rank));
                }
            });
            for (Foreign one : foreign) {
                require(CudaRt.cudaSetDevice(one.device()));
                require(
                        CudaRt.cudaMemcpyAsync(
                                one.out(), one.in(), SIZE_BYTES, DEVICE_TO_DEVICE, one.stream()));
            }
            for (Foreign one : foreign) {
                require(CudaRt.cudaStreamSynchronize(one.stream()));
            }

            for (int rank = 0; rank < RANKS; rank++) {
                assertThat(team.read(rank, outs.get(rank))).containsOnly(3);
                outs.get(rank).close();
                streams.get(rank).close();
            }
            // Still theirs.
            for (Foreign one : foreign) {
                require(CudaRt.cudaStreamSynchronize(one.stream()));
            }
        } finally {
            foreign.forEach(Foreign::free);
            require(CudaRt.cudaSetDevice(0));
        }
    }
}
