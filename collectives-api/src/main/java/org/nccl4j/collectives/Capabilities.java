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
 *     wait for the others to connect, and one behind a {@link Communicator#split} for the split, at
 *     most {@link CommunicatorConfig#operationTimeout}
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
     * A backend that can do nothing; say what it can with the other methods.
     *
     * @return no types, no reductions, and false for the rest
     */
    public static Capabilities none() {
        return new Capabilities(
                Set.of(), Set.of(), false, false, false, false, false, false, false, false);
    }

    /**
     * With other element types.
     *
     * @param newTypes the element types
     * @return the changed copy
     */
    public Capabilities withTypes(Set<DataType> newTypes) {
        return new Capabilities(
                newTypes,
                reductions,
                preMulSum,
                mismatchDetection,
                capture,
                registration,
                trafficCounters,
                hostBuffers,
                firstUseMayWait,
                peerFailureDetection);
    }

    /**
     * With other built-in reductions.
     *
     * @param newReductions the reductions
     * @return the changed copy
     */
    public Capabilities withReductions(Set<ReduceOp.Predefined> newReductions) {
        return new Capabilities(
                types,
                newReductions,
                preMulSum,
                mismatchDetection,
                capture,
                registration,
                trafficCounters,
                hostBuffers,
                firstUseMayWait,
                peerFailureDetection);
    }

    /**
     * With or without pre-multiplied sums.
     *
     * @param able whether {@link ReduceOp.PreMulSum} works
     * @return the changed copy
     */
    public Capabilities withPreMulSum(boolean able) {
        return new Capabilities(
                types,
                reductions,
                able,
                mismatchDetection,
                capture,
                registration,
                trafficCounters,
                hostBuffers,
                firstUseMayWait,
                peerFailureDetection);
    }

    /**
     * With or without the detection of mismatches.
     *
     * @param able whether ranks that disagree get a {@link MismatchException}
     * @return the changed copy
     */
    public Capabilities withMismatchDetection(boolean able) {
        return new Capabilities(
                types,
                reductions,
                preMulSum,
                able,
                capture,
                registration,
                trafficCounters,
                hostBuffers,
                firstUseMayWait,
                peerFailureDetection);
    }

    /**
     * With or without graphs.
     *
     * @param able whether {@link Backend#capture} works
     * @return the changed copy
     */
    public Capabilities withCapture(boolean able) {
        return new Capabilities(
                types,
                reductions,
                preMulSum,
                mismatchDetection,
                able,
                registration,
                trafficCounters,
                hostBuffers,
                firstUseMayWait,
                peerFailureDetection);
    }

    /**
     * With or without registration of buffers.
     *
     * @param able whether {@link Communicator#register} works
     * @return the changed copy
     */
    public Capabilities withRegistration(boolean able) {
        return new Capabilities(
                types,
                reductions,
                preMulSum,
                mismatchDetection,
                capture,
                able,
                trafficCounters,
                hostBuffers,
                firstUseMayWait,
                peerFailureDetection);
    }

    /**
     * With or without counters of traffic.
     *
     * @param able whether {@link Communicator#traffic()} works
     * @return the changed copy
     */
    public Capabilities withTrafficCounters(boolean able) {
        return new Capabilities(
                types,
                reductions,
                preMulSum,
                mismatchDetection,
                capture,
                registration,
                able,
                hostBuffers,
                firstUseMayWait,
                peerFailureDetection);
    }

    /**
     * With or without host memory as buffers.
     *
     * @param able whether devices are host memory
     * @return the changed copy
     */
    public Capabilities withHostBuffers(boolean able) {
        return new Capabilities(
                types,
                reductions,
                preMulSum,
                mismatchDetection,
                capture,
                registration,
                trafficCounters,
                able,
                firstUseMayWait,
                peerFailureDetection);
    }

    /**
     * With or without a wait for connections.
     *
     * @param mayWait whether a first use may make its caller wait
     * @return the changed copy
     */
    public Capabilities withFirstUseMayWait(boolean mayWait) {
        return new Capabilities(
                types,
                reductions,
                preMulSum,
                mismatchDetection,
                capture,
                registration,
                trafficCounters,
                hostBuffers,
                mayWait,
                peerFailureDetection);
    }

    /**
     * With or without the naming of ranks that left.
     *
     * @param able whether a rank that closes or aborts is named on the others
     * @return the changed copy
     */
    public Capabilities withPeerFailureDetection(boolean able) {
        return new Capabilities(
                types,
                reductions,
                preMulSum,
                mismatchDetection,
                capture,
                registration,
                trafficCounters,
                hostBuffers,
                firstUseMayWait,
                able);
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
