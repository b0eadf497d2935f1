package org.nccl4j.collectives;

/**
 * A reduction. Values are those of {@code docs/semantics.md}: integers wrap, float {@code
 * min}/{@code max} drop NaN, float {@code avg} scales each input by 1/n before the sum, integer
 * {@code avg} divides the wrapped sum truncating toward zero.
 *
 * <p>Thread safety: immutable.
 */
public sealed interface ReduceOp {
    /** Sum. */
    ReduceOp SUM = Predefined.SUM;

    /** Product. */
    ReduceOp PROD = Predefined.PROD;

    /** Maximum; NaN only if every input is NaN. */
    ReduceOp MAX = Predefined.MAX;

    /** Minimum; NaN only if every input is NaN. */
    ReduceOp MIN = Predefined.MIN;

    /** Mean over the ranks. */
    ReduceOp AVG = Predefined.AVG;

    /** The built-in reductions, in the order of NCCL's {@code ncclRedOp_t}. */
    enum Predefined implements ReduceOp {
        /** See {@link ReduceOp#SUM}. */
        SUM,
        /** See {@link ReduceOp#PROD}. */
        PROD,
        /** See {@link ReduceOp#MAX}. */
        MAX,
        /** See {@link ReduceOp#MIN}. */
        MIN,
        /** See {@link ReduceOp#AVG}. */
        AVG
    }

    /**
     * Each rank's input times that rank's own scalar, then the sum. Ranks may give different
     * scalars; all must give the same type, which must be the buffers' type.
     *
     * @param type the type of scalar and buffers
     * @param scalarBits the scalar as stored in {@code type}, in the low bits
     */
    record PreMulSum(DataType type, long scalarBits) implements ReduceOp {
        /** Refuses a missing type and bits beyond its size. */
        public PreMulSum {
            requireType(type);
            if (type.sizeBytes() < 8 && scalarBits >>> 8 * type.sizeBytes() != 0) {
                throw new InvalidArgumentException(
                        "0x"
                                + Long.toHexString(scalarBits)
                                + " does not fit "
                                + type
                                + ", whose scalar has "
                                + 8 * type.sizeBytes()
                                + " bits");
            }
        }

        /**
         * The scalar as a number.
         *
         * @return its value
         */
        public double scalar() {
            return type.valueOf(scalarBits);
        }

        @Override
        public String toString() {
            return "preMulSum(" + type + ", " + scalar() + ")";
        }
    }

    /**
     * Pre-multiplied sum with a scalar rounded to {@code type}.
     *
     * @param type the type of scalar and buffers
     * @param scalar this rank's factor
     * @return the reduction
     * @throws InvalidArgumentException if an integer type cannot hold the scalar
     */
    static ReduceOp preMulSum(DataType type, double scalar) {
        return new PreMulSum(requireType(type), type.bitsOf(scalar));
    }

    /**
     * Pre-multiplied sum with an integer scalar.
     *
     * @param type the type of scalar and buffers
     * @param scalar this rank's factor
     * @return the reduction
     * @throws InvalidArgumentException if an integer type cannot hold the scalar
     */
    static ReduceOp preMulSum(DataType type, long scalar) {
        return new PreMulSum(requireType(type), type.bitsOf(scalar));
    }

    private static DataType requireType(DataType type) {
        if (type == null) {
            throw new InvalidArgumentException("preMulSum needs the type of its scalar, got null");
        }
        return type;
    }
}
