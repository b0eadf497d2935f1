package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Arrays;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.collectives.DataType;

/** Exact inputs reduce to the same bits in any order and any tree. */
final class ExactInputsTest {
    private static final int[] RANKS = {1, 2, 3, 4, 7, 8, 31, 64, 256, 520};
    private static final int TREES = 6;

    static Stream<Arguments> everyTreeGivesTheSameBits() {
        return Stream.of(DataType.values())
                .flatMap(type -> Stream.of(Reduction.values()).map(op -> Arguments.of(type, op)));
    }

    @ParameterizedTest
    @MethodSource
    void everyTreeGivesTheSameBits(DataType type, Reduction reduction) {
        Arithmetic arithmetic = Arithmetic.of(type);
        for (int ranks : RANKS) {
            long seed = Mix.hash(7, ranks);
            int elements = ranks < 64 ? 60 : 12;
            ExactInputs inputs = new ExactInputs(type, reduction, ranks, seed);
            long[] scalars = inputs.scalars();
            int[] inRankOrder = new int[ranks];
            Arrays.setAll(inRankOrder, r -> r);
            long[] element = new long[ranks];
            Mix random = new Mix(seed);
            for (int i = 0; i < elements; i++) {
                inputs.element(i, element);
                String where =
                        type + " " + reduction + " n=" + ranks + " element " + i + " seed " + seed;
                for (long bits : element) {
                    assertThat(isOrdinary(arithmetic, bits)).as(where).isTrue();
                }
                long expected = arithmetic.reduce(reduction, element, scalars, inRankOrder);
                if (ranks == 1 && reduction != Reduction.PRE_MUL_SUM) {
                    assertThat(expected).as(where).isEqualTo(element[0]);
                    continue;
                }
                for (int t = 0; t < TREES; t++) {
                    long[] leaves = new long[ranks];
                    for (int r = 0; r < ranks; r++) {
                        leaves[r] = arithmetic.prepare(reduction, element[r], ranks, scalars[r]);
                    }
                    long root = combineInRandomTree(arithmetic, reduction, leaves, random);
                    assertThat(arithmetic.finish(reduction, root, ranks))
                            .as(where)
                            .isEqualTo(expected);
                }
                assertThat(isFinite(arithmetic, expected)).as(where).isTrue();
            }
        }
    }

    private static long combineInRandomTree(
            Arithmetic arithmetic, Reduction reduction, long[] nodes, Mix random) {
        for (int left = nodes.length; left > 1; left--) {
            int a = random.next(left);
            long value = nodes[a];
            nodes[a] = nodes[left - 1];
            int b = random.next(left - 1);
            nodes[b] = arithmetic.combine(reduction, value, nodes[b]);
        }
        return nodes[0];
    }

    private static boolean isFinite(Arithmetic arithmetic, long bits) {
        return !(arithmetic instanceof Arithmetic.Floats floats)
                || Double.isFinite(floats.decode(bits));
    }

    /** Finite, and neither subnormal nor negative zero. */
    private static boolean isOrdinary(Arithmetic arithmetic, long bits) {
        if (!(arithmetic instanceof Arithmetic.Floats floats)) {
            return true;
        }
        double value = floats.decode(bits);
        boolean subnormal =
                (bits >>> floats.mantissaBits() & ((1L << floats.exponentBits()) - 1)) == 0;
        return Double.isFinite(value) && (bits == 0 || !subnormal);
    }

    @ParameterizedTest
    @MethodSource("everyTreeGivesTheSameBits")
    void inputsDifferBetweenRanksElementsAndSeeds(DataType type, Reduction reduction) {
        int ranks = 4;
        int length = 512;
        long[] one = new long[length * ranks];
        long[] other = new long[length * ranks];
        long[] element = new long[ranks];
        for (int i = 0; i < length; i++) {
            new ExactInputs(type, reduction, ranks, 1).element(i, element);
            System.arraycopy(element, 0, one, i * ranks, ranks);
            new ExactInputs(type, reduction, ranks, 2).element(i, element);
            System.arraycopy(element, 0, other, i * ranks, ranks);
        }
        // 8-bit floats have few values in range; all must be met all the same.
        assertThat(Arrays.stream(one).distinct().count()).isGreaterThan(4);
        assertThat(one).isNotEqualTo(other);
    }
}
