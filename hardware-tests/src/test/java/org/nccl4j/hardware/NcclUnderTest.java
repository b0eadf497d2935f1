package org.nccl4j.hardware;

import java.util.Optional;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.HopOrder;
import org.nccl4j.nccl.NcclBackend;

/**
 * NCCL, in one of its modes.
 *
 * @param backend over the library that this JVM loads
 * @param label for reports
 * @param blocking NCCL's blocking mode
 */
record NcclUnderTest(Backend backend, String label, boolean blocking) implements BackendUnderTest {
    NcclUnderTest(String label, boolean blocking) {
        this(new NcclBackend(), label, blocking);
    }

    /** NCCL documents no order, and chooses algorithms by itself. */
    @Override
    public Optional<HopOrder> hopOrder() {
        return Optional.empty();
    }

    @Override
    public CommunicatorConfig configured(CommunicatorConfig config) {
        return config.withBlocking(blocking);
    }
}
