package org.nccl4j.cpu;

import java.math.BigInteger;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * The reductions on single elements as the value rules state them, with exact integers and doubles;
 * shares no code with the kernels.
 */
final class ScalarReduction {
    private ScalarReduction() {}

    /** x op y as one hop computes it; bits in, bits out. */
    static long hop(DataType type, ReduceOp op, long x, long y) {
        if (!type.isFloat()) {
            BigInteger a = integer(type, x);
            BigInteger b = integer(type, y);
            return wrap(
                    type,
                    switch (op) {
                        case ReduceOp.Predefined.PROD -> a.multiply(b);
                        case ReduceOp.Predefined.MIN -> a.min(b);
                        case ReduceOp.Predefined.MAX -> a.max(b);
                        default -> a.add(b);
                    });
        }
        double a = type.valueOf(x);
        double b = type.valueOf(y);
        return round(
                type,
                switch (op) {
                    case ReduceOp.Predefined.PROD -> a * b;
                    case ReduceOp.Predefined.MIN ->
                            Double.isNaN(a) ? b : Double.isNaN(b) ? a : Math.min(a, b);
                    case ReduceOp.Predefined.MAX ->
                            Double.isNaN(a) ? b : Double.isNaN(b) ? a : Math.max(a, b);
                    default -> a + b;
                });
    }

    /** A rank's own element before the first addition. */
    static long scale(DataType type, ReduceOp op, int ranks, long x) {
        if (op instanceof ReduceOp.PreMulSum scaled) {
            return type.isFloat()
                    ? round(type, type.valueOf(x) * scaled.scalar())
                    : wrap(type, integer(type, x).multiply(integer(type, scaled.scalarBits())));
        }
        if (ReduceOp.AVG.equals(op) && type.isFloat() && ranks > 1) {
            DataType arithmetic = type.sizeBytes() == 1 ? DataType.FLOAT16 : type;
            double inverse = arithmetic.valueOf(arithmetic.bitsOf(1.0 / ranks));
            return round(type, type.valueOf(x) * inverse);
        }
        return x;
    }

    /** The complete sum to the result. */
    static long complete(DataType type, ReduceOp op, int ranks, long x) {
        return ReduceOp.AVG.equals(op) && !type.isFloat()
                ? wrap(type, integer(type, x).divide(BigInteger.valueOf(ranks)))
                : x;
    }

    /**
     * x[owner] op (x[owner-1] op (... op x[owner+1])): the documented order of rings and chains.
     */
    static long result(DataType type, ReduceOp[] ops, long[] inputs, int owner) {
        int n = inputs.length;
        int first = (owner + 1) % n;
        long sum = scale(type, ops[first], n, inputs[first]);
        for (int k = 2; k <= n; k++) {
            int rank = (owner + k) % n;
            sum = hop(type, ops[rank], scale(type, ops[rank], n, inputs[rank]), sum);
        }
        return complete(type, ops[owner], n, sum);
    }

    /** Whether two elements are the same: equal bits, or both NaN. */
    static boolean same(DataType type, long x, long y) {
        return x == y
                || type.isFloat() && Double.isNaN(type.valueOf(x)) && Double.isNaN(type.valueOf(y));
    }

    private static long round(DataType type, double exact) {
        if (type.sizeBytes() == 1) {
            return type.bitsOf(DataType.FLOAT16.valueOf(DataType.FLOAT16.bitsOf(exact)));
        }
        return type.bitsOf(exact);
    }

    private static BigInteger integer(DataType type, long bits) {
        int unused = 64 - 8 * type.sizeBytes();
        if (type.isSigned()) {
            return BigInteger.valueOf(bits << unused >> unused);
        }
        return new BigInteger(Long.toUnsignedString(bits << unused >>> unused));
    }

    private static long wrap(DataType type, BigInteger value) {
        int unused = 64 - 8 * type.sizeBytes();
        return value.longValue() << unused >>> unused;
    }
}
