package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.nccl4j.collectives.DataType.BFLOAT16;
import static org.nccl4j.collectives.DataType.FLOAT16;
import static org.nccl4j.collectives.DataType.FLOAT32;
import static org.nccl4j.collectives.DataType.FLOAT64;
import static org.nccl4j.collectives.DataType.FLOAT8E4M3;
import static org.nccl4j.collectives.DataType.FLOAT8E5M2;
import static org.nccl4j.collectives.DataType.INT32;
import static org.nccl4j.collectives.DataType.INT64;
import static org.nccl4j.collectives.DataType.INT8;
import static org.nccl4j.collectives.DataType.UINT32;
import static org.nccl4j.collectives.DataType.UINT64;
import static org.nccl4j.collectives.DataType.UINT8;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/** The value rules of the contract, one by one, with numbers worked out by hand. */
class ReductionValuesTest {
    private static final double INFINITY = Double.POSITIVE_INFINITY;
    private static final double NAN = Double.NaN;

    private final long seed = new Random().nextLong();
    private final Engine engine = new ReferenceEngine();

    @Test
    void integersWrap() {
        assertThat(sum(INT8, 127, 1)).isEqualTo(-128);
        assertThat(sum(UINT8, 255, 2)).isEqualTo(1);
        assertThat(sum(INT32, Integer.MAX_VALUE, 1)).isEqualTo(Integer.MIN_VALUE);
        assertThat(sum(UINT32, 0xffff_ffffL, 1)).isZero();
        assertThat(bits(INT64, ReduceOp.SUM, Long.MAX_VALUE, 1)).isEqualTo(Long.MIN_VALUE);
        assertThat(bits(UINT64, ReduceOp.PROD, -1L, 2)).isEqualTo(-2L);
        assertThat(reduce(INT8, ReduceOp.PROD, -128, -1)).isEqualTo(-128);
    }

    @Test
    void integerMeanDividesTheWrappedSumTowardZero() {
        assertThat(reduce(INT32, ReduceOp.AVG, -3, 0)).isEqualTo(-1);
        assertThat(reduce(INT32, ReduceOp.AVG, 3, 0)).isEqualTo(1);
        // 127 + 127 wraps to -2.
        assertThat(reduce(INT8, ReduceOp.AVG, 127, 127)).isEqualTo(-1);
        // 200 + 100 wraps to 44.
        assertThat(reduce(UINT8, ReduceOp.AVG, 200, 100)).isEqualTo(22);
        assertThat(reduce(UINT32, ReduceOp.AVG, 0xffff_fffeL, 0)).isEqualTo(0x7fff_ffffL);
        assertThat(bits(UINT64, ReduceOp.AVG, -2L, 0)).isEqualTo(Long.MAX_VALUE);
        assertThat(bits(INT64, ReduceOp.AVG, -7, 0, 0)).isEqualTo(-2L);
    }

    @Test
    void floatMeanScalesBeforeItAdds() {
        assertThat(reduce(FLOAT16, ReduceOp.AVG, 60000, 60000)).isEqualTo(60000);
        assertThat(reduce(FLOAT32, ReduceOp.AVG, Float.MAX_VALUE, Float.MAX_VALUE))
                .isEqualTo(Float.MAX_VALUE);
        assertThat(reduce(FLOAT64, ReduceOp.AVG, 1, 5, 3)).isEqualTo(5 * (1.0 / 3) + 4 * (1.0 / 3));
    }

    @Test
    void theMeansFactorIsRoundedToTheTypeAndSoIsTheProduct() {
        // 1/3 is 0.33325195 in float16 and 0.33398438 in bfloat16; 5/3 becomes 1.6660 and 1.6719.
        assertThat(reduce(FLOAT16, ReduceOp.AVG, 5, 0, 0)).isEqualTo(1.666015625);
        assertThat(reduce(BFLOAT16, ReduceOp.AVG, 5, 0, 0)).isEqualTo(1.671875);
        // For the 8-bit floats it is kept in float16: 7 * 0.33325 = 2.333 -> 2.25; with 1/3
        // rounded to 0.34375 it would be 2.406 -> 2.5.
        assertThat(reduce(FLOAT8E4M3, ReduceOp.AVG, 7, 0, 0)).isEqualTo(2.25);
    }

    @ParameterizedTest
    @EnumSource(
            value = DataType.class,
            names = {"FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT64", "FLOAT8E4M3", "FLOAT8E5M2"})
    void minimumAndMaximumDropNaN(DataType type) {
        for (int nan = 0; nan < 3; nan++) {
            double[] values = {2, -1, 3};
            values[nan] = NAN;
            double[] others = Arrays.stream(values).filter(v -> !Double.isNaN(v)).toArray();
            double min = Math.min(others[0], others[1]);
            double max = Math.max(others[0], others[1]);
            assertThat(reduce(type, ReduceOp.MIN, values)).isEqualTo(min);
            assertThat(reduce(type, ReduceOp.MAX, values)).isEqualTo(max);
            assertThat(reduce(type, ReduceOp.SUM, values)).isNaN();
            assertThat(reduce(type, ReduceOp.PROD, values)).isNaN();
        }
        assertThat(reduce(type, ReduceOp.MIN, NAN, NAN, NAN)).isNaN();
        assertThat(reduce(type, ReduceOp.MAX, NAN, NAN, NAN)).isNaN();
    }

    @ParameterizedTest
    @EnumSource(
            value = DataType.class,
            names = {"FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT64", "FLOAT8E4M3", "FLOAT8E5M2"})
    void negativeZeroIsLessThanZero(DataType type) {
        for (double[] zeros : new double[][] {{0.0, -0.0}, {-0.0, 0.0}}) {
            assertThat(1 / reduce(type, ReduceOp.MIN, zeros)).isEqualTo(-INFINITY);
            assertThat(1 / reduce(type, ReduceOp.MAX, zeros)).isEqualTo(INFINITY);
        }
    }

    @ParameterizedTest
    @EnumSource(
            value = DataType.class,
            names = {"FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT64"})
    void infinitiesAdd(DataType type) {
        double largest = type.valueOf(type.bitsOf(INFINITY) - 1);
        assertThat(sum(type, INFINITY, -INFINITY)).isNaN();
        assertThat(sum(type, INFINITY, 1)).isEqualTo(INFINITY);
        assertThat(sum(type, largest, largest)).isEqualTo(INFINITY);
        assertThat(reduce(type, ReduceOp.MAX, INFINITY, 1)).isEqualTo(INFINITY);
    }

    @Test
    void eightBitFloatsSaturate() {
        assertThat(sum(FLOAT8E4M3, 448, 448)).isEqualTo(448);
        assertThat(sum(FLOAT8E4M3, -448, -448)).isEqualTo(-448);
        assertThat(reduce(FLOAT8E4M3, ReduceOp.PROD, 448, 448)).isEqualTo(448);
        assertThat(sum(FLOAT8E5M2, 57344, 57344)).isEqualTo(57344);
        // From a stored infinity too: 0x7c and 0xfc.
        assertThat(bits(FLOAT8E5M2, ReduceOp.SUM, 0x7c, FLOAT8E5M2.bitsOf(1.0)))
                .isEqualTo(FLOAT8E5M2.bitsOf(57344.0));
        assertThat(bits(FLOAT8E5M2, ReduceOp.MIN, 0xfc, FLOAT8E5M2.bitsOf(1.0)))
                .isEqualTo(FLOAT8E5M2.bitsOf(-57344.0));
        assertThat(FLOAT8E5M2.valueOf(bits(FLOAT8E5M2, ReduceOp.SUM, 0x7c, 0xfc))).isNaN();
    }

    /** Each hop rounds, so the result depends on where the chunk's sum starts. */
    @Test
    void everyHopRoundsToTheStoredType() {
        TestOperation operation =
                new TestOperation(OperationKind.ALL_REDUCE, 4, BFLOAT16, 4, -1).with(ReduceOp.SUM);
        for (int p = 0; p < 4; p++) {
            operation.buffers(p, 4, 4);
            for (int i = 0; i < 4; i++) {
                Elements.setValue(operation.send(p), BFLOAT16, i, p == 0 ? 256 : 1);
            }
        }
        Drivers.inRandomOrder(engine, operation, seed);
        double[] expected = {
            260, // 256 + (1 + (1 + 1)): 259 is a tie
            260, // 1 + (256 + (1 + 1))
            256, // 1 + (1 + (256 + 1)): 257 is a tie
            256
        };
        for (int p = 0; p < 4; p++) {
            for (int i = 0; i < 4; i++) {
                assertThat(Elements.value(operation.recv(p), BFLOAT16, i)).isEqualTo(expected[i]);
            }
        }
    }

    @Test
    void resultsDependNeitherOnPiecesNorOnThreadsNorOnTheRun() throws InterruptedException {
        int count = 10_007;
        MemorySegment first = null;
        for (int pieceBytes : new int[] {64, 4096, 1 << 18, 1 << 18}) {
            Random random = new Random(seed);
            TestOperation operation =
                    new TestOperation(OperationKind.ALL_REDUCE, 5, FLOAT32, count, -1)
                            .with(ReduceOp.SUM);
            for (int p = 0; p < 5; p++) {
                operation.buffers(p, count, count);
                for (int i = 0; i < count; i++) {
                    Elements.setValue(operation.send(p), FLOAT32, i, random.nextGaussian());
                }
            }
            Drivers.inThreads(new ReferenceEngine(RingSchedule.B, pieceBytes), operation);
            first = first == null ? operation.recv(0) : first;
            for (int p = 0; p < 5; p++) {
                assertThat(operation.recv(p).mismatch(first)).as("seed %d", seed).isEqualTo(-1);
            }
        }
    }

    @Test
    void preMulSumUsesEachRanksOwnScalar() {
        assertThat(preMulSum(INT32, ReduceOp.preMulSum(INT32, 2L), ReduceOp.preMulSum(INT32, -3L)))
                .isEqualTo(2 * 5 - 3 * 6);
        // 200 * 2 wraps to 144, and 144 + 201 * 3 = 747 to 235.
        assertThat(
                        bits(
                                UINT8,
                                new ReduceOp[] {
                                    ReduceOp.preMulSum(UINT8, 2L), ReduceOp.preMulSum(UINT8, 3L)
                                },
                                200,
                                201))
                .isEqualTo(235);
        for (DataType type : new DataType[] {FLOAT16, BFLOAT16, FLOAT32, FLOAT64, FLOAT8E4M3}) {
            assertThat(
                            preMulSum(
                                    type,
                                    ReduceOp.preMulSum(type, 2.0),
                                    ReduceOp.preMulSum(type, -2.0)))
                    .isEqualTo(2 * 5 - 2 * 6);
        }
    }

    @ParameterizedTest
    @EnumSource(DataType.class)
    void oneRankGetsItsInputBitForBit(DataType type) {
        int count = 300;
        Random random = new Random(seed);
        ReduceOp[] ops = {ReduceOp.SUM, ReduceOp.PROD, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.AVG};
        OperationKind[] kinds = {
            OperationKind.ALL_REDUCE, OperationKind.REDUCE, OperationKind.REDUCE_SCATTER
        };
        for (OperationKind kind : kinds) {
            for (ReduceOp op : ops) {
                TestOperation operation =
                        new TestOperation(kind, 1, type, count, 0)
                                .with(op)
                                .buffers(0, count, count);
                for (long i = 0; i < operation.send(0).byteSize(); i++) {
                    Elements.setBits(operation.send(0), UINT8, i, random.nextInt(256));
                }
                Drivers.inRandomOrder(engine, operation, seed);
                operation.checkGuards();
                assertThat(operation.recv(0).mismatch(operation.send(0)))
                        .as("seed %d", seed)
                        .isEqualTo(-1);
            }
            TestOperation scaled =
                    new TestOperation(kind, 1, type, 1, 0)
                            .with(ReduceOp.preMulSum(type, 3L))
                            .buffers(0, 1, 1);
            Elements.setValue(scaled.send(0), type, 0, 2);
            Drivers.inRandomOrder(engine, scaled, seed);
            assertThat(Elements.value(scaled.recv(0), type, 0)).isEqualTo(6);
        }
    }

    @ParameterizedTest
    @EnumSource(
            value = OperationKind.class,
            mode = EnumSource.Mode.EXCLUDE,
            names = {
                "SPLIT",
                "EXCHANGE_COUNTS",
                "ALL_GATHER_V",
                "REDUCE_SCATTER_V",
                "ALL_TO_ALL_V"
            })
    void countZeroSucceedsWithoutBuffers(OperationKind kind) {
        for (int n = kind == OperationKind.SEND_RECV ? 2 : 1; n < 5; n++) {
            TestOperation operation = new TestOperation(kind, n, FLOAT32, 0, 0).with(ReduceOp.SUM);
            Drivers.inRandomOrder(engine, operation, seed);
            for (int p = 0; p < n; p++) {
                assertThat(operation.totalSentBytes(p)).isZero();
            }
        }
    }

    private double sum(DataType type, double... values) {
        return reduce(type, ReduceOp.SUM, values);
    }

    /** 5 on rank 0, 6 on rank 1. */
    private double preMulSum(DataType type, ReduceOp... ops) {
        return type.valueOf(bits(type, ops, type.bitsOf(5L), type.bitsOf(6L)));
    }

    private double reduce(DataType type, ReduceOp op, double... values) {
        return type.valueOf(
                bits(type, op, Arrays.stream(values).mapToLong(type::bitsOf).toArray()));
    }

    private long bits(DataType type, ReduceOp op, long... inputs) {
        ReduceOp[] ops = new ReduceOp[inputs.length];
        Arrays.fill(ops, op);
        return bits(type, ops, inputs);
    }

    /** All-reduce of one element per rank: the same bits on every rank. */
    private long bits(DataType type, ReduceOp[] ops, long... inputs) {
        int n = inputs.length;
        TestOperation operation = new TestOperation(OperationKind.ALL_REDUCE, n, type, 1, -1);
        for (int p = 0; p < n; p++) {
            operation.with(p, ops[p]).buffers(p, 1, 1);
            Elements.setBits(operation.send(p), type, 0, inputs[p]);
        }
        Drivers.inRandomOrder(engine, operation, seed);
        operation.checkGuards();
        long result = Elements.bits(operation.recv(0), type, 0);
        for (int p = 1; p < n; p++) {
            assertThat(Elements.bits(operation.recv(p), type, 0)).isEqualTo(result);
        }
        return result;
    }
}
