package org.nccl4j.contract;

import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/** The reductions as the suite counts them. */
enum Reduction {
    SUM("sum"),
    PROD("prod"),
    MIN("min"),
    MAX("max"),
    AVG("avg"),
    PRE_MUL_SUM("preMulSum");

    private final String label;

    Reduction(String label) {
        this.label = label;
    }

    /** The contract's value. The scalar matters for {@link #PRE_MUL_SUM} alone. */
    ReduceOp operator(DataType type, long scalarBits) {
        return switch (this) {
            case SUM -> ReduceOp.SUM;
            case PROD -> ReduceOp.PROD;
            case MIN -> ReduceOp.MIN;
            case MAX -> ReduceOp.MAX;
            case AVG -> ReduceOp.AVG;
            case PRE_MUL_SUM -> new ReduceOp.PreMulSum(type, scalarBits);
        };
    }

    @Override
    public String toString() {
        return label;
    }
}
