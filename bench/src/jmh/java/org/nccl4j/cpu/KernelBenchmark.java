package org.nccl4j.cpu;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/**
 * What one thread needs to reduce a buffer per rank into a buffer per rank, as in an all-reduce: as
 * the direct engine does it, with its plain kernels alone, and as a plain loop in C, compiled with
 * {@code cc -O3 -march=native}, that reads each input once and writes each output once. {@link
 * KernelTable} runs them and prints the ratio.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 6, time = 250, timeUnit = TimeUnit.MILLISECONDS)
@Measurement(iterations = 5, time = 100, timeUnit = TimeUnit.MILLISECONDS)
@Fork(
        value = 1,
        jvmArgsAppend = {
            "--enable-native-access=ALL-UNNAMED",
            "--add-modules=jdk.incubator.vector",
            "-XX:+UseSerialGC",
            // JMH's own use of it, of which each JVM would tell.
            "--sun-misc-unsafe-memory-access=allow"
        })
public class KernelBenchmark {
    /** Element type. */
    @Param({"FLOAT32", "FLOAT64", "INT32", "BFLOAT16"})
    public DataType type;

    /** Reduction: sum, prod, min, max, avg or mulsum, which doubles each input first. */
    @Param("sum")
    public String reduction;

    /** How many buffers are read, and written. */
    @Param({"2", "4"})
    public int ranks;

    /** Bytes of one of the buffers: in the first, the second level of cache, and in memory. */
    @Param({"4096", "65536", "16777216"})
    public int sizeBytes;

    private final Arena arena = Arena.ofShared();
    private JoinedOperation operation;
    private MemorySegment[] from;
    private MemorySegment[] to;
    private long[] places;
    private FusedReduction best;
    private FusedReduction plain;
    private MethodHandle inC;

    // For the loop in C as addresses, which cost a call nothing.
    private long inputs;
    private long outputs;
    private long results;
    private long multiples;
    private int count;

    /** Compiles the loop and makes the buffers. */
    @Setup
    public void start() throws IOException, InterruptedException {
        from = new MemorySegment[ranks];
        to = new MemorySegment[ranks];
        places = new long[ranks];
        count = sizeBytes / type.sizeBytes();
        Random random = new Random(1);
        for (int i = 0; i < ranks; i++) {
            // Not all at the same place of a page, or they would share lines of the cache.
            from[i] = buffer(i * 1344L);
            to[i] = buffer((2 * ranks - i) * 704L);
            // Of any type a number of moderate size: subnormal results cost hundreds of cycles.
            for (int k = 0; k < sizeBytes; k++) {
                from[i].set(ValueLayout.JAVA_BYTE, k, (byte) (0x3c + random.nextInt(4)));
            }
        }
        ReduceOp op =
                switch (reduction) {
                    case "sum" -> ReduceOp.SUM;
                    case "prod" -> ReduceOp.PROD;
                    case "min" -> ReduceOp.MIN;
                    case "max" -> ReduceOp.MAX;
                    case "avg" -> ReduceOp.AVG;
                    case "mulsum" -> new ReduceOp.PreMulSum(type, type.bitsOf(2));
                    default -> throw new IllegalArgumentException(reduction);
                };
        operation = new AllReduce(type, op, ranks, count);
        best = new FusedReduction(KernelChoice.named(null));
        plain = new FusedReduction(KernelChoice.plain());
        compile();
        inputs = pointers(from);
        outputs = pointers(to);
        if (type.isFloat() && type.sizeBytes() == 1) {
            makeTables(op);
        }
    }

    private long pointers(MemorySegment[] ranges) {
        MemorySegment pointers = arena.allocate(ValueLayout.ADDRESS, ranks);
        for (int i = 0; i < ranks; i++) {
            pointers.setAtIndex(ValueLayout.ADDRESS, i, ranges[i]);
        }
        return pointers.address();
    }

    /** What 8-bit floats are looked up in. */
    private void makeTables(ReduceOp op) {
        Kernels kernels = new Kernels();
        kernels.begin(type, op, ranks);
        Float8Tables tables = Float8Tables.of(type);
        byte[] products = new byte[1 << 8];
        tables.multiples((float) Double.longBitsToDouble(kernels.factorBits()), products);
        multiples = arena.allocateFrom(ValueLayout.JAVA_BYTE, products).address();
        results =
                arena.allocateFrom(ValueLayout.JAVA_BYTE, tables.results(kernels.fold())).address();
    }

    private MemorySegment buffer(long shift) {
        return arena.allocate(sizeBytes + 16384L, 4096).asSlice(shift, sizeBytes).fill((byte) 0);
    }

    @SuppressWarnings("restricted")
    private void compile() throws IOException, InterruptedException {
        Path folder = Files.createTempDirectory("nccl4j-kernels");
        Path source =
                Files.writeString(
                        folder.resolve("reduce.c"), LoopInC.source(type, reduction, ranks));
        Path library = folder.resolve("libreduce.so");
        Process compiler =
                new ProcessBuilder(
                                "cc",
                                "-O3",
                                "-march=native",
                                "-fwrapv",
                                "-shared",
                                "-fPIC",
                                "-o",
                                library.toString(),
                                source.toString())
                        .inheritIO()
                        .start();
        if (!compiler.waitFor(60, TimeUnit.SECONDS) || compiler.exitValue() != 0) {
            throw new IllegalStateException("cc cannot compile " + source);
        }
        inC =
                Linker.nativeLinker()
                        .downcallHandle(
                                SymbolLookup.libraryLookup(library, arena).findOrThrow("reduce"),
                                FunctionDescriptor.ofVoid(
                                        ValueLayout.JAVA_LONG,
                                        ValueLayout.JAVA_LONG,
                                        ValueLayout.JAVA_LONG,
                                        ValueLayout.JAVA_LONG,
                                        ValueLayout.JAVA_LONG));
        Files.delete(library);
        Files.delete(source);
        Files.delete(folder);
    }

    /** Gives everything back. */
    @TearDown
    public void stop() {
        arena.close();
    }

    /** The loop in C. */
    @Benchmark
    public void inC() throws Throwable {
        inC.invokeExact(inputs, outputs, (long) count, results, multiples);
    }

    /** As a program gets it that says nothing about kernels. */
    @Benchmark
    public void best() {
        best.begin(operation);
        best.reduce(from, places, to, places, 0, ranks, count);
    }

    /** The plain kernels. */
    @Benchmark
    public void plain() {
        plain.begin(operation);
        plain.reduce(from, places, to, places, 0, ranks, count);
    }

    /** An all-reduce, as far as kernels look at it. */
    private record AllReduce(DataType type, ReduceOp op, int participants, long countElements)
            implements JoinedOperation {
        @Override
        public OperationKind kind() {
            return OperationKind.ALL_REDUCE;
        }

        @Override
        public long sequence() {
            return 0;
        }

        @Override
        public int rank(int participant) {
            return participant;
        }

        @Override
        public ReduceOp reduction(int participant) {
            return op;
        }

        @Override
        public int root() {
            return -1;
        }

        @Override
        public MemorySegment send(int participant) {
            return null;
        }

        @Override
        public MemorySegment recv(int participant) {
            return null;
        }

        @Override
        public BlockLayout sendLayout(int participant) {
            return null;
        }

        @Override
        public BlockLayout recvLayout(int participant) {
            return null;
        }

        @Override
        public void countSent(int participant, int peer, long bytes) {}

        @Override
        public StepTrace trace(int participant) {
            return null;
        }
    }
}
