package org.nccl4j.contract;

import java.util.Optional;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CommunicatorConfig;

/** What a backend's module says about itself so that the suite can be held against it. */
public interface BackendUnderTest {
    /**
     * The backend.
     *
     * @return an available one
     */
    Backend backend();

    /**
     * What is tested, for reports.
     *
     * @return backend, then engine or algorithm, then transport, such as {@code "cpu/reference"}
     */
    String label();

    /**
     * The order in which the algorithm combines the ranks' inputs, if it documents one. Without it
     * order-sensitive results are only compared between ranks and between runs.
     *
     * @return the order of all-reduce, reduce-scatter and reduce
     */
    Optional<HopOrder> hopOrder();

    /**
     * Puts the communicators of the tests in the mode that is tested; as they are, unless
     * overridden.
     *
     * @param config what a case or scenario asks for
     * @return the same with settings that it does not care about, such as NCCL's blocking mode
     */
    default CommunicatorConfig configured(CommunicatorConfig config) {
        return config;
    }

    /**
     * Whether ranks that disagree get a {@code MismatchException} in this mode; what the backend
     * says of itself, unless overridden.
     *
     * @return whether mismatches are found
     */
    default boolean detectsMismatches() {
        return backend().capabilities().mismatchDetection();
    }

    /**
     * Whether ranks whose memory overlaps get an {@code InvalidArgumentException} in this mode;
     * true if the backend finds mismatches and its devices are host memory, which it can then
     * compare, unless overridden.
     *
     * @return whether overlap between ranks is found
     */
    default boolean detectsOverlap() {
        return backend().capabilities().mismatchDetection()
                && backend().capabilities().hostBuffers();
    }
}
