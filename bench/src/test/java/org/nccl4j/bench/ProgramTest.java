package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** Counts, offsets, columns and formulas of each program. */
final class ProgramTest {

    @Test
    void namesOfNcclTests() {
        assertThat(Arrays.stream(Program.values()).map(Program::label))
                .containsExactly(
                        "all_reduce",
                        "all_gather",
                        "broadcast",
                        "reduce_scatter",
                        "reduce",
                        "alltoall",
                        "alltoallv",
                        "scatter",
                        "gather",
                        "sendrecv",
                        "hypercube");
    }

    @ParameterizedTest
    @EnumSource(Program.class)
    void withAndWithoutUnderscoresAndSuffix(Program program) {
        String joined = program.label().replace("_", "");
        assertThat(Program.named(program.label().replace("_", "-"))).contains(program);
        assertThat(Program.named(program.label().toUpperCase(Locale.ROOT))).contains(program);
        for (String name :
                List.of(program.label(), joined, program.label() + "_perf", joined + "_perf")) {
            assertThat(Program.named(name)).contains(program);
        }
        assertThat(program.executable()).isEqualTo(program.label() + "_perf");
    }

    @Test
    void otherNamesAreUnknown() {
        assertThat(Program.named("")).isEmpty();
        assertThat(Program.named("all reduce")).isEmpty();
        assertThat(Program.named("all_reduce_perf_mpi")).isEmpty();
    }

    @ParameterizedTest
    @CsvSource({
        // 4 ranks, 1000 bytes of float: 250 elements, chunks of 60
        "ALL_REDUCE, 250, 250, 250, 0, 0",
        "REDUCE, 250, 250, 250, 0, 0",
        "BROADCAST, 250, 250, 250, 0, 0",
        "SENDRECV, 250, 250, 250, 0, 0",
        "REDUCE_SCATTER, 240, 60, 60, 0, 180",
        "SCATTER, 240, 60, 60, 0, 180",
        "ALL_GATHER, 60, 240, 60, 180, 0",
        "GATHER, 60, 240, 60, 180, 0",
        "HYPERCUBE, 60, 240, 60, 180, 0",
        "ALLTOALL, 240, 240, 60, 0, 0",
    })
    void shapes(
            Program program,
            long sendCount,
            long recvCount,
            long paramCount,
            long sendOffsetOfRank3,
            long recvOffsetOfRank3) {
        Shape shape = program.shape(1000, ElementType.FLOAT, 4);
        assertThat(shape.sendCount()).isEqualTo(sendCount);
        assertThat(shape.recvCount()).isEqualTo(recvCount);
        assertThat(shape.paramCount()).isEqualTo(paramCount);
        assertThat(shape.sizeBytes()).isEqualTo(4 * Math.max(sendCount, recvCount));
        assertThat(shape.inPlaceSendOffset(3)).isEqualTo(sendOffsetOfRank3);
        assertThat(shape.inPlaceRecvOffset(3)).isEqualTo(recvOffsetOfRank3);
        assertThat(shape.inPlaceSendOffset(0)).isZero();
        assertThat(shape.inPlaceRecvOffset(0)).isZero();
    }

    @Test
    void roundingOfSizes() {
        LongStream requested = new BenchOptions.Sweep(8, 4096, 0, 2, 1).sizesBytes();
        List<Shape> shapes =
                requested.mapToObj(s -> Program.ALL_GATHER.shape(s, ElementType.FLOAT, 3)).toList();
        assertThat(shapes.stream().map(Shape::sizeBytes))
                .containsExactly(0L, 0L, 0L, 48L, 96L, 240L, 480L, 1008L, 2016L, 4080L);
        assertThat(shapes.stream().map(Shape::paramCount))
                .containsExactly(0L, 0L, 0L, 4L, 8L, 20L, 40L, 84L, 168L, 340L);
    }

    @Test
    void roundingForWideTypes() {
        Shape shape = Program.REDUCE_SCATTER.shape(1000, ElementType.DOUBLE, 3);
        assertThat(shape.sizeBytes()).isEqualTo(960);
        assertThat(shape.paramCount()).isEqualTo(40);
    }

    @ParameterizedTest
    @EnumSource(ElementType.class)
    void chunksAreMultiplesOf16Bytes(ElementType type) {
        for (long sizeBytes = 0; sizeBytes < 3000; sizeBytes += 7) {
            for (int ranks = 1; ranks <= 9; ranks++) {
                long chunkBytes = Program.chunkCount(sizeBytes, type, ranks) * type.widthBytes();
                assertThat(chunkBytes % 16).isZero();
                assertThat(chunkBytes * ranks).isLessThanOrEqualTo(sizeBytes);
                assertThat((chunkBytes + 16) * ranks).isGreaterThan(sizeBytes - 8L * ranks);
            }
        }
    }

    @ParameterizedTest
    @CsvSource({
        // 8 ranks, 1 MiB of float, 100 us
        "ALL_REDUCE, 10.48576, 18.35008",
        "REDUCE, 10.48576, 10.48576",
        "BROADCAST, 10.48576, 10.48576",
        "SENDRECV, 10.48576, 10.48576",
        "ALL_GATHER, 10.48576, 9.17504",
        "REDUCE_SCATTER, 10.48576, 9.17504",
        "GATHER, 10.48576, 9.17504",
        "SCATTER, 10.48576, 9.17504",
        "ALLTOALL, 10.48576, 9.17504",
        "HYPERCUBE, 9.17504, 9.17504",
    })
    void bandwidths(Program program, double algBw, double busBw) {
        Shape shape = program.shape(1 << 20, ElementType.FLOAT, 8);
        Bandwidth bandwidth = program.bandwidth(shape, 8, 100e-6);
        assertThat(bandwidth.algBwGBps()).isCloseTo(algBw, within(1e-12));
        assertThat(bandwidth.busBwGBps()).isCloseTo(busBw, within(1e-12));
    }

    @ParameterizedTest
    @CsvSource({
        "ALL_REDUCE, 0",
        "ALL_GATHER, 0",
        "REDUCE_SCATTER, 0",
        "GATHER, 0",
        "SCATTER, 0",
        "ALLTOALL, 0",
        "REDUCE, 1",
        "BROADCAST, 1",
        "SENDRECV, 1",
    })
    void oneRank(Program program, double busOverAlg) {
        Shape shape = program.shape(1024, ElementType.FLOAT, 1);
        Bandwidth bandwidth = program.bandwidth(shape, 1, 1e-6);
        assertThat(bandwidth.algBwGBps()).isEqualTo(1.024);
        assertThat(bandwidth.busBwGBps()).isEqualTo(1.024 * busOverAlg);
    }

    @ParameterizedTest
    @CsvSource({
        "ALL_REDUCE, sum -1/max -1",
        "REDUCE_SCATTER, sum -1/max -1",
        "SENDRECV, sum -1/max -1",
        "REDUCE, sum 0/sum 1/max 0/max 1",
        "ALL_GATHER, none -1",
        "ALLTOALL, none -1",
        "ALLTOALLV, none -1",
        "BROADCAST, none 0/none 1",
        "GATHER, none 0/none 1",
        "SCATTER, none 0/none 1",
        "HYPERCUBE, ' -1'",
    })
    void redopAndRootColumns(Program program, String expected) {
        List<Series> series =
                program.series(List.of(ElementType.INT8), List.of(RedOp.SUM, RedOp.MAX), -1, 2);
        assertThat(series.stream().map(s -> s.redop() + " " + s.root()))
                .containsExactly(expected.split("/"));
    }

    @Test
    void typesAreTheOutermostLoopThenOpsThenRoots() {
        List<Series> series =
                Program.REDUCE.series(
                        List.of(ElementType.INT8, ElementType.HALF),
                        List.of(RedOp.SUM, RedOp.MIN),
                        -1,
                        2);
        assertThat(series.stream().map(s -> s.type().label() + " " + s.redop() + " " + s.root()))
                .containsExactly(
                        "int8 sum 0",
                        "int8 sum 1",
                        "int8 min 0",
                        "int8 min 1",
                        "half sum 0",
                        "half sum 1",
                        "half min 0",
                        "half min 1");
    }

    @Test
    void aRootIsPassedOnUnchecked() {
        assertThat(Program.BROADCAST.series(List.of(ElementType.INT8), List.of(RedOp.SUM), 9, 2))
                .extracting(Series::root)
                .containsExactly(9);
    }

    @Test
    void cellsWithoutACheck() {
        assertThat(Arrays.stream(Program.values()).filter(p -> !p.checksInPlace()))
                .containsExactlyInAnyOrder(Program.ALLTOALL, Program.ALLTOALLV, Program.SENDRECV);
    }

    @Test
    void hypercubeWantsAPowerOfTwo() {
        assertThat(Program.HYPERCUBE.runsOn(4)).isTrue();
        assertThat(Program.HYPERCUBE.runsOn(1)).isTrue();
        assertThat(Program.HYPERCUBE.runsOn(6)).isFalse();
        assertThat(Program.ALL_REDUCE.runsOn(6)).isTrue();
    }

    @Test
    void operationsRotateThroughTheBuffers() {
        Shape shape = Program.ALL_REDUCE.shape(8, ElementType.FLOAT, 2);
        assertThat(LongStream.range(0, 9).map(i -> shape.rotationOffsetBytes(i, 64)))
                .containsExactly(0L, 8L, 16L, 24L, 32L, 40L, 48L, 56L, 0L);
        Shape odd = Program.ALL_REDUCE.shape(24, ElementType.FLOAT, 2);
        assertThat(LongStream.range(0, 4).map(i -> odd.rotationOffsetBytes(i, 64)))
                .containsExactly(0L, 24L, 0L, 24L);
        assertThat(Program.ALL_GATHER.shape(8, ElementType.FLOAT, 2).rotationOffsetBytes(3, 64))
                .isZero();
    }

    @Test
    void typesHaveTheWidthsOfTheTable() {
        assertThat(Arrays.stream(ElementType.values()).map(t -> t.label() + t.widthBytes()))
                .containsExactly(
                        "int81",
                        "uint81",
                        "int324",
                        "uint324",
                        "int648",
                        "uint648",
                        "half2",
                        "float4",
                        "double8",
                        "bfloat162",
                        "f8e4m31",
                        "f8e5m21");
        for (ElementType type : ElementType.values()) {
            assertThat(type.dataType().ordinal()).isEqualTo(type.ordinal());
        }
    }
}
