package org.nccl4j.collectives;

/**
 * Element types, in the order of NCCL's {@code ncclDataType_t}. Elements are stored in native byte
 * order.
 *
 * <p>Thread safety: immutable.
 */
public enum DataType {
    /** Signed 8-bit integer. */
    INT8(1, Kind.SIGNED, 0, 0),
    /** Unsigned 8-bit integer. */
    UINT8(1, Kind.UNSIGNED, 0, 0),
    /** Signed 32-bit integer. */
    INT32(4, Kind.SIGNED, 0, 0),
    /** Unsigned 32-bit integer. */
    UINT32(4, Kind.UNSIGNED, 0, 0),
    /** Signed 64-bit integer. */
    INT64(8, Kind.SIGNED, 0, 0),
    /** Unsigned 64-bit integer. */
    UINT64(8, Kind.UNSIGNED, 0, 0),
    /** IEEE 754 binary16. */
    FLOAT16(2, Kind.FLOAT, 5, 10),
    /** IEEE 754 binary32. */
    FLOAT32(4, Kind.FLOAT, 8, 23),
    /** IEEE 754 binary64. */
    FLOAT64(8, Kind.FLOAT, 11, 52),
    /** Brain float: binary32 cut to 16 bits. */
    BFLOAT16(2, Kind.FLOAT, 8, 7),
    /**
     * OCP 8-bit float, 4 exponent and 3 mantissa bits: no infinity, one NaN per sign, largest value
     * 448.
     */
    FLOAT8E4M3(1, Kind.FLOAT, 4, 3),
    /**
     * OCP 8-bit float, 5 exponent and 2 mantissa bits: infinities and NaNs as in IEEE 754, largest
     * finite value 57344.
     */
    FLOAT8E5M2(1, Kind.FLOAT, 5, 2);

    private enum Kind {
        SIGNED,
        UNSIGNED,
        FLOAT
    }

    private final int sizeBytes;
    private final Kind kind;
    private final int exponentBits;
    private final int mantissaBits;

    DataType(int sizeBytes, Kind kind, int exponentBits, int mantissaBits) {
        this.sizeBytes = sizeBytes;
        this.kind = kind;
        this.exponentBits = exponentBits;
        this.mantissaBits = mantissaBits;
    }

    /**
     * The size of one element.
     *
     * @return 1, 2, 4 or 8
     */
    public int sizeBytes() {
        return sizeBytes;
    }

    /**
     * Whether this is a floating-point type.
     *
     * @return true for the six float types
     */
    public boolean isFloat() {
        return kind == Kind.FLOAT;
    }

    /**
     * Whether integer division, comparison and conversion treat this type as signed.
     *
     * @return true for signed integers and floats
     */
    public boolean isSigned() {
        return kind != Kind.UNSIGNED;
    }

    /**
     * Exponent bits of a float type.
     *
     * @return the number of bits, 0 for integers
     */
    public int exponentBits() {
        return exponentBits;
    }

    /**
     * Stored mantissa bits of a float type.
     *
     * @return the number of bits, 0 for integers
     */
    public int mantissaBits() {
        return mantissaBits;
    }

    /**
     * The bytes that {@code countElements} elements take.
     *
     * @param countElements a number of elements, at least 0
     * @return the size in bytes
     * @throws InvalidArgumentException if the count is negative or the size does not fit a {@code
     *     long}
     */
    public long bytes(long countElements) {
        if (countElements < 0) {
            throw new InvalidArgumentException(
                    "a count of " + countElements + " elements must be at least 0");
        }
        if (countElements > Long.MAX_VALUE / sizeBytes) {
            throw new InvalidArgumentException(
                    countElements
                            + " elements of "
                            + this
                            + " exceed 2^63-1 bytes; check the count");
        }
        return countElements * sizeBytes;
    }

    /**
     * The stored bits of the value nearest to {@code value}: round to nearest, ties to even,
     * rounded once. float16, bfloat16, float32 overflow to infinity; the 8-bit floats saturate at
     * 448 and 57344, from infinity too; NaN stays NaN. Integers take the value truncated toward
     * zero, which must be in range.
     *
     * @param value any number
     * @return the bits in the low {@code 8 * sizeBytes()} bits, the rest 0
     * @throws InvalidArgumentException if this is an integer type and the value is NaN or out of
     *     range
     */
    public long bitsOf(double value) {
        if (isFloat()) {
            return FloatFormat.encode(this, value);
        }
        double truncated = value < 0 ? Math.ceil(value) : Math.floor(value);
        double low = isSigned() ? -Math.scalb(1.0, 8 * sizeBytes - 1) : 0;
        double high = Math.scalb(1.0, isSigned() ? 8 * sizeBytes - 1 : 8 * sizeBytes);
        if (!(truncated >= low && truncated < high)) {
            throw new InvalidArgumentException(value + " is not a value of " + this);
        }
        long bits =
                truncated >= 0x1p63
                        ? (long) (truncated - 0x1p63) ^ Long.MIN_VALUE
                        : (long) truncated;
        return bits & mask();
    }

    /**
     * The stored bits of an integer. Integer types take it exactly; float types take the nearest
     * value, ties to even, rounded once.
     *
     * @param value the number; for {@link #UINT64} its 64 bits are taken as they are
     * @return the bits in the low {@code 8 * sizeBytes()} bits, the rest 0
     * @throws InvalidArgumentException if this is an integer type that cannot hold the value
     */
    public long bitsOf(long value) {
        if (this == FLOAT64) {
            return Double.doubleToRawLongBits((double) value);
        }
        if (this == FLOAT32) {
            return Float.floatToRawIntBits((float) value) & mask();
        }
        if (isFloat()) {
            // Rounded to odd at 53 bits, so that the rounding to the narrow type is the only one
            // that counts.
            long magnitude = Math.abs(value);
            int excess = Math.max(0, 11 - Long.numberOfLeadingZeros(magnitude));
            long cut = magnitude >>> excess << excess;
            double d = (double) (cut == magnitude ? cut : cut | 1L << excess);
            d = value < 0 ? -Math.abs(d) : d;
            return FloatFormat.encode(this, d);
        }
        boolean fits;
        if (sizeBytes == 8) {
            fits = true;
        } else if (isSigned()) {
            int shift = 64 - 8 * sizeBytes;
            fits = value << shift >> shift == value;
        } else {
            fits = (value & ~mask()) == 0;
        }
        if (!fits) {
            throw new InvalidArgumentException(value + " is not a value of " + this);
        }
        return value & mask();
    }

    /**
     * The value of stored bits. A {@code uint64} or {@code int64} beyond 2^53 is rounded to the
     * nearest double.
     *
     * @param bits the element's bits; bits above {@code 8 * sizeBytes()} are ignored
     * @return the number
     */
    public double valueOf(long bits) {
        if (isFloat()) {
            return FloatFormat.decode(this, bits & mask());
        }
        if (this == UINT64) {
            return bits >= 0 ? (double) bits : ((double) ((bits >>> 1) | (bits & 1))) * 2;
        }
        if (isSigned()) {
            int shift = 64 - 8 * sizeBytes;
            return (double) (bits << shift >> shift);
        }
        return (double) (bits & mask());
    }

    private long mask() {
        return sizeBytes == 8 ? -1L : (1L << (8 * sizeBytes)) - 1;
    }
}
