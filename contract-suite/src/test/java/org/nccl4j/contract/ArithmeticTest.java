package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.nccl4j.collectives.DataType;

/** The oracle's value rules on values worked out by hand. */
final class ArithmeticTest {

    private static long reduce(DataType type, Reduction reduction, long... inputs) {
        int[] order = new int[inputs.length];
        for (int i = 0; i < order.length; i++) {
            order[i] = i;
        }
        return Arithmetic.of(type).reduce(reduction, inputs, new long[inputs.length], order);
    }

    @ParameterizedTest
    @CsvSource({
        "INT8, SUM, 7f, 01, 80",
        "UINT8, SUM, ff, 02, 01",
        "INT8, PROD, 40, 04, 00",
        "INT8, MIN, 80, 7f, 80",
        "UINT8, MIN, 80, 7f, 7f",
        "UINT64, MAX, ffffffffffffffff, 1, ffffffffffffffff",
        "INT64, MAX, ffffffffffffffff, 1, 1",
        // truncation toward zero: (-4 + 1) / 2 = -1, and a wrapped sum is divided as it is
        "INT8, AVG, fc, 01, ff",
        "INT8, AVG, 7f, 01, c0",
        "UINT8, AVG, ff, 02, 00",
        "INT32, AVG, 4, 6, 5",
        "UINT32, AVG, 80000000, 7fffffff, 7fffffff",
    })
    void integers(DataType type, Reduction reduction, String a, String b, String expected) {
        assertThat(
                        reduce(
                                type,
                                reduction,
                                Long.parseUnsignedLong(a, 16),
                                Long.parseUnsignedLong(b, 16)))
                .isEqualTo(Long.parseUnsignedLong(expected, 16));
    }

    @ParameterizedTest
    @CsvSource({
        // fp16 inputs near the top: the average does not overflow, the sum does
        "FLOAT16, AVG, 7bff, 7bff, 7bff",
        "FLOAT16, SUM, 7bff, 7bff, 7c00",
        // 8-bit floats saturate
        "FLOAT8E4M3, SUM, 7e, 7e, 7e",
        "FLOAT8E5M2, SUM, 7b, 7b, 7b",
        "FLOAT8E5M2, PROD, fb, 7b, fb",
        // -0 is less than +0
        "FLOAT32, MIN, 80000000, 0, 80000000",
        "FLOAT16, MIN, 0000, 8000, 8000",
        "BFLOAT16, MAX, 8000, 0000, 0000",
        // NaN is dropped, wherever it is
        "FLOAT32, MIN, 7fc00000, 3f800000, 3f800000",
        "FLOAT64, MAX, 3ff0000000000000, 7ff8000000000000, 3ff0000000000000",
        "FLOAT8E4M3, MAX, 7f, 38, 38",
        // infinity too, once it has been through an operation
        "FLOAT8E5M2, MAX, 7c, 38, 7b",
        "FLOAT8E5M2, MIN, 7c, 7e, 7b",
    })
    void floats(DataType type, Reduction reduction, String a, String b, String expected) {
        integers(type, reduction, a, b, expected);
    }

    @ParameterizedTest
    @EnumSource(names = {"FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT64", "FLOAT8E4M3", "FLOAT8E5M2"})
    void nanPropagatesThroughSumAndProduct(DataType type) {
        Arithmetic arithmetic = Arithmetic.of(type);
        long nan = ((Arithmetic.Floats) arithmetic).encode(Double.NaN);
        long one = arithmetic.ofInteger(1);

        assertThat(arithmetic.isNaN(reduce(type, Reduction.SUM, one, nan))).isTrue();
        assertThat(arithmetic.isNaN(reduce(type, Reduction.PROD, nan, one))).isTrue();
        assertThat(arithmetic.isNaN(reduce(type, Reduction.MIN, nan, nan))).isTrue();
        assertThat(arithmetic.same(nan, nan ^ 1L << (8 * arithmetic.widthBytes() - 1))).isTrue();
    }

    @Test
    void bfloat16SumsDependOnTheOrder() {
        Arithmetic bf16 = Arithmetic.of(DataType.BFLOAT16);
        long[] inputs = {0x4380, 0x3f80, 0x3f80, 0x3f80};
        long[] none = new long[4];

        assertThat(bf16.reduce(Reduction.SUM, inputs, none, new int[] {0, 1, 2, 3}))
                .isEqualTo(0x4380);
        assertThat(bf16.reduce(Reduction.SUM, inputs, none, new int[] {1, 2, 3, 0}))
                .isEqualTo(0x4382);
        assertThat(bf16.add(bf16.add(inputs[0], inputs[1]), bf16.add(inputs[2], inputs[3])))
                .isEqualTo(0x4381);
    }
}
