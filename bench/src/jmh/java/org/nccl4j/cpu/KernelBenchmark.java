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
import java.util.Locale;
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
 * What one thread needs to sum two buffers into two, as in an all-reduce of two ranks: the kernels
 * of the direct engine, and the same as a plain loop in C, compiled with {@code cc -O3
 * -march=native}.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 5, time = 300, timeUnit = TimeUnit.MILLISECONDS)
@Measurement(iterations = 8, time = 300, timeUnit = TimeUnit.MILLISECONDS)
@Fork(
        value = 2,
        jvmArgsAppend = {
            "--enable-native-access=ALL-UNNAMED",
            "--add-modules=jdk.incubator.vector",
            "-XX:+UseSerialGC"
        })
public class KernelBenchmark {
    private static final String SOURCE =
            """
            #include <stdint.h>
            #include <string.h>
            #define SUM(name, type) \\
                void name(const type *restrict a, const type *restrict b, \\
                          type *restrict c, type *restrict d, int64_t count) { \\
                    for (int64_t i = 0; i < count; i++) { type s = a[i] + b[i]; c[i] = s; d[i] = s; } \\
                }
            SUM(float32, float)
            SUM(float64, double)
            SUM(int32, uint32_t)
            static inline float widen(uint16_t x) {
                uint32_t bits = (uint32_t) x << 16;
                float f;
                memcpy(&f, &bits, 4);
                return f;
            }
            static inline uint16_t narrow(float f) {
                uint32_t bits;
                memcpy(&bits, &f, 4);
                uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
                return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded;
            }
            void bfloat16(const uint16_t *restrict a, const uint16_t *restrict b,
                          uint16_t *restrict c, uint16_t *restrict d, int64_t count) {
                for (int64_t i = 0; i < count; i++) {
                    uint16_t s = narrow(widen(a[i]) + widen(b[i]));
                    c[i] = s;
                    d[i] = s;
                }
            }
            """;

    /** Element type. */
    @Param({"FLOAT32", "FLOAT64", "INT32", "BFLOAT16"})
    public DataType type;

    /** Bytes of one of the four buffers: in the first, the second level of cache, and in memory. */
    @Param({"8192", "65536", "16777216"})
    public int sizeBytes;

    private final Arena arena = Arena.ofShared();
    private final MemorySegment[] from = new MemorySegment[2];
    private final MemorySegment[] to = new MemorySegment[2];
    private final long[] places = new long[2];
    private FusedReduction vector;
    private FusedReduction plain;
    private MethodHandle inC;
    private int count;

    /** Compiles the loop and makes the buffers. */
    @Setup
    @SuppressWarnings("restricted")
    public void start() throws IOException, InterruptedException {
        for (int i = 0; i < 2; i++) {
            // Not all at the same place of a page, or they would share lines of the cache.
            from[i] = arena.allocate(sizeBytes + 4096L, 4096).asSlice(i * 1344L, sizeBytes);
            to[i] = arena.allocate(sizeBytes + 4096L, 4096).asSlice((2 - i) * 704L, sizeBytes);
            from[i].fill((byte) 0);
            to[i].fill((byte) 0);
        }
        count = sizeBytes / type.sizeBytes();
        Sum sum = new Sum(type, count);
        vector = new FusedReduction(KernelChoice.named("vector"));
        vector.begin(sum);
        plain = new FusedReduction(KernelChoice.plain());
        plain.begin(sum);
        Path folder = Files.createTempDirectory("nccl4j-kernels");
        Path source = Files.writeString(folder.resolve("sums.c"), SOURCE);
        Path library = folder.resolve("libsums.so");
        Process compiler =
                new ProcessBuilder(
                                "cc",
                                "-O3",
                                "-march=native",
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
                                SymbolLookup.libraryLookup(library, arena)
                                        .findOrThrow(type.name().toLowerCase(Locale.ROOT)),
                                FunctionDescriptor.ofVoid(
                                        ValueLayout.ADDRESS,
                                        ValueLayout.ADDRESS,
                                        ValueLayout.ADDRESS,
                                        ValueLayout.ADDRESS,
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
        inC.invokeExact(from[0], from[1], to[0], to[1], (long) count);
    }

    /** The sums of the vector module. */
    @Benchmark
    public void byVectors() {
        vector.reduce(from, places, to, places, 0, 2, count);
    }

    /** The plain kernels. */
    @Benchmark
    public void byPlainKernels() {
        plain.reduce(from, places, to, places, 0, 2, count);
    }

    /** A sum over two ranks, as far as kernels look at it. */
    private record Sum(DataType type, long countElements) implements JoinedOperation {
        @Override
        public OperationKind kind() {
            return OperationKind.ALL_REDUCE;
        }

        @Override
        public long sequence() {
            return 0;
        }

        @Override
        public int participants() {
            return 2;
        }

        @Override
        public int rank(int participant) {
            return participant;
        }

        @Override
        public ReduceOp reduction(int participant) {
            return ReduceOp.SUM;
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
