package org.nccl4j.cpu;

import java.util.Optional;
import org.nccl4j.collectives.Backend;
import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;
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

    @Override
    protected Tier tier() {
        return Tier.FULL;
    }
}
