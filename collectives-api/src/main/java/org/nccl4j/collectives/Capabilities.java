package org.nccl4j.collectives;

import java.util.Set;

/**
 * What a backend can do; tests and tools ask here instead of knowing backends by name. What it
 * cannot do it refuses with {@link UnsupportedException}.
 *
 * <p>Thread safety: immutable.
 *
 * @param types element types that operations take, every reduction included
 * @param reductions built-in reductions
 * @param preMulSum whether {@link ReduceOp.PreMulSum} works
 * @param mismatchDetection whether ranks that disagree about an operation get a {@link
 *     MismatchException}
 * @param capture whether {@link Backend#capture} works
 * @param registration whether {@link Communicator#register} works
 * @param trafficCounters whether {@link Communicator#traffic()} works
 * @param hostBuffers whether devices are host memory, so that operations take any wrapped host
 *     memory too, and no bare addresses
 * @param firstUseMayWait whether the first operation of a kind or with a peer may make its caller
 *     wait for the others to connect, at most {@link CommunicatorConfig#operationTimeout}
 * @param peerFailureDetection whether a rank that closes or aborts is named on the others
 */
public record Capabilities(
        Set<DataType> types,
        Set<ReduceOp.Predefined> reductions,
        boolean preMulSum,
        boolean mismatchDetection,
        boolean capture,
        boolean registration,
        boolean trafficCounters,
        boolean hostBuffers,
        boolean firstUseMayWait,
        boolean peerFailureDetection) {
    /** Copies the sets and refuses missing ones. */
    public Capabilities {
        if (types == null || reductions == null) {
            throw new InvalidArgumentException(
                    "capabilities need sets, got types " + types + " and reductions " + reductions);
        }
        types = Set.copyOf(types);
        reductions = Set.copyOf(reductions);
    }

    /**
     * Whether a reduction works on a type.
     *
     * @param type the buffers' type
     * @param op the reduction
     * @return true if an operation with both is accepted
     */
    public boolean supports(DataType type, ReduceOp op) {
        return types.contains(type)
                && switch (op) {
                    case ReduceOp.Predefined predefined -> reductions.contains(predefined);
                    case ReduceOp.PreMulSum scaled -> preMulSum && scaled.type() == type;
                };
    }
}
