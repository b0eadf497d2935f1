package org.nccl4j.bench;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.bytedeco.cuda.cudart.CUstream_st;
import org.bytedeco.cuda.global.nccl;
import org.bytedeco.cuda.nccl.ncclComm;
import org.bytedeco.javacpp.Pointer;
import org.nccl4j.bindings.NativeLibrary;
import org.nccl4j.bindings.nccl.Nccl;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Group;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.ReduceOp;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/**
 * What it costs to call an all-reduce when NCCL returns at once: on stub libraries, whose folder is
 * the variable NCCL4J_LIBRARY_PATH. {@link CallCost} runs it and makes the table.
 */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 5, time = 500, timeUnit = TimeUnit.MILLISECONDS)
@Measurement(iterations = 10, time = 500, timeUnit = TimeUnit.MILLISECONDS)
@Fork(
        value = 3,
        jvmArgsAppend = {"--enable-native-access=ALL-UNNAMED", "-XX:+UseSerialGC"})
public class CallCostBenchmark {
    private static final int RANKS = 2;
    private static final int BATCH = 1000;
    private static final long COUNT_ELEMENTS = 256;
    private static final long SIZE_BYTES = COUNT_ELEMENTS * Float.BYTES;
    private static final int FLOAT32 = Nccl.ncclFloat32();
    private static final int SUM = Nccl.ncclSum();

    /** A communicator's call and a recorded group of two ranks, through the contract. */
    @State(Scope.Thread)
    public static class Contract {
        private Backend backend;
        private List<Communicator> communicators;
        private Communicator communicator;
        private DeviceBuffer send;
        private DeviceBuffer receive;
        private DeviceStream stream;
        private RecordedGroup groupOfOne;
        private RecordedGroup groupOfTwo;

        /** Makes ranks, slices and the group. */
        @Setup
        public void start() {
            backend = Backends.named("nccl");
            communicators = backend.createLocal(RANKS, CommunicatorConfig.defaults());
            communicator = communicators.getFirst();
            DeviceBuffer memory = communicator.device().allocate(2 * SIZE_BYTES);
            send = memory.slice(0, SIZE_BYTES);
            receive = memory.slice(SIZE_BYTES, SIZE_BYTES);
            stream = communicator.device().createStream();
            groupOfOne = backend.record(group -> record(group, communicator));
            groupOfTwo =
                    backend.record(group -> communicators.forEach(rank -> record(group, rank)));
        }

        private static void record(Group group, Communicator rank) {
            DeviceBuffer buffer = rank.device().allocate(SIZE_BYTES);
            group.on(rank)
                    .allReduce(
                            buffer,
                            buffer,
                            COUNT_ELEMENTS,
                            DataType.FLOAT32,
                            ReduceOp.SUM,
                            rank.device().createStream());
        }

        /** Closes the ranks; the process ends soon. */
        @TearDown
        public void stop() {
            backend.closeAll(communicators);
        }
    }

    /** The same calls by addresses that nobody looks at. */
    @State(Scope.Thread)
    public static class Addresses {
        private final MemorySegment send = MemorySegment.ofAddress(0x1000);
        private final MemorySegment receive = MemorySegment.ofAddress(0x2000);
        private final MemorySegment communicator = MemorySegment.ofAddress(0x3000);
        private final MemorySegment stream = MemorySegment.ofAddress(0x4000);
    }

    /** The stub's own loops. */
    @State(Scope.Thread)
    public static class FromC {
        private MethodHandle allReduces;
        private MethodHandle groups;

        /** Finds them. */
        @Setup
        public void start() {
            FunctionDescriptor loop = FunctionDescriptor.of(JAVA_INT, JAVA_LONG);
            allReduces = NativeLibrary.NCCL.function("nccl4j_stub_all_reduces", loop);
            groups =
                    NativeLibrary.NCCL.function(
                            "nccl4j_stub_groups",
                            FunctionDescriptor.of(JAVA_INT, JAVA_LONG, JAVA_INT));
        }
    }

    /** JavaCPP's NCCL preset. */
    @State(Scope.Thread)
    public static class JavaCpp {
        /** A pointer to an address that nobody looks at. */
        private static final class At extends Pointer {
            At(long at) {
                address = at;
            }
        }

        private final Pointer send = new At(0x1000);
        private final Pointer receive = new At(0x2000);
        private final ncclComm communicator = new ncclComm(new At(0x3000));
        private final CUstream_st stream = new CUstream_st(new At(0x4000));
    }

    /** The floor: one call of the stub from C. */
    @Benchmark
    @OperationsPerInvocation(BATCH)
    public int allReduceInC(FromC c) throws Throwable {
        return (int) c.allReduces.invokeExact((long) BATCH);
    }

    /** The generated function alone: no check, no exception, no bookkeeping. */
    @Benchmark
    public int allReduceByGeneratedCode(Addresses a) {
        return Nccl.ncclAllReduce(
                a.send, a.receive, COUNT_ELEMENTS, FLOAT32, SUM, a.communicator, a.stream);
    }

    /** JavaCPP's function: no check, no exception, no bookkeeping. */
    @Benchmark
    public int allReduceByJavaCpp(JavaCpp j) {
        return nccl.ncclAllReduce(
                j.send, j.receive, COUNT_ELEMENTS, FLOAT32, SUM, j.communicator, j.stream);
    }

    /** The contract's call. */
    @Benchmark
    public void allReduceByContract(Contract c) {
        c.communicator.allReduce(
                c.send, c.receive, COUNT_ELEMENTS, DataType.FLOAT32, ReduceOp.SUM, c.stream);
    }

    /** The floor of a group: start, one call, end. */
    @Benchmark
    @OperationsPerInvocation(BATCH)
    public int groupOfOneInC(FromC c) throws Throwable {
        return (int) c.groups.invokeExact((long) BATCH, 1);
    }

    /** A recorded group of one rank's operation. */
    @Benchmark
    public void groupOfOneByContract(Contract c) {
        c.groupOfOne.issue();
    }

    /** The floor of a group: start, two calls, end. */
    @Benchmark
    @OperationsPerInvocation(BATCH)
    public int groupOfTwoInC(FromC c) throws Throwable {
        return (int) c.groups.invokeExact((long) BATCH, 2);
    }

    /** A recorded group of an operation of two ranks. */
    @Benchmark
    public void groupOfTwoByContract(Contract c) {
        c.groupOfTwo.issue();
    }
}
