package org.nccl4j.examples;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import jcuda.Pointer;
import jcuda.runtime.JCuda;
import jcuda.runtime.cudaMemcpyKind;
import jcuda.runtime.cudaStream_t;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.nccl.interop.JCudaMemory;

/**
 * An all-reduce over memory and streams that JCuda owns, on all GPUs of this machine. Work that
 * JCuda enqueues on such a stream runs before or behind the collective, as in C.
 *
 * <p>Needs JCuda's natives ({@code org.jcuda:jcuda-natives}) besides NCCL.
 */
public final class JCudaAllReduce {
    private static final int COUNT_ELEMENTS = 1024;
    private static final long SIZE_BYTES = COUNT_ELEMENTS * (long) Float.BYTES;

    private JCudaAllReduce() {}

    /**
     * Sums a buffer of ones of each GPU and prints an element of the result.
     *
     * @param arguments none
     */
    public static void main(String[] arguments) {
        JCuda.setExceptionsEnabled(true);
        Backend backend = Backends.named("nccl");
        int ranks = backend.devices().size();
        Pointer[] memory = new Pointer[ranks];
        cudaStream_t[] streams = new cudaStream_t[ranks];
        DeviceBuffer[] wrappedMemory = new DeviceBuffer[ranks];
        DeviceStream[] wrappedStreams = new DeviceStream[ranks];
        float[] values = new float[COUNT_ELEMENTS];
        Arrays.fill(values, 1);

        List<Communicator> communicators =
                backend.createLocal(ranks, CommunicatorConfig.defaults());
        for (int r = 0; r < ranks; r++) {
            JCuda.cudaSetDevice(r);
            JCuda.cudaMalloc(memory[r] = new Pointer(), SIZE_BYTES);
            JCuda.cudaStreamCreate(streams[r] = new cudaStream_t());
            JCuda.cudaMemcpyAsync(
                    memory[r],
                    Pointer.to(values),
                    SIZE_BYTES,
                    cudaMemcpyKind.cudaMemcpyHostToDevice,
                    streams[r]);
            wrappedMemory[r] = JCudaMemory.buffer(backend.device(r), memory[r], SIZE_BYTES);
            wrappedStreams[r] = JCudaMemory.stream(backend.device(r), streams[r]);
        }
        backend.group(group -> {
            for (int r = 0; r < ranks; r++) {
                group.on(communicators.get(r))
                        .allReduce(
                                wrappedMemory[r],
                                wrappedMemory[r],
                                COUNT_ELEMENTS,
                                DataType.FLOAT32,
                                ReduceOp.SUM,
                                wrappedStreams[r]);
            }
        });
        JCuda.cudaSetDevice(0);
        JCuda.cudaMemcpyAsync( // behind the collective: they share the stream
                Pointer.to(values),
                memory[0],
                SIZE_BYTES,
                cudaMemcpyKind.cudaMemcpyDeviceToHost,
                streams[0]);
        backend.synchronizeAll(List.of(wrappedStreams), Duration.ofMinutes(1));
        System.out.println(ranks + " GPUs, sum of ones: " + values[0]);

        backend.closeAll(communicators);
        for (int r = 0; r < ranks; r++) {
            JCuda.cudaSetDevice(r);
            JCuda.cudaStreamDestroy(streams[r]);
            JCuda.cudaFree(memory[r]);
        }
    }
}
