package org.nccl4j.bench;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Numbers as the C library reads and prints them. The command line, the table and the JSON file are
 * read by tools that were written against C's {@code strtol}, {@code strtod} and {@code printf};
 * {@link java.util.Formatter} rounds the shortest decimal half up and never strips zeros, so it
 * cannot be used. Nothing here depends on a locale.
 */
final class CNumber {

    private static final String BLANKS = "[ \\t\\n\\x0B\\f\\r]*";

    private static final Pattern FLOATING =
            Pattern.compile(
                    BLANKS
                            + "([+-]?)(?:0[xX]([0-9a-fA-F]+\\.?[0-9a-fA-F]*|\\.[0-9a-fA-F]+)([pP][+-]?[0-9]+)?"
                            + "|((?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?))");

    private static final Pattern INTEGER =
            Pattern.compile(BLANKS + "([+-]?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))");

    private static final Pattern SIZE_SUFFIX = Pattern.compile(BLANKS + "(.?).*", Pattern.DOTALL);

    /** A number at the start of a text and the index of the first character behind it. */
    private record Prefix(double value, int end) {}

    private CNumber() {}

    /**
     * C's {@code strtol(text, NULL, 0)}: leading blanks, {@code 0x} hexadecimal, leading {@code 0}
     * octal; what follows the number is ignored; 0 where there is none; saturates at 64 bits.
     */
    static long parseInteger(String text) {
        Matcher matcher = INTEGER.matcher(text);
        if (!matcher.lookingAt()) {
            return 0;
        }
        int radix = matcher.group(2) != null ? 16 : matcher.group(3) != null ? 8 : 10;
        String digits =
                switch (radix) {
                    case 16 -> matcher.group(2);
                    case 8 -> matcher.group(3);
                    default -> matcher.group(4);
                };
        boolean negative = matcher.group(1).equals("-");
        try {
            return Long.parseLong((negative ? "-" : "") + digits, radix);
        } catch (NumberFormatException tooBig) {
            return negative ? Long.MIN_VALUE : Long.MAX_VALUE;
        }
    }

    /** True if {@link #parseInteger} ignores nothing of a text. */
    static boolean isInteger(String text) {
        return INTEGER.matcher(text).matches();
    }

    /** {@link #parseInteger} for a C {@code int}; empty where the value does not fit in one. */
    static OptionalInt parseInt(String text) {
        long value = parseInteger(text);
        return value == (int) value ? OptionalInt.of((int) value) : OptionalInt.empty();
    }

    /** C's {@code atof}: the number at the start of the text, 0 where there is none. */
    static double parseLeadingDouble(String text) {
        Prefix prefix = floating(text);
        return prefix == null ? 0 : prefix.value;
    }

    /** The whole text as a C floating-point number; empty if anything else is in it. */
    static OptionalDouble parseWholeDouble(String text) {
        Prefix prefix = floating(text);
        return prefix == null || prefix.end != text.length()
                ? OptionalDouble.empty()
                : OptionalDouble.of(prefix.value);
    }

    /**
     * A size of the options -b, -e and -i: a floating-point number, blanks, and one of the letters
     * K M G (either case, powers of 1024). What follows the letter is ignored ({@code 10KB} is 10
     * KiB); the product is truncated.
     *
     * @return the bytes, or -1 if the text is not a size: no number, a negative one, or another
     *     letter; {@link Long#MAX_VALUE}, which no smaller size comes to, from 2^63 bytes on
     */
    static long parseSizeBytes(String text) {
        Prefix prefix = floating(text);
        if (prefix == null) {
            return -1;
        }
        Matcher suffix = SIZE_SUFFIX.matcher(text.substring(prefix.end));
        if (!suffix.matches()) {
            return -1;
        }
        double unitBytes =
                switch (suffix.group(1)) {
                    case "" -> 1;
                    case "K", "k" -> 1024;
                    case "M", "m" -> 1024 * 1024;
                    case "G", "g" -> 1024 * 1024 * 1024;
                    default -> -1;
                };
        double sizeBytes = prefix.value * unitBytes;
        return unitBytes > 0 && sizeBytes >= 0 ? (long) sizeBytes : -1;
    }

    private static Prefix floating(String text) {
        Matcher matcher = FLOATING.matcher(text);
        if (!matcher.lookingAt()) {
            return null;
        }
        String sign = matcher.group(1);
        String number;
        if (matcher.group(2) == null) {
            number = sign + matcher.group(4);
        } else {
            // Java insists on the binary exponent that C lets one leave out.
            String exponent = matcher.group(3) == null ? "p0" : matcher.group(3);
            number = sign + "0x" + matcher.group(2) + exponent;
        }
        return new Prefix(Double.parseDouble(number), matcher.end());
    }

    /** C's {@code %.<decimals>f}. */
    static String fixed(double value, int decimals) {
        if (!Double.isFinite(value)) {
            return special(value);
        }
        String digits =
                new BigDecimal(Math.abs(value))
                        .setScale(decimals, RoundingMode.HALF_EVEN)
                        .toPlainString();
        return sign(value) + digits;
    }

    /** C's {@code %.<decimals>e}. */
    static String scientific(double value, int decimals) {
        if (!Double.isFinite(value)) {
            return special(value);
        }
        BigDecimal rounded = significant(value, decimals + 1);
        int exponent = exponentOf(rounded);
        String digits =
                rounded.movePointLeft(exponent)
                        .setScale(decimals, RoundingMode.UNNECESSARY)
                        .toPlainString();
        return sign(value) + digits + exponentText(exponent);
    }

    /** C's {@code %g}: six significant digits, trailing zeros removed. */
    static String general(double value) {
        if (!Double.isFinite(value)) {
            return special(value);
        }
        if (value == 0) {
            return sign(value) + "0";
        }
        BigDecimal rounded = significant(value, 6);
        int exponent = exponentOf(rounded);
        BigDecimal stripped = rounded.stripTrailingZeros();
        if (exponent >= -4 && exponent < 6) {
            return sign(value) + stripped.toPlainString();
        }
        return sign(value)
                + stripped.movePointLeft(exponent).stripTrailingZeros().toPlainString()
                + exponentText(exponent);
    }

    /**
     * A cell of the table: two decimals, and where they do not fit in the width one, none, then
     * scientific notation. Right-aligned; never shorter than the width.
     */
    static String shrinking(double value, int width) {
        for (int decimals = 2; decimals >= 0; decimals--) {
            String text = fixed(value, decimals);
            if (text.length() <= width) {
                return right(text, width);
            }
        }
        return right(scientific(value, width >= 7 ? 1 : 0), width);
    }

    /** The text right-aligned in a field of at least {@code width} characters. */
    static String right(String text, int width) {
        return " ".repeat(Math.max(0, width - text.length())) + text;
    }

    private static BigDecimal significant(double value, int digits) {
        return new BigDecimal(Math.abs(value))
                .round(new MathContext(digits, RoundingMode.HALF_EVEN));
    }

    private static int exponentOf(BigDecimal value) {
        return value.signum() == 0 ? 0 : value.precision() - value.scale() - 1;
    }

    private static String exponentText(int exponent) {
        String digits = Integer.toString(Math.abs(exponent));
        return (exponent < 0 ? "e-" : "e+") + (digits.length() < 2 ? "0" + digits : digits);
    }

    private static String sign(double value) {
        return Double.doubleToRawLongBits(value) < 0 ? "-" : "";
    }

    /** 0.0/0.0 has its sign bit set on x86, where these tables come from: C prints {@code -nan}. */
    private static String special(double value) {
        return Double.isNaN(value) ? "-nan" : value > 0 ? "inf" : "-inf";
    }
}
