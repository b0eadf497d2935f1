package org.nccl4j.cpu;

import java.util.Optional;
import org.nccl4j.collectives.Backend;
import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;
import org.nccl4j.contract.DriveMode;
import org.nccl4j.contract.Extent;
import org.nccl4j.contract.HopOrder;

/** The contract, both tiers, for the ranks of one process on the reference engine. */
final class CpuContractTest extends ContractSuite {

    @Override
    protected BackendUnderTest backendUnderTest() {
        CpuBackend backend = new CpuBackend(new ReferenceEngine(), CpuDevices.SHARED);
        return new BackendUnderTest() {
            @Override
            public Backend backend() {
                return backend;
            }

            @Override
            public String label() {
                return "cpu/reference";
            }

            @Override
            public Optional<HopOrder> hopOrder() {
                return Optional.of(HopOrder.ring());
            }
        };
    }

    /** This engine prepares nothing: a recorded group is enqueued as any other. */
    @Override
    protected Extent extent() {
        return Extent.everything()
                .withDriveModes(DriveMode.THREAD_PER_RANK, DriveMode.ONE_THREAD_WITH_GROUPS);
    }

    @Override
    protected Tier tier() {
        return Tier.FULL;
    }
}
