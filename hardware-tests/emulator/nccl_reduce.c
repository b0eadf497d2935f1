#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-trapping-math") /* the loops below are written to be vectorised */
#endif

#include "nccl_reduce.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

size_t nccl_type_size(ncclDataType_t type) {
    static const size_t sizes[12] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return sizes[type];
}

static bool is_integer(ncclDataType_t type) {
    return type <= ncclUint64;
}

nccl_reduction nccl_reduction_of(ncclDataType_t type, int op, int premultiplied, int ranks) {
    nccl_reduction reduction = {type, op, 0, 1};
    if (premultiplied) {
        reduction.fold = ncclSum;
        reduction.scaled = 1;
    } else if (op == ncclAvg) {
        /* Integers are summed, then divided; floats are scaled by 1/n, then summed, so that they do not overflow. */
        reduction.fold = ncclSum;
        reduction.scaled = !is_integer(type);
        reduction.divisor = is_integer(type) ? ranks : 1;
    }
    return reduction;
}

/* ---- formats ------------------------------------------------------------------------------------ */

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float half_to_float(uint16_t half) {
    uint32_t bits = (uint32_t)half << 13; /* the sign lands in bit 28, the exponent below */
    uint32_t magnitude = bits & 0x0fffe000u;
    uint32_t finite = bits_of(float_of(magnitude) * 0x1p112f); /* subnormals come out right too */
    uint32_t special = 0x7f800000u | magnitude;
    return float_of((bits & 0x10000000u) << 3 | (magnitude >= 0x0f800000u ? special : finite));
}

/* To nearest, ties to even. */
static inline uint16_t float_to_half(float value) {
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000u) >> 13;
    uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00 : half;
    half = magnitude > 0x7f800000u ? 0x7e00 : half;
    return (uint16_t)(sign | half);
}

static inline float bfloat_to_float(uint16_t bfloat) {
    return float_of((uint32_t)bfloat << 16);
}

static inline uint16_t float_to_bfloat(float value) {
    uint32_t bits = bits_of(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000u ? (bits >> 16 | 0x40) : rounded);
}

/* NaN only if both are; -0 is less than +0. */
static inline float float_min(float x, float y) {
    float least = x < y ? x : y < x ? y : float_of(bits_of(x) | bits_of(y));
    return y != y ? x : x != x ? y : least;
}

static inline float float_max(float x, float y) {
    float most = x > y ? x : y > x ? y : float_of(bits_of(x) & bits_of(y));
    return y != y ? x : x != x ? y : most;
}

static inline double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double double_min(double x, double y) {
    double least = x < y ? x : y < x ? y : double_of(double_bits(x) | double_bits(y));
    return y != y ? x : x != x ? y : least;
}

static inline double double_max(double x, double y) {
    double most = x > y ? x : y > x ? y : double_of(double_bits(x) & double_bits(y));
    return y != y ? x : x != x ? y : most;
}

/* ---- 8-bit floats: arithmetic in float16, rounded to 8 bits, saturating ---------------------------- */

typedef struct {
    int exponent_bits, mantissa_bits;
    uint8_t largest; /* the bits of the largest finite value */
    float values[256];
    uint8_t rounded[65536]; /* of each float16 */
    uint8_t results[4][65536]; /* by fold, of x << 8 | y */
} float8;

static float8 formats[2];
static pthread_once_t formats_made = PTHREAD_ONCE_INIT;

static float float8_value(const float8 *format, uint8_t bits) {
    int magnitude = bits & 0x7f, m = format->mantissa_bits, bias = (1 << (format->exponent_bits - 1)) - 1;
    float value;
    if (magnitude > format->largest) {
        value = m == 2 && magnitude == format->largest + 1 ? INFINITY : NAN; /* e4m3 has no infinities */
    } else {
        int exponent = magnitude >> m, fraction = magnitude & ((1 << m) - 1);
        value = exponent == 0 ? ldexpf((float)fraction, 1 - bias - m)
                              : ldexpf((float)(fraction | 1 << m), exponent - bias - m);
    }
    return bits & 0x80 ? -value : value;
}

static uint8_t float8_nearest(const float8 *format, float value) {
    int m = format->mantissa_bits, bias = (1 << (format->exponent_bits - 1)) - 1;
    uint8_t sign = signbit(value) ? 0x80 : 0;
    if (isnan(value)) {
        return sign | (m == 3 ? 0x7f : 0x7e);
    }
    float magnitude = fabsf(value), largest = format->values[format->largest];
    if (magnitude >= largest) {
        return sign | format->largest;
    }
    int exponent = 1 - bias;
    if (magnitude >= ldexpf(1, 1 - bias)) {
        exponent = ilogbf(magnitude);
    }
    int units = (int)lrintf(ldexpf(magnitude, m - exponent)); /* ties to even: the default rounding */
    int bits = (exponent + bias - 1) * (1 << m) + units; /* a carry raises the exponent */
    return sign | (uint8_t)(bits > format->largest ? format->largest : bits);
}

static inline float folded(int fold, float x, float y) {
    return fold == ncclSum ? x + y : fold == ncclProd ? x * y : fold == ncclMax ? float_max(x, y) : float_min(x, y);
}

static void make_formats(void) {
    for (int f = 0; f < 2; f++) {
        float8 *format = &formats[f];
        format->exponent_bits = f == 0 ? 4 : 5;
        format->mantissa_bits = f == 0 ? 3 : 2;
        format->largest = f == 0 ? 0x7e : 0x7b;
        for (int bits = 0; bits < 256; bits++) {
            format->values[bits] = float8_value(format, (uint8_t)bits);
        }
        for (int half = 0; half < 65536; half++) {
            format->rounded[half] = float8_nearest(format, half_to_float((uint16_t)half));
        }
        for (int fold = 0; fold < 4; fold++) {
            for (int pair = 0; pair < 65536; pair++) {
                float result = folded(fold, format->values[pair >> 8], format->values[pair & 0xff]);
                format->results[fold][pair] = format->rounded[float_to_half(result)];
            }
        }
    }
}

static const float8 *float8_of(ncclDataType_t type) {
    pthread_once(&formats_made, make_formats);
    return &formats[type - ncclFloat8e4m3];
}

/* ---- factors ------------------------------------------------------------------------------------ */

uint64_t nccl_average_factor(ncclDataType_t type, int ranks) {
    switch (type) {
    case ncclFloat64:
        return double_bits(1.0 / ranks);
    case ncclFloat32:
        return bits_of(1.0f / (float)ranks);
    case ncclBfloat16:
        return float_to_bfloat(1.0f / (float)ranks);
    default:
        return float_to_half(1.0f / (float)ranks); /* float16; 8-bit floats keep it so */
    }
}

uint64_t nccl_scalar_factor(ncclDataType_t type, const void *scalar) {
    uint64_t factor = 0;
    memcpy(&factor, scalar, nccl_type_size(type)); /* little-endian, like every host of NCCL's */
    return type >= ncclFloat8e4m3 ? float_to_half(float8_of(type)->values[factor]) : factor;
}

/* ---- loops -------------------------------------------------------------------------------------- */

#define FOLDS(name, T, sum, prod, max, min)                                                                            \
    static void fold_##name(int fold, T *restrict out, const T *restrict in, size_t count) {                          \
        switch (fold) {                                                                                                \
        case ncclSum:                                                                                                  \
            for (size_t i = 0; i < count; i++) { T x = out[i], y = in[i]; out[i] = (T)(sum); }                         \
            break;                                                                                                     \
        case ncclProd:                                                                                                 \
            for (size_t i = 0; i < count; i++) { T x = out[i], y = in[i]; out[i] = (T)(prod); }                        \
            break;                                                                                                     \
        case ncclMax:                                                                                                  \
            for (size_t i = 0; i < count; i++) { T x = out[i], y = in[i]; out[i] = (T)(max); }                         \
            break;                                                                                                     \
        default:                                                                                                       \
            for (size_t i = 0; i < count; i++) { T x = out[i], y = in[i]; out[i] = (T)(min); }                         \
        }                                                                                                              \
    }

/* Integers wrap: computed without a sign, which C lets wrap. */
#define INTEGER_FOLDS(name, T, U) FOLDS(name, T, (U)x + (U)y, (U)x * (U)y, x > y ? x : y, x < y ? x : y)

INTEGER_FOLDS(int8, int8_t, uint32_t)
INTEGER_FOLDS(uint8, uint8_t, uint32_t)
INTEGER_FOLDS(int32, int32_t, uint32_t)
INTEGER_FOLDS(uint32, uint32_t, uint32_t)
INTEGER_FOLDS(int64, int64_t, uint64_t)
INTEGER_FOLDS(uint64, uint64_t, uint64_t)
FOLDS(float32, float, x + y, x * y, float_max(x, y), float_min(x, y))
FOLDS(float64, double, x + y, x * y, double_max(x, y), double_min(x, y))

#define NARROW(to, from, expression)                                                                                   \
    from(expression(to(x), to(y)))
#define ADD(x, y) (x) + (y)
#define MULTIPLY(x, y) (x) * (y)
FOLDS(float16, uint16_t, NARROW(half_to_float, float_to_half, ADD), NARROW(half_to_float, float_to_half, MULTIPLY),
      NARROW(half_to_float, float_to_half, float_max), NARROW(half_to_float, float_to_half, float_min))
FOLDS(bfloat16, uint16_t, NARROW(bfloat_to_float, float_to_bfloat, ADD),
      NARROW(bfloat_to_float, float_to_bfloat, MULTIPLY), NARROW(bfloat_to_float, float_to_bfloat, float_max),
      NARROW(bfloat_to_float, float_to_bfloat, float_min))

static void fold_float8(const uint8_t *results, uint8_t *restrict out, const uint8_t *restrict in, size_t count) {
    for (size_t i = 0; i < count; i++) {
        out[i] = results[(unsigned)out[i] << 8 | in[i]];
    }
}

static void fold(ncclDataType_t type, int fold, void *out, const void *in, size_t count) {
    switch (type) {
    case ncclInt8: fold_int8(fold, out, in, count); break;
    case ncclUint8: fold_uint8(fold, out, in, count); break;
    case ncclInt32: fold_int32(fold, out, in, count); break;
    case ncclUint32: fold_uint32(fold, out, in, count); break;
    case ncclInt64: fold_int64(fold, out, in, count); break;
    case ncclUint64: fold_uint64(fold, out, in, count); break;
    case ncclFloat16: fold_float16(fold, out, in, count); break;
    case ncclFloat32: fold_float32(fold, out, in, count); break;
    case ncclFloat64: fold_float64(fold, out, in, count); break;
    case ncclBfloat16: fold_bfloat16(fold, out, in, count); break;
    default: fold_float8(float8_of(type)->results[fold], out, in, count);
    }
}

#define SCALE(T, product)                                                                                              \
    {                                                                                                                  \
        T *restrict to = out;                                                                                          \
        const T *restrict from = in;                                                                                   \
        for (size_t i = 0; i < count; i++) { T x = from[i]; to[i] = (T)(product); }                                    \
    }                                                                                                                  \
    break

/* out[i] = in[i] times the factor, in the type. */
static void scale(ncclDataType_t type, void *out, const void *in, uint64_t factor, size_t count) {
    switch (type) {
    case ncclInt8:
    case ncclUint8: SCALE(uint8_t, (uint32_t)x * (uint32_t)factor);
    case ncclInt32:
    case ncclUint32: SCALE(uint32_t, x * (uint32_t)factor);
    case ncclInt64:
    case ncclUint64: SCALE(uint64_t, x * factor);
    case ncclFloat32: {
        float by = float_of((uint32_t)factor);
        SCALE(float, x * by);
    }
    case ncclFloat64: {
        double by = double_of(factor);
        SCALE(double, x * by);
    }
    case ncclFloat16: {
        float by = half_to_float((uint16_t)factor);
        SCALE(uint16_t, float_to_half(half_to_float(x) * by));
    }
    case ncclBfloat16: {
        float by = bfloat_to_float((uint16_t)factor);
        SCALE(uint16_t, float_to_bfloat(bfloat_to_float(x) * by));
    }
    default: {
        const float8 *format = float8_of(type);
        float by = half_to_float((uint16_t)factor);
        uint8_t multiples[256];
        for (int bits = 0; bits < 256; bits++) {
            multiples[bits] = format->rounded[float_to_half(format->values[bits] * by)];
        }
        SCALE(uint8_t, multiples[x]);
    }
    }
}

#define DIVIDE(T)                                                                                                      \
    {                                                                                                                  \
        T *values = out;                                                                                               \
        for (size_t i = 0; i < count; i++) { values[i] = (T)(values[i] / (T)divisor); }                                \
    }                                                                                                                  \
    break

/* An int8 average over more than 127 ranks divides by a number that int8 does not hold: in int, as C promotes. */
static void divide(ncclDataType_t type, void *out, int divisor, size_t count) {
    switch (type) {
    case ncclInt8: {
        int8_t *values = out;
        for (size_t i = 0; i < count; i++) {
            values[i] = (int8_t)(values[i] / divisor);
        }
        break;
    }
    case ncclUint8: {
        uint8_t *values = out;
        for (size_t i = 0; i < count; i++) {
            values[i] = (uint8_t)(values[i] / divisor);
        }
        break;
    }
    case ncclInt32: DIVIDE(int32_t);
    case ncclUint32: DIVIDE(uint32_t);
    case ncclInt64: DIVIDE(int64_t);
    default: DIVIDE(uint64_t);
    }
}

void nccl_reduce(const nccl_reduction *reduction, void *output, const void *const *inputs, const uint64_t *factors,
                 int ranks, size_t count) {
    /* Block by block, so that what is being combined stays in the cache. */
    enum { BLOCK_BYTES = 16384 };
    _Alignas(64) unsigned char scaled[BLOCK_BYTES];
    size_t size = nccl_type_size(reduction->type);
    size_t block = BLOCK_BYTES / size;
    for (size_t from = 0; from < count; from += block) {
        size_t length = count - from < block ? count - from : block;
        unsigned char *out = (unsigned char *)output + from * size;
        for (int rank = 0; rank < ranks; rank++) {
            const unsigned char *in = (const unsigned char *)inputs[rank] + from * size;
            if (rank == 0 && reduction->scaled) {
                scale(reduction->type, out, in, factors[rank], length);
            } else if (rank == 0) {
                memcpy(out, in, length * size);
            } else if (reduction->scaled) {
                scale(reduction->type, scaled, in, factors[rank], length);
                fold(reduction->type, reduction->fold, out, scaled, length);
            } else {
                fold(reduction->type, reduction->fold, out, in, length);
            }
        }
        if (reduction->divisor > 1) {
            divide(reduction->type, out, reduction->divisor, length);
        }
    }
}
