package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Locale;
import java.util.OptionalDouble;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Numbers are read and printed as C does, in every locale. */
final class CNumberTest {

    @ParameterizedTest
    @CsvSource({
        "8, 8",
        "1e3, 1000",
        "1e3K, 1024000",
        "1.5M, 1572864",
        ".5K, 512",
        "5.K, 5120",
        "0x10, 16",
        "0x10K, 16384",
        "0X1p4, 16",
        "0x.8K, 512",
        "' 12', 12",
        "'1 K', 1024",
        "'1 ', 1",
        "+7, 7",
        "10KB, 10240",
        "1MiB, 1048576",
        "1.9, 1",
        "0, 0",
        "-0, 0",
        "1g, 1073741824",
        "1m, 1048576",
        "8191.999G, 8796091948466",
        "1e18, 1000000000000000000",
        // Factors are powers of 1024, and what follows the letter is ignored.
        "1.5K, 1536",
        "1k, 1024",
        "1KB, 1024",
        "2G, 2147483648",
    })
    void sizes(String text, long sizeBytes) {
        assertThat(CNumber.parseSizeBytes(text)).isEqualTo(sizeBytes);
    }

    /** 2^63 - 1 is no double: the nearest is 2^63. */
    @ParameterizedTest
    @ValueSource(strings = {"9223372036854775807", "9223372036854775808", "8589934592G", "1e999"})
    void sizesWithoutEnd(String text) {
        assertThat(CNumber.parseSizeBytes(text)).isEqualTo(Long.MAX_VALUE);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "8b", "1T", "-5", "-4", "abc", "", " ", "K", "1e", "1e+", "0x", "inf", "nan", "1_0",
                "-0.5", "1f", "- 5", "--5"
            })
    void refusedSizes(String text) {
        assertThat(CNumber.parseSizeBytes(text)).isEqualTo(-1);
    }

    @ParameterizedTest
    @CsvSource({
        "20, 20",
        "010, 8",
        "08, 0",
        "0x10, 16",
        "0X1f, 31",
        "0x, 0",
        "0xg, 0",
        "1K, 1",
        "2.9, 2",
        "foo, 0",
        "'', 0",
        "-3, -3",
        "-0x10, -16",
        "-010, -8",
        "+5, 5",
        "'  7', 7",
        "- 7, 0",
        "9223372036854775807, 9223372036854775807",
        "99999999999999999999, 9223372036854775807",
        "-99999999999999999999, -9223372036854775808",
    })
    void integers(String text, long value) {
        assertThat(CNumber.parseInteger(text)).isEqualTo(value);
    }

    @Test
    void anIntegerBeyond32BitsIsNone() {
        assertThat(CNumber.parseInt("2147483647")).hasValue(Integer.MAX_VALUE);
        assertThat(CNumber.parseInt("2147483648")).isEmpty();
        assertThat(CNumber.parseInt("-2147483648")).hasValue(Integer.MIN_VALUE);
        assertThat(CNumber.parseInt("99999999999999999999")).isEmpty();
    }

    @Test
    void floatingPointPrefixAndWhole() {
        assertThat(CNumber.parseLeadingDouble("2.5GB/s")).isEqualTo(2.5);
        assertThat(CNumber.parseLeadingDouble("fast")).isZero();
        assertThat(CNumber.parseWholeDouble("0.25")).isEqualTo(OptionalDouble.of(0.25));
        assertThat(CNumber.parseWholeDouble("0.25x")).isEmpty();
        assertThat(CNumber.parseWholeDouble("")).isEmpty();
    }

    @ParameterizedTest
    @CsvSource({
        "0.004, '   0.00', '  0.00'",
        "999.994, ' 999.99', '999.99'",
        "999.996, '1000.00', '1000.0'",
        "1234.5, '1234.50', '1234.5'",
        "9999.994, '9999.99', ' 10000'",
        "9999.996, '10000.0', ' 10000'",
        "12345.67, '12345.7', ' 12346'",
        "99999.94, '99999.9', '100000'",
        "99999.96, ' 100000', '100000'",
        "999999.6, '1000000', ' 1e+06'",
        "1234567.8, '1234568', ' 1e+06'",
        "9999999.6, '1.0e+07', ' 1e+07'",
        "1.5e9, '1.5e+09', ' 2e+09'",
        "Infinity, '    inf', '   inf'",
        // Where a column's digits run out.
        "1e7, '1.0e+07', ' 1e+07'",
        "1e6, '1000000', ' 1e+06'",
    })
    void cellsShrinkTheirDecimals(double value, String width7, String width6) {
        assertThat(CNumber.shrinking(value, 7)).isEqualTo(width7);
        assertThat(CNumber.shrinking(value, 6)).isEqualTo(width6);
    }

    @ParameterizedTest
    @CsvSource({
        "0.125, 2, 0.12",
        "1.005, 2, 1.00",
        "9.995, 2, 9.99",
        "2.675, 2, 2.67",
        "79012.45, 1, 79012.4",
        "0.5, 0, 0",
        "1.5, 0, 2",
        "2.5, 0, 2",
        "0, 6, 0.000000",
        "33.748825, 6, 33.748825",
        "-0.001, 2, -0.00",
    })
    void roundsTheBinaryValueHalfToEven(double value, int decimals, String text) {
        assertThat(CNumber.fixed(value, decimals)).isEqualTo(text);
    }

    @ParameterizedTest
    @CsvSource({
        "0, 0",
        "1, 1",
        "999999, 999999",
        "1000000, 1e+06",
        "1234567, 1.23457e+06",
        "0.0378113, 0.0378113",
        "0.0001, 0.0001",
        "0.00001, 1e-05",
        "1.2345e-05, 1.2345e-05",
        "480.123, 480.123",
        "480.1234567, 480.123",
        "98.1553, 98.1553",
        "100, 100",
        "123456.5, 123456",
        "999999.5, 1e+06",
        "1e100, 1e+100",
        "-2.5, -2.5",
        "NaN, -nan",
        "Infinity, inf",
        "-Infinity, -inf",
    })
    void general(double value, String text) {
        assertThat(CNumber.general(value)).isEqualTo(text);
    }

    @Test
    void scientific() {
        assertThat(CNumber.scientific(1.5e9, 1)).isEqualTo("1.5e+09");
        assertThat(CNumber.scientific(9.96e9, 1)).isEqualTo("1.0e+10");
        assertThat(CNumber.scientific(0, 1)).isEqualTo("0.0e+00");
        assertThat(CNumber.scientific(1.25e-7, 1)).isEqualTo("1.2e-07");
    }

    @Test
    void noLocaleChangesANumber() {
        Locale before = Locale.getDefault();
        try {
            Locale.setDefault(Locale.forLanguageTag("ar-EG-u-nu-arab"));
            assertThat(CNumber.shrinking(1234.5, 7)).isEqualTo("1234.50");
            assertThat(CNumber.general(0.5)).isEqualTo("0.5");
        } finally {
            Locale.setDefault(before);
        }
    }
}
