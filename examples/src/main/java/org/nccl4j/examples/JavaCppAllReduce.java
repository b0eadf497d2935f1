package org.nccl4j.examples;

import static org.bytedeco.cuda.global.cudart.cudaFree;
import static org.bytedeco.cuda.global.cudart.cudaMalloc;
import static org.bytedeco.cuda.global.cudart.cudaMemcpyAsync;
import static org.bytedeco.cuda.global.cudart.cudaMemcpyDefault;
import static org.bytedeco.cuda.global.cudart.cudaSetDevice;
import static org.bytedeco.cuda.global.cudart.cudaStreamCreate;
import static org.bytedeco.cuda.global.cudart.cudaStreamDestroy;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.bytedeco.cuda.cudart.CUstream_st;
import org.bytedeco.javacpp.FloatPointer;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.nccl.interop.JavaCppMemory;

/**
 * An all-reduce over memory and streams that JavaCPP owns, on all GPUs of this machine. Work that
 * JavaCPP's libraries enqueue on such a stream runs before or behind the collective, as in C.
 *
 * <p>Needs the natives of JavaCPP and of its CUDA presets ({@code org.bytedeco:cuda-platform})
 * besides NCCL.
 */
public final class JavaCppAllReduce {
    private static final int COUNT_ELEMENTS = 1024;
    private static final long SIZE_BYTES = COUNT_ELEMENTS * (long) Float.BYTES;

    private JavaCppAllReduce() {}

    /** One GPU's memory and stream, as JavaCPP has them. */
    private record Gpu(FloatPointer memory, CUstream_st stream) {}

    /**
     * Sums a buffer of ones of each GPU and prints an element of the result.
     *
     * @param arguments none
     */
    public static void main(String[] arguments) {
        Backend backend = Backends.named("nccl");
        int ranks = backend.devices().size();
        List<Communicator> communicators =
                backend.createLocal(ranks, CommunicatorConfig.defaults());
        FloatPointer values = new FloatPointer(COUNT_ELEMENTS);
        for (int i = 0; i < COUNT_ELEMENTS; i++) {
            values.put(i, 1);
        }
        List<Gpu> gpus = new ArrayList<>();
        for (int r = 0; r < ranks; r++) {
            check(cudaSetDevice(r));
            Gpu gpu = new Gpu(new FloatPointer(), new CUstream_st());
            check(cudaMalloc(gpu.memory(), SIZE_BYTES));
            check(cudaStreamCreate(gpu.stream()));
            check(
                    cudaMemcpyAsync(
                            gpu.memory(), values, SIZE_BYTES, cudaMemcpyDefault, gpu.stream()));
            gpus.add(gpu);
        }
        List<DeviceStream> streams = new ArrayList<>();
        backend.group(group -> {
            for (Communicator rank : communicators) {
                Gpu gpu = gpus.get(rank.rank());
                DeviceBuffer buffer = JavaCppMemory.buffer(rank.device(), gpu.memory(), SIZE_BYTES);
                DeviceStream stream = JavaCppMemory.stream(rank.device(), gpu.stream());
                streams.add(stream);
                group.on(rank)
                        .allReduce(
                                buffer,
                                buffer,
                                COUNT_ELEMENTS,
                                DataType.FLOAT32,
                                ReduceOp.SUM,
                                stream);
            }
        });
        Gpu first = gpus.getFirst();
        check(cudaSetDevice(0));
        check( // behind the collective: they share the stream
                cudaMemcpyAsync(
                        values, first.memory(), SIZE_BYTES, cudaMemcpyDefault, first.stream()));
        backend.synchronizeAll(streams, Duration.ofMinutes(1));
        System.out.println(ranks + " GPUs, sum of ones: " + values.get(0));

        backend.closeAll(communicators);
        for (Gpu gpu : gpus) {
            check(cudaStreamDestroy(gpu.stream()));
            check(cudaFree(gpu.memory()));
        }
    }

    private static void check(int cudaError) {
        if (cudaError != 0) {
            throw new IllegalStateException("CUDA answered with error " + cudaError);
        }
    }
}
