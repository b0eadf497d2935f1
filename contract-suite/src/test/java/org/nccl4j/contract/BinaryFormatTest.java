package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;

import org.assertj.core.data.Offset;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.nccl4j.collectives.DataType;

/** The oracle's conversions against published bit patterns, and against themselves. */
final class BinaryFormatTest {

    private static Arithmetic.Floats format(DataType type) {
        return (Arithmetic.Floats) Arithmetic.of(type);
    }

    @ParameterizedTest
    @CsvSource({
        // IEEE 754 binary16
        "FLOAT16, 3c00, 1",
        "FLOAT16, 3c01, 1.0009765625",
        "FLOAT16, c000, -2",
        "FLOAT16, 7bff, 65504",
        "FLOAT16, 0400, 0.00006103515625",
        "FLOAT16, 0001, 5.9604644775390625e-8",
        "FLOAT16, 03ff, 6.09755516052246e-5",
        "FLOAT16, 3555, 0.333251953125",
        "FLOAT16, 7c00, Infinity",
        "FLOAT16, fc00, -Infinity",
        // the upper half of binary32
        "BFLOAT16, 3f80, 1",
        "BFLOAT16, c000, -2",
        "BFLOAT16, 4049, 3.140625",
        "BFLOAT16, 3eab, 0.333984375",
        "BFLOAT16, 7f7f, 3.3895313892515355e38",
        "BFLOAT16, 0080, 1.1754943508222875e-38",
        "BFLOAT16, 0001, 9.183549615799121e-41",
        "BFLOAT16, 7f80, Infinity",
        // OCP 8-bit floating point, E4M3
        "FLOAT8E4M3, 7e, 448",
        "FLOAT8E4M3, fe, -448",
        "FLOAT8E4M3, 38, 1",
        "FLOAT8E4M3, 01, 0.001953125",
        "FLOAT8E4M3, 07, 0.013671875",
        "FLOAT8E4M3, 08, 0.015625",
        // OCP 8-bit floating point, E5M2
        "FLOAT8E5M2, 7b, 57344",
        "FLOAT8E5M2, 3c, 1",
        "FLOAT8E5M2, 01, 0.0000152587890625",
        "FLOAT8E5M2, 03, 0.0000457763671875",
        "FLOAT8E5M2, 04, 0.00006103515625",
    })
    void publishedPatterns(DataType type, String hex, double value) {
        long bits = Long.parseLong(hex, 16);

        assertThat(format(type).decode(bits)).isCloseTo(value, within(value));
        assertThat(format(type).encode(value)).isEqualTo(expectedEncoding(type, bits, value));
    }

    private static Offset<Double> within(double value) {
        double ulp = Double.isInfinite(value) ? 0 : Math.abs(value) * 1e-14;
        return Offset.offset(ulp);
    }

    private static long expectedEncoding(DataType type, long bits, double value) {
        boolean saturates = type == DataType.FLOAT8E5M2 && Double.isInfinite(value);
        return saturates ? 0x7b : bits;
    }

    @ParameterizedTest
    @CsvSource({
        "FLOAT16, 7c01",
        "FLOAT16, fe00",
        "BFLOAT16, 7fc0",
        "FLOAT8E4M3, 7f",
        "FLOAT8E4M3, ff",
        "FLOAT8E5M2, 7d",
        "FLOAT8E5M2, 7f"
    })
    void publishedNaNs(DataType type, String hex) {
        assertThat(format(type).decode(Long.parseLong(hex, 16))).isNaN();
        assertThat(format(type).decode(format(type).encode(Double.NaN))).isNaN();
    }

    @ParameterizedTest
    @CsvSource({
        // ties go to the even neighbour, anything more goes up
        "FLOAT16, 2049, 6800",
        "FLOAT16, 2051, 6802",
        "FLOAT16, 65519.99, 7bff",
        "FLOAT16, 65520, 7c00",
        "FLOAT16, 2.9802322387695312e-8, 0000",
        "FLOAT16, 2.98023223876954e-8, 0001",
        "BFLOAT16, 257, 4380",
        "BFLOAT16, 259, 4382",
        "BFLOAT16, 3.14159265358979, 4049",
        "FLOAT8E4M3, 17, 58",
        "FLOAT8E4M3, 19, 5a",
        "FLOAT8E4M3, 464, 7e",
        "FLOAT8E4M3, 1e9, 7e",
        "FLOAT8E4M3, -Infinity, fe",
        "FLOAT8E4M3, 0.0009765625, 00",
        "FLOAT8E4M3, 0.0009765626, 01",
        "FLOAT8E5M2, 61440, 7b",
        "FLOAT8E5M2, Infinity, 7b",
        "FLOAT8E5M2, 9, 48",
        "FLOAT8E5M2, 11, 4a",
        "FLOAT8E5M2, -0.0, 80",
    })
    void roundsToNearestEven(DataType type, double value, String hex) {
        assertThat(format(type).encode(value)).isEqualTo(Long.parseLong(hex, 16));
    }

    @ParameterizedTest
    @EnumSource(names = {"FLOAT16", "BFLOAT16", "FLOAT8E4M3", "FLOAT8E5M2"})
    void everyFiniteValueIsItsOwnEncoding(DataType type) {
        int patterns = type == DataType.FLOAT16 || type == DataType.BFLOAT16 ? 1 << 16 : 256;
        int finite = 0;
        for (int bits = 0; bits < patterns; bits++) {
            double value = format(type).decode(bits);
            if (Double.isFinite(value)) {
                assertThat(format(type).encode(value)).isEqualTo(bits);
                finite++;
            }
        }
        assertThat(finite)
                .isEqualTo(
                        switch (type) {
                            case FLOAT16 -> 2 * 0x7c00;
                            case BFLOAT16 -> 2 * 0x7f80;
                            case FLOAT8E4M3 -> 254;
                            case FLOAT8E5M2 -> 248;
                            default -> throw new IllegalStateException(type.name());
                        });
    }

    @Test
    void float16AgreesWithTheJvm() {
        for (int bits = 0; bits < 1 << 16; bits++) {
            Double expected = (double) Float.float16ToFloat((short) bits);
            assertThat(format(DataType.FLOAT16).decode(bits)).isEqualTo(expected);
        }
        Mix random = new Mix(1);
        for (int i = 0; i < 200_000; i++) {
            float value = Float.intBitsToFloat((int) random.next());
            if (!Float.isNaN(value)) {
                assertThat((short) format(DataType.FLOAT16).encode(value))
                        .isEqualTo(Float.floatToFloat16(value));
            }
        }
    }
}
