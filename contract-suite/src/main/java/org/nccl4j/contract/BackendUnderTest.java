package org.nccl4j.contract;

import java.util.Optional;
import org.nccl4j.collectives.Backend;

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
}
