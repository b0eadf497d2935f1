package org.nccl4j.contract;

import org.nccl4j.collectives.DataType;

/**
 * One operation to be checked, as values that any process can rebuild it from.
 *
 * @param collective what the ranks do
 * @param type the elements
 * @param reduction how they are reduced; null for operations that only move
 * @param ranks the number of ranks
 * @param countElements the operation's count; the V operations take uneven counts around it
 * @param inPlace whether every rank that has an in-place form uses it
 * @param root the root of rooted operations, else 0
 * @param seed of inputs, layouts, offsets of buffers and what surrounds them
 */
record OperationCase(
        Collective collective,
        DataType type,
        Reduction reduction,
        int ranks,
        int countElements,
        boolean inPlace,
        int root,
        long seed) {

    /** The same operation, its inputs too, in its in-place form. */
    OperationCase asInPlace() {
        return new OperationCase(
                collective, type, reduction, ranks, countElements, true, root, seed);
    }

    String id() {
        StringBuilder id = new StringBuilder();
        id.append(collective).append('/').append(type);
        if (reduction != null) {
            id.append('/').append(reduction);
        }
        id.append("/n=").append(ranks).append("/count=").append(countElements);
        if (collective.rooted()) {
            id.append("/root=").append(root);
        }
        return id.append(inPlace ? "/in place" : "/out of place")
                .append("/seed=")
                .append(seed)
                .toString();
    }
}
