package org.nccl4j.collectives;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestReporter;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.EnumSource.Mode;

/**
 * Conversions, against what the formats' publications say (IEEE 754 binary16 through the JDK's own
 * conversion, bfloat16 as the upper half of binary32, the OCP 8-bit formats) and against exact
 * arithmetic.
 */
final class DataTypeTest {
    private static final String NARROW_FLOATS = "FLOAT16|BFLOAT16|FLOAT8E4M3|FLOAT8E5M2";

    /** A finite value of a type and its bits. */
    private record Entry(double value, long bits) {}

    @Test
    void typesComeInNcclsOrder() {
        assertThat(DataType.values())
                .extracting(DataType::name)
                .containsExactly(
                        "INT8",
                        "UINT8",
                        "INT32",
                        "UINT32",
                        "INT64",
                        "UINT64",
                        "FLOAT16",
                        "FLOAT32",
                        "FLOAT64",
                        "BFLOAT16",
                        "FLOAT8E4M3",
                        "FLOAT8E5M2");
    }

    @ParameterizedTest
    @CsvSource({
        "INT8, 1, false, true, 0, 0",
        "UINT8, 1, false, false, 0, 0",
        "INT32, 4, false, true, 0, 0",
        "UINT32, 4, false, false, 0, 0",
        "INT64, 8, false, true, 0, 0",
        "UINT64, 8, false, false, 0, 0",
        "FLOAT16, 2, true, true, 5, 10",
        "FLOAT32, 4, true, true, 8, 23",
        "FLOAT64, 8, true, true, 11, 52",
        "BFLOAT16, 2, true, true, 8, 7",
        "FLOAT8E4M3, 1, true, true, 4, 3",
        "FLOAT8E5M2, 1, true, true, 5, 2",
    })
    void shape(
            DataType type,
            int sizeBytes,
            boolean isFloat,
            boolean isSigned,
            int exponentBits,
            int mantissaBits) {
        assertThat(type.sizeBytes()).isEqualTo(sizeBytes);
        assertThat(type.isFloat()).isEqualTo(isFloat);
        assertThat(type.isSigned()).isEqualTo(isSigned);
        assertThat(type.exponentBits()).isEqualTo(exponentBits);
        assertThat(type.mantissaBits()).isEqualTo(mantissaBits);
    }

    @ParameterizedTest
    @CsvSource({
        // IEEE 754 binary16
        "FLOAT16, 0x0001, 0x1p-24",
        "FLOAT16, 0x03ff, 0x1.ff8p-15",
        "FLOAT16, 0x0400, 0x1p-14",
        "FLOAT16, 0x3555, 0.333251953125",
        "FLOAT16, 0x3c00, 1",
        "FLOAT16, 0x3c01, 1.0009765625",
        "FLOAT16, 0xc000, -2",
        "FLOAT16, 0x7bff, 65504",
        "FLOAT16, 0x7c00, Infinity",
        "FLOAT16, 0xfc00, -Infinity",
        "FLOAT16, 0x7e00, NaN",
        // bfloat16
        "BFLOAT16, 0x0001, 0x1p-133",
        "BFLOAT16, 0x007f, 0x1.fcp-127",
        "BFLOAT16, 0x0080, 0x1p-126",
        "BFLOAT16, 0x3f80, 1",
        "BFLOAT16, 0x4049, 3.140625",
        "BFLOAT16, 0xc2f7, -123.5",
        "BFLOAT16, 0x7f7f, 0x1.fep127",
        "BFLOAT16, 0x7f80, Infinity",
        "BFLOAT16, 0xff80, -Infinity",
        "BFLOAT16, 0x7fc0, NaN",
        // OCP 8-bit floating point, E4M3: the table of its limits
        "FLOAT8E4M3, 0x01, 0x1p-9",
        "FLOAT8E4M3, 0x07, 0.013671875",
        "FLOAT8E4M3, 0x08, 0x1p-6",
        "FLOAT8E4M3, 0x38, 1",
        "FLOAT8E4M3, 0xb8, -1",
        "FLOAT8E4M3, 0x7e, 448",
        "FLOAT8E4M3, 0xfe, -448",
        "FLOAT8E4M3, 0x7f, NaN",
        "FLOAT8E4M3, 0xff, NaN",
        // and E5M2
        "FLOAT8E5M2, 0x01, 0x1p-16",
        "FLOAT8E5M2, 0x03, 0x1.8p-15",
        "FLOAT8E5M2, 0x04, 0x1p-14",
        "FLOAT8E5M2, 0x3c, 1",
        "FLOAT8E5M2, 0x7b, 57344",
        "FLOAT8E5M2, 0x7c, Infinity",
        "FLOAT8E5M2, 0xfc, -Infinity",
        "FLOAT8E5M2, 0x7d, NaN",
        "FLOAT8E5M2, 0x7f, NaN",
    })
    void publishedPatterns(DataType type, String bits, String value) {
        assertThat(type.valueOf(Long.decode(bits))).isEqualTo(Double.valueOf(value));
    }

    @Test
    void everyFloat16DecodesAsInTheJdk() {
        for (int bits = 0; bits < 1 << 16; bits++) {
            assertThat(DataType.FLOAT16.valueOf(bits))
                    .as("0x%04x", bits)
                    .isEqualTo(Double.valueOf(Float.float16ToFloat((short) bits)));
        }
    }

    @Test
    void everyBfloat16IsTheUpperHalfOfAFloat32() {
        for (int bits = 0; bits < 1 << 16; bits++) {
            assertThat(DataType.BFLOAT16.valueOf(bits))
                    .as("0x%04x", bits)
                    .isEqualTo(Double.valueOf(Float.intBitsToFloat(bits << 16)));
        }
    }

    @Test
    void everyFloat8E5m2IsTheUpperHalfOfAFloat16() {
        for (int bits = 0; bits < 1 << 8; bits++) {
            assertThat(DataType.FLOAT8E5M2.valueOf(bits))
                    .as("0x%02x", bits)
                    .isEqualTo(Double.valueOf(Float.float16ToFloat((short) (bits << 8))));
        }
    }

    @Test
    void everyFloat8E4m3IsSignTimesSignificandTimesPower() {
        for (int bits = 0; bits < 1 << 8; bits++) {
            int exponent = bits >> 3 & 15;
            int eighths = bits & 7;
            double magnitude =
                    exponent == 15 && eighths == 7
                            ? Double.NaN
                            : exponent == 0
                                    ? eighths / 8.0 * Math.pow(2, -6)
                                    : (1 + eighths / 8.0) * Math.pow(2, exponent - 7);
            assertThat(DataType.FLOAT8E4M3.valueOf(bits))
                    .as("0x%02x", bits)
                    .isEqualTo(Double.valueOf(bits < 128 ? magnitude : -magnitude));
        }
    }

    @ParameterizedTest
    @EnumSource(mode = Mode.MATCH_ANY, names = NARROW_FLOATS)
    void everyPatternComesBackFromItsValue(DataType type) {
        for (long bits = 0; bits < patterns(type); bits++) {
            double value = type.valueOf(bits);
            if (Double.isNaN(value)) {
                assertThat(type.valueOf(type.bitsOf(value))).as("0x%x", bits).isNaN();
            } else if (Double.isInfinite(value) && type.sizeBytes() == 1) {
                // The 8-bit floats saturate, from infinity too.
                assertThat(type.valueOf(type.bitsOf(value)))
                        .as("0x%x", bits)
                        .isEqualTo(Math.copySign(57344, value));
            } else {
                assertThat(type.bitsOf(value)).as("0x%x", bits).isEqualTo(bits);
            }
        }
    }

    @ParameterizedTest
    @EnumSource(mode = Mode.MATCH_ANY, names = NARROW_FLOATS)
    void betweenAnyTwoNeighboursTheNearerIsTakenAndTiesGoToEven(DataType type) {
        List<Entry> ascending = finiteFromZero(type);
        for (int i = 1; i < ascending.size(); i++) {
            Entry low = ascending.get(i - 1);
            Entry high = ascending.get(i);
            // Exact: a double has bits to spare for the middle of two narrow values.
            double middle = (low.value + high.value) / 2;
            long even = (low.bits & 1) == 0 ? low.bits : high.bits;
            assertRounds(type, middle, even);
            assertRounds(type, Math.nextDown(middle), low.bits);
            assertRounds(type, Math.nextUp(middle), high.bits);
        }
    }

    @ParameterizedTest
    @EnumSource(mode = Mode.MATCH_ANY, names = NARROW_FLOATS)
    void theDoubleIsNotRoundedToFloat32OnTheWay(DataType type) {
        double next = type.valueOf(type.bitsOf(1.0) + 1);
        double justAboveTheMiddle = Math.nextUp((1.0 + next) / 2);

        assertThat((double) (float) justAboveTheMiddle).isEqualTo((1.0 + next) / 2);
        assertThat(type.valueOf(type.bitsOf(justAboveTheMiddle))).isEqualTo(next);
    }

    @ParameterizedTest
    @CsvSource({
        "FLOAT16, 65519.99999999999, 65504",
        "FLOAT16, 65520, Infinity",
        "FLOAT16, 1e300, Infinity",
        "FLOAT16, -65520, -Infinity",
        "FLOAT16, Infinity, Infinity",
        "BFLOAT16, 0x1.feffffffffff8p127, 0x1.fep127",
        "BFLOAT16, 0x1.ffp127, Infinity",
        "BFLOAT16, -1e300, -Infinity",
        "BFLOAT16, -Infinity, -Infinity",
        "FLOAT32, 0x1.fffffefffffffp127, 0x1.fffffep127",
        "FLOAT32, 0x1.ffffffp127, Infinity",
        "FLOAT8E4M3, 449, 448",
        "FLOAT8E4M3, 464, 448",
        "FLOAT8E4M3, 480, 448",
        "FLOAT8E4M3, 1e300, 448",
        "FLOAT8E4M3, Infinity, 448",
        "FLOAT8E4M3, -1e300, -448",
        "FLOAT8E4M3, -Infinity, -448",
        "FLOAT8E5M2, 61439, 57344",
        "FLOAT8E5M2, 61440, 57344",
        "FLOAT8E5M2, 1e300, 57344",
        "FLOAT8E5M2, Infinity, 57344",
        "FLOAT8E5M2, -Infinity, -57344",
        "FLOAT8E4M3, NaN, NaN",
        "FLOAT8E5M2, NaN, NaN",
        "FLOAT16, NaN, NaN",
        "BFLOAT16, NaN, NaN",
        "FLOAT32, NaN, NaN",
        "FLOAT64, NaN, NaN",
    })
    void beyondTheLargestValue(DataType type, double value, Double stored) {
        assertThat(type.valueOf(type.bitsOf(value))).isEqualTo(stored);
    }

    @ParameterizedTest
    @CsvSource({
        // Half of the least value is a tie and goes to zero, more does not.
        "FLOAT16, 0x1p-25, 0x1p-24",
        "BFLOAT16, 0x1p-134, 0x1p-133",
        "FLOAT8E4M3, 0x1p-10, 0x1p-9",
        "FLOAT8E5M2, 0x1p-17, 0x1p-16",
    })
    void belowTheLeastValue(DataType type, double half, double least) {
        assertRounds(type, half, 0);
        assertRounds(type, Math.nextUp(half), type.bitsOf(least));
        assertRounds(type, Double.MIN_VALUE, 0);
        assertRounds(type, Double.MIN_NORMAL, 0);
        assertThat(type.bitsOf(0.0)).isZero();
        assertThat(type.bitsOf(-0.0)).isEqualTo(patterns(type) / 2);
    }

    @ParameterizedTest
    @EnumSource(mode = Mode.MATCH_ANY, names = NARROW_FLOATS + "|FLOAT32|FLOAT64")
    void aLongIsRoundedOnce(DataType type, TestReporter reporter) {
        SplittableRandom random = seeded(reporter);
        long[] edges = {0, 1, -1, 448, 449, 464, 57344, 65504, 65519, 65520, 65536};
        for (long value : edges) {
            assertNearest(type, value);
            assertNearest(type, -value);
        }
        assertNearest(type, Long.MAX_VALUE);
        assertNearest(type, Long.MIN_VALUE);
        for (int i = 0; i < 20_000; i++) {
            assertNearest(type, random.nextLong() >> random.nextInt(64));
            // Next to a tie, where a rounding to double on the way would change the outcome.
            int exponent = random.nextInt(type.mantissaBits() + 2, 63);
            long middle = 1L << exponent | 1L << exponent - type.mantissaBits() - 1;
            if (type.mantissaBits() < 52) {
                assertNearest(type, middle + random.nextInt(-1, 2));
            }
        }
    }

    @Test
    void aLongNextToATieOfBfloat16() {
        // A double cannot hold the last bit, and without it this is a tie that goes down.
        long value = (1L << 60) + (1L << 52) + 1;

        assertThat((double) value).isEqualTo(0x1p60 + 0x1p52);
        assertThat(DataType.BFLOAT16.valueOf(DataType.BFLOAT16.bitsOf(value)))
                .isEqualTo(0x1p60 + 0x1p53);
    }

    @Test
    void every8BitIntegerKeepsItsValue() {
        for (int bits = 0; bits < 256; bits++) {
            assertThat(DataType.INT8.valueOf(bits)).isEqualTo((byte) bits);
            assertThat(DataType.INT8.bitsOf((long) (byte) bits)).isEqualTo(bits);
            assertThat(DataType.INT8.bitsOf((double) (byte) bits)).isEqualTo(bits);
            assertThat(DataType.UINT8.valueOf(bits)).isEqualTo(bits);
            assertThat(DataType.UINT8.bitsOf((long) bits)).isEqualTo(bits);
            assertThat(DataType.UINT8.bitsOf((double) bits)).isEqualTo(bits);
        }
    }

    @ParameterizedTest
    @CsvSource({
        "INT8, -128, 0x80",
        "INT8, 127, 0x7f",
        "UINT8, 255, 0xff",
        "INT32, -2147483648, 0x80000000",
        "INT32, -1, 0xffffffff",
        "UINT32, 4294967295, 0xffffffff",
        "INT64, -1, -1",
        "INT64, 9223372036854775807, 0x7fffffffffffffff",
        "UINT64, -1, -1",
    })
    void integersTakeLongsExactly(DataType type, long value, String bits) {
        assertThat(type.bitsOf(value)).isEqualTo(Long.decode(bits));
    }

    @ParameterizedTest
    @CsvSource({
        "INT8, 127.9, 127",
        "INT8, -128.9, -128",
        "UINT8, 255.9, 255",
        "UINT8, -0.9, 0",
        "INT32, 2147483647.9, 2147483647",
        "UINT32, 4294967295.5, 4294967295",
        "INT64, -9223372036854775808, -9223372036854775808",
        "UINT64, 18446744073709549568, 18446744073709549568",
        "UINT64, 9223372036854775808, 9223372036854775808",
    })
    void integersTruncateDoublesTowardZero(DataType type, double value, BigDecimal stored) {
        assertThat(new BigDecimal(type.valueOf(type.bitsOf(value)))).isEqualByComparingTo(stored);
    }

    @ParameterizedTest
    @CsvSource({
        "INT8, 128",
        "INT8, -129",
        "UINT8, 256",
        "UINT8, -1",
        "INT32, 2147483648",
        "UINT32, -1",
        "UINT32, 4294967296",
    })
    void integersRefuseWhatTheyCannotHold(DataType type, long value) {
        assertThatThrownBy(() -> type.bitsOf(value))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(value + " is not a value of " + type);
        assertThatThrownBy(() -> type.bitsOf((double) value))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage((double) value + " is not a value of " + type);
    }

    @ParameterizedTest
    @EnumSource(
            mode = Mode.MATCH_ANY,
            names = {"U?INT.*"})
    void integersRefuseNaNAndInfinity(DataType type) {
        for (double value : new double[] {Double.NaN, Double.POSITIVE_INFINITY, -0x1p64, 0x1p64}) {
            assertThatThrownBy(() -> type.bitsOf(value))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessage(value + " is not a value of " + type);
        }
    }

    @ParameterizedTest
    @CsvSource({
        "-1, 18446744073709551616", // 2^64-1 is nearest to 2^64
        "-1024, 18446744073709551616", // a tie, to even
        "-1025, 18446744073709549568",
        "9223372036854775807, 9223372036854775808",
        "-9223372036854774784, 9223372036854775808", // 2^63 + 1024, a tie, to even
        "-9223372036854774783, 9223372036854777856", // one more is none
    })
    void uint64BeyondADoublesPrecisionIsRoundedToTheNearest(long bits, BigDecimal value) {
        assertThat(new BigDecimal(DataType.UINT64.valueOf(bits))).isEqualByComparingTo(value);
    }

    @ParameterizedTest
    @EnumSource
    void bitsAboveTheElementAreIgnored(DataType type) {
        long bits = type.bitsOf(42.0);

        // The 8-bit floats have no 42.
        assertThat(type.valueOf(bits)).isEqualTo(type.name().startsWith("FLOAT8") ? 40 : 42);
        if (type.sizeBytes() < 8) {
            assertThat(bits >>> 8 * type.sizeBytes()).isZero();
            assertThat(type.valueOf(bits | -1L << 8 * type.sizeBytes()))
                    .isEqualTo(type.valueOf(bits));
        }
    }

    @Test
    void bytesOfACount() {
        assertThat(DataType.FLOAT16.bytes(3)).isEqualTo(6);
        assertThat(DataType.FLOAT64.bytes(Long.MAX_VALUE / 8)).isEqualTo(Long.MAX_VALUE - 7);
        assertThatThrownBy(() -> DataType.FLOAT64.bytes(Long.MAX_VALUE / 8 + 1))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        "1152921504606846976 elements of FLOAT64 exceed 2^63-1 bytes; check the"
                                + " count");
        assertThatThrownBy(() -> DataType.INT8.bytes(-1))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("a count of -1 elements must be at least 0");
    }

    private static void assertRounds(DataType type, double value, long bits) {
        assertThat(type.bitsOf(value)).as("%s of %a", type, value).isEqualTo(bits);
        assertThat(type.bitsOf(-value))
                .as("%s of %a", type, -value)
                .isEqualTo(bits | patterns(type) / 2);
    }

    /** No other value of the type may be nearer, and of two equally near the even one is taken. */
    private static void assertNearest(DataType type, long value) {
        BigDecimal exact = BigDecimal.valueOf(value);
        long bits = type.bitsOf(value);
        double stored = type.valueOf(bits);
        String what = type + " of " + value + " gives " + stored;
        if (Double.isInfinite(stored)) {
            // Only float16 is so short; its last tie is half a step above 65504.
            assertThat(type).isEqualTo(DataType.FLOAT16);
            assertThat(exact.abs()).as(what).isGreaterThanOrEqualTo(BigDecimal.valueOf(65520));
            return;
        }
        BigDecimal distance = exact.subtract(new BigDecimal(stored)).abs();
        for (long neighbour : new long[] {bits - 1, bits + 1}) {
            double other = type.valueOf(neighbour);
            if (bits << 64 - 8 * type.sizeBytes() << 1 == 0 || !Double.isFinite(other)) {
                continue;
            }
            BigDecimal otherDistance = exact.subtract(new BigDecimal(other)).abs();
            int order = distance.compareTo(otherDistance);
            assertThat(order < 0 || (order == 0 && (bits & 1) == 0)).as(what).isTrue();
        }
    }

    private static List<Entry> finiteFromZero(DataType type) {
        List<Entry> entries = new ArrayList<>();
        for (long bits = 0; Double.isFinite(type.valueOf(bits)); bits++) {
            entries.add(new Entry(type.valueOf(bits), bits));
        }
        assertThat(IntStream.range(1, entries.size()))
                .allMatch(i -> entries.get(i - 1).value < entries.get(i).value);
        return entries;
    }

    private static long patterns(DataType type) {
        return 1L << 8 * type.sizeBytes();
    }

    private static SplittableRandom seeded(TestReporter reporter) {
        long seed = Long.getLong("nccl4j.test.seed", System.nanoTime());
        reporter.publishEntry("nccl4j.test.seed", Long.toString(seed));
        return new SplittableRandom(seed);
    }
}
