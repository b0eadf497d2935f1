package org.nccl4j.cpu;

import java.util.Optional;
import java.util.stream.IntStream;
import org.nccl4j.collectives.Backend;
import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;
import org.nccl4j.contract.HopOrder;

/** The contract for the ranks of one process on the direct engine. */
final class CpuDirectContractTest extends ContractSuite {

    @Override
    protected BackendUnderTest backendUnderTest() {
        CpuBackend backend = new CpuBackend(new DirectEngine(), CpuDevices.SHARED);
        return new BackendUnderTest() {
            @Override
            public Backend backend() {
                return backend;
            }

            @Override
            public String label() {
                return "cpu/direct";
            }

            @Override
            public Optional<HopOrder> hopOrder() {
                return Optional.of((ranks, chunk) -> IntStream.range(0, ranks).toArray());
            }
        };
    }

    @Override
    protected Tier tier() {
        return Tier.CORE;
    }
}
