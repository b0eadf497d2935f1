package org.nccl4j.cpu;

/** How two elements become one; every reduction is one of these, with a factor or a divisor. */
enum Fold {
    SUM,
    PROD,
    MIN,
    MAX
}
