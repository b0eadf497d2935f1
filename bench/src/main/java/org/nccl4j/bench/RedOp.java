package org.nccl4j.bench;

import java.util.List;
import java.util.Locale;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/** The reductions of -o, in nccl-tests' order (max stands before min, as in NCCL's enumeration). */
enum RedOp {
    SUM("sum", "add plus"),
    PROD("prod", "product mul multiply"),
    MAX("max", "maximum"),
    MIN("min", "minimum"),
    AVG("avg", "average mean"),
    /**
     * Each rank's input is multiplied by a scalar of its own, then summed. The benchmark's scalar
     * is {@link #mulSumScalar}.
     */
    MULSUM("mulsum", "premulsum premul_sum pre_mul_sum");

    private final String label;
    private final String namesElsewhere;

    RedOp(String label, String namesElsewhere) {
        this.label = label;
        this.namesElsewhere = namesElsewhere;
    }

    /** The name on the command line and in the redop column. */
    String label() {
        return label;
    }

    /** True if other tools call this reduction so; only ever used to suggest {@link #label}. */
    boolean isElsewhereCalled(String word) {
        return List.of(namesElsewhere.split(" ")).contains(word.toLowerCase(Locale.ROOT));
    }

    /** The reduction that one rank asks the backend for. */
    ReduceOp reduceOp(DataType type, int rank) {
        return switch (this) {
            case SUM -> ReduceOp.SUM;
            case PROD -> ReduceOp.PROD;
            case MAX -> ReduceOp.MAX;
            case MIN -> ReduceOp.MIN;
            case AVG -> ReduceOp.AVG;
            case MULSUM -> ReduceOp.preMulSum(type, (long) mulSumScalar(rank));
        };
    }

    /** The scalar that {@link #MULSUM} multiplies the input of a rank with. */
    static int mulSumScalar(int rank) {
        return rank % 2 == 0 ? 1 : 2;
    }
}
