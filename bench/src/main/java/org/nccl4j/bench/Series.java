package org.nccl4j.bench;

/**
 * One sweep over the sizes: the columns that stay the same in all its rows. Made by {@link
 * Program#series} in the order in which they run.
 *
 * @param type the element type
 * @param op the reduction; for programs that do not reduce it is {@link RedOp#SUM} and has no
 *     effect
 * @param root the root rank; for programs without a root it is -1, which is what the column shows
 * @param redop the redop column
 */
record Series(ElementType type, RedOp op, int root, String redop) {}
