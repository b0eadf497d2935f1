package org.nccl4j.bench;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.ReduceOp;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/**
 * What a float32 all-reduce costs when one thread drives all ranks with a recorded group and waits
 * after every {@value #BATCH}th: time per operation and, with JMH's gc profiler, bytes allocated.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 5, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(
        value = 3,
        jvmArgsAppend = {
            "--enable-native-access=ALL-UNNAMED",
            "--add-modules=jdk.incubator.vector",
            "-XX:+UseSerialGC"
        })
public class AllReduceBenchmark {
    private static final int BATCH = 20;
    private static final Duration DEADLINE = Duration.ofSeconds(60);

    /** The backend's name. */
    @Param("cpu")
    public String backend;

    /** Ranks of this process. */
    @Param({"2", "4"})
    public int ranks;

    /** Bytes of one rank's buffer. */
    @Param({"1024", "65536", "1048576"})
    public int sizeBytes;

    private Backend chosen;
    private List<Communicator> communicators;
    private final List<DeviceStream> streams = new ArrayList<>();
    private final List<DeviceBuffer> buffers = new ArrayList<>();
    private RecordedGroup allReduce;

    /** Makes ranks, buffers and the group. */
    @Setup
    public void start() {
        chosen = Backends.named(backend);
        communicators = chosen.createLocal(ranks, CommunicatorConfig.defaults());
        for (Communicator communicator : communicators) {
            streams.add(communicator.device().createStream());
            buffers.add(communicator.device().allocate(sizeBytes));
            buffers.add(communicator.device().allocate(sizeBytes));
        }
        allReduce =
                chosen.record(group -> {
                    for (int r = 0; r < ranks; r++) {
                        group.on(communicators.get(r))
                                .allReduce(
                                        buffers.get(2 * r),
                                        buffers.get(2 * r + 1),
                                        sizeBytes / Float.BYTES,
                                        DataType.FLOAT32,
                                        ReduceOp.SUM,
                                        streams.get(r));
                    }
                });
    }

    /** Closes everything. */
    @TearDown
    public void stop() {
        chosen.closeAll(communicators);
        streams.forEach(DeviceStream::close);
        buffers.forEach(DeviceBuffer::close);
    }

    /** {@value #BATCH} operations, then a wait. */
    @Benchmark
    @OperationsPerInvocation(BATCH)
    public void allReduce() {
        for (int i = 0; i < BATCH; i++) {
            allReduce.issue();
        }
        for (int r = 0; r < ranks; r++) {
            streams.get(r).synchronize(DEADLINE);
        }
    }
}
