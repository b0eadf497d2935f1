package org.nccl4j.cpu;

import java.util.Locale;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.nccl4j.collectives.DataType;

/**
 * A reduction as a C compiler gets it: one loop that reads each input once and writes each output
 * once, by the same rules for values.
 */
final class LoopInC {
    private static final String SOURCE =
            """
            #include <stdint.h>
            #include <string.h>
            typedef STORED T;
            static const uint8_t *results, *multiples;
            static inline float from_bfloat16(uint16_t x) {
                uint32_t bits = (uint32_t) x << 16;
                float f;
                memcpy(&f, &bits, 4);
                return f;
            }
            static inline uint16_t to_bfloat16(float f) {
                uint32_t bits;
                memcpy(&bits, &f, 4);
                uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
                return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded;
            }
            static inline T scale(T x) { return SCALED; }
            static inline T combine(T x, T y) { return COMBINED; }
            static __attribute__((noinline)) void loop(INPUTS, OUTPUTS, int64_t count) {
                for (int64_t i = 0; i < count; i++) {
                    T sum = scale(in0[i]);
                    STEPS
                    STORES
                }
            }
            void reduce(T *const *in, T *const *out, int64_t count, const uint8_t *by_pair,
                        const uint8_t *by_value) {
                results = by_pair;
                multiples = by_value;
                loop(FROM, TO, count);
            }
            """;

    private LoopInC() {}

    /**
     * A function {@code reduce} for pointers to as many inputs and outputs as there are ranks.
     *
     * @param reduction as {@link KernelBenchmark#reduction}
     */
    static String source(DataType type, String reduction, int ranks) {
        String quotient =
                "avg".equals(reduction) && !type.isFloat() ? "sum /= (T) " + ranks + ";" : "";
        return SOURCE.replace("STORED", stored(type))
                .replace("SCALED", scaled(type, reduction, ranks))
                .replace("COMBINED", combined(type, reduction))
                .replace("INPUTS", list(0, ranks, "const T *restrict in%d", ", "))
                .replace("OUTPUTS", list(0, ranks, "T *restrict out%d", ", "))
                .replace(
                        "STEPS",
                        list(1, ranks, "sum = combine(sum, scale(in%d[i]));", " ") + quotient)
                .replace("STORES", list(0, ranks, "out%d[i] = sum;", " "))
                .replace("FROM", list(0, ranks, "in[%d]", ", "))
                .replace("TO", list(0, ranks, "out[%d]", ", "));
    }

    private static String list(int first, int end, String each, String between) {
        return IntStream.range(first, end)
                .mapToObj(each::formatted)
                .collect(Collectors.joining(between));
    }

    private static String stored(DataType type) {
        return switch (type) {
            case FLOAT8E4M3, FLOAT8E5M2 -> "uint8_t";
            case BFLOAT16 -> "uint16_t";
            case FLOAT16 -> "_Float16";
            case FLOAT32 -> "float";
            case FLOAT64 -> "double";
            default -> type.name().toLowerCase(Locale.ROOT) + "_t";
        };
    }

    private static String scaled(DataType type, String reduction, int ranks) {
        boolean doubles = "mulsum".equals(reduction);
        if (!doubles && !("avg".equals(reduction) && type.isFloat())) {
            return "x";
        }
        return switch (type) {
            case FLOAT8E4M3, FLOAT8E5M2 -> "multiples[x]";
            case BFLOAT16 ->
                    "to_bfloat16(from_bfloat16(x) * %s)"
                            .formatted(doubles ? "2" : "1.0f / " + ranks);
            default -> "x * " + (doubles ? "2" : "((T) 1 / " + ranks + ")");
        };
    }

    private static String combined(DataType type, String reduction) {
        if (type.isFloat() && type.sizeBytes() == 1) {
            return "results[x << 8 | y]";
        }
        boolean converts = type == DataType.BFLOAT16;
        String x = converts ? "from_bfloat16(x)" : "x";
        String y = converts ? "from_bfloat16(y)" : "y";
        return switch (reduction) {
            case "min", "max" -> {
                String before = "min".equals(reduction) ? x + " < " + y : x + " > " + y;
                String sign = "__builtin_signbit((double) (%s))";
                String first = sign.formatted("min".equals(reduction) ? x : y);
                yield type.isFloat()
                        ? "%s != %s ? y : %s != %s ? x : %s || (%s == %s && %s) ? x : y"
                                .formatted(x, x, y, y, before, x, y, first)
                        : before + " ? x : y";
            }
            default -> {
                String result = x + ("prod".equals(reduction) ? " * " : " + ") + y;
                yield converts ? "to_bfloat16(" + result + ")" : result;
            }
        };
    }
}
