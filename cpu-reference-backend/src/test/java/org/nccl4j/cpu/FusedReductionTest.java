package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Random;
import java.util.stream.Stream;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * Every fused reduction of every choice of kernels against {@link ScalarReduction}, bit for bit:
 * all short lengths, at odd places, and a few long ones.
 */
class FusedReductionTest {
    private static final int MOST_INPUTS = 9;

    /** More than a block. */
    private static final int LONGEST_BYTES = 8_600;

    private static final byte GUARD = 0x33;

    private final long seed = new Random().nextLong();
    private final Random random = new Random(seed);

    static Stream<Arguments> choicesTypesAndReductions() {
        return Stream.of("plain", "vector")
                .flatMap(choice ->
                        Stream.of(DataType.values())
                                .flatMap(type ->
                                        Stream.of("sum", "prod", "min", "max", "avg", "preMulSum")
                                                .map(op -> Arguments.of(choice, type, op))));
    }

    @ParameterizedTest
    @MethodSource("choicesTypesAndReductions")
    void equalsTheScalarOracle(String choice, DataType type, String reduction) {
        assumeTrue(
                !"vector".equals(choice) || KernelChoice.hasVectors(),
                "unsupported: this JVM was started without jdk.incubator.vector");
        FusedReduction fused = new FusedReduction(KernelChoice.named(choice));
        for (int length = 0; length <= 130; length++) {
            check(fused, type, reduction, 1 + length % MOST_INPUTS, length, 1 + length % 2);
            check(fused, type, reduction, 2, length, 2);
        }
        for (int n = 2; n <= MOST_INPUTS; n++) {
            int length = LONGEST_BYTES / type.sizeBytes() - random.nextInt(70);
            check(fused, type, reduction, n, length, n);
            check(fused, type, reduction, n, length, 1);
        }
    }

    @Test
    @Timeout(180) // The JIT takes as long as others leave it.
    void aSumIsUsedOnceItIsFasterThanThePlainOne() {
        assumeTrue(
                KernelChoice.hasVectors(),
                "unsupported: this JVM was started without jdk.incubator.vector");
        assertThat(KernelChoice.plain().vectors(DataType.FLOAT32, Fold.SUM, 2, 2)).isNull();
        assertThat(KernelChoice.named("vector").vectors(DataType.FLOAT32, Fold.SUM, 2, 2))
                .isNotNull();
        assertThat(KernelChoice.named("vector").vectors(DataType.FLOAT8E4M3, Fold.SUM, 2, 2))
                .isNull();
        KernelChoice best = KernelChoice.named(null);
        Awaitility.await()
                .atMost(Duration.ofSeconds(170))
                .until(() -> best.vectors(DataType.INT64, Fold.SUM, 4, 4) != null);
    }

    private void check(
            FusedReduction fused, DataType type, String reduction, int n, int length, int outputs) {
        ReduceOp[] ops = new ReduceOp[n];
        TestOperation operation = new TestOperation(OperationKind.ALL_REDUCE, n, type, length, -1);
        MemorySegment[] from = new MemorySegment[n];
        MemorySegment[] to = new MemorySegment[n];
        long[] fromAt = new long[n];
        long[] toAt = new long[n];
        long[][] inputs = new long[n][length];
        int written = Math.min(outputs, n);
        for (int p = 0; p < n; p++) {
            ops[p] = ReductionOrderTest.op(type, reduction, random);
            operation.with(p, ops[p]);
            fromAt[p] = random.nextInt(17);
            from[p] = Arena.ofAuto().allocate(type.bytes(length) + 40, 8).fill(GUARD);
            boolean inPlace = p > 0 && random.nextInt(4) == 0;
            toAt[p] = inPlace ? fromAt[p] : random.nextInt(17);
            to[p] =
                    inPlace
                            ? from[p]
                            : Arena.ofAuto().allocate(type.bytes(length) + 40, 8).fill(GUARD);
            for (int i = 0; i < length; i++) {
                inputs[p][i] = element(type);
                Elements.setBits(from[p].asSlice(fromAt[p]), type, i, inputs[p][i]);
            }
        }
        fused.begin(operation);
        fused.reduce(from, fromAt, to, toAt, n - written, written, length);
        long[] x = new long[n];
        for (int i = 0; i < length; i++) {
            for (int p = 0; p < n; p++) {
                x[p] = inputs[p][i];
            }
            // The ring's order for the last rank is that of the ranks.
            long expected = ScalarReduction.result(type, ops, x, n - 1);
            for (int p = n - written; p < n; p++) {
                long actual = Elements.bits(to[p].asSlice(toAt[p]), type, i);
                if (!ScalarReduction.same(type, actual, expected)) {
                    throw new AssertionError(
                            String.format(
                                    "%s, output %d, element %d: %x, expected %x (seed %d)",
                                    operation, p, i, actual, expected, seed));
                }
            }
        }
        for (int p = n - written; p < n; p++) {
            for (long i = 0; i < to[p].byteSize(); i++) {
                boolean inside = i >= toAt[p] && i < toAt[p] + type.bytes(length);
                if (!inside && Elements.bits(to[p], DataType.UINT8, i) != GUARD) {
                    throw new AssertionError(
                            String.format(
                                    "%s, output %d, byte %d is beside the range (seed %d)",
                                    operation, p, i, seed));
                }
            }
        }
    }

    /** Random bits, or one of the values that rules are about. */
    private long element(DataType type) {
        long mask = -1L >>> 64 - 8 * type.sizeBytes();
        if (random.nextInt(3) > 0) {
            return random.nextLong() & mask;
        }
        if (!type.isFloat()) {
            long[] limits = {0, 1, -1, mask >>> 1, (mask >>> 1) + 1};
            return limits[random.nextInt(limits.length)] & mask;
        }
        long infinity = type.bitsOf(Double.POSITIVE_INFINITY);
        // Subnormal, normal, the largest, infinity or not, and what lies beyond.
        long[] magnitudes = {
            0, 1, 2, infinity / 3, infinity - 1, infinity, infinity + 1, mask >>> 1
        };
        long sign = random.nextBoolean() ? mask ^ mask >>> 1 : 0;
        return magnitudes[random.nextInt(magnitudes.length)] | sign;
    }
}
