package org.nccl4j.cpu;

import java.util.Optional;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.DataType;
import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;
import org.nccl4j.contract.Extent;
import org.nccl4j.contract.HopOrder;

/**
 * The contract on the engine that selects, with made-up rates by which neighbouring sizes go to
 * different algorithms. All types are tested on each of them elsewhere, so here one is enough, and
 * the scenarios about values, groups and aborts: the other ones are about the layer above.
 */
final class CpuAutoContractTest extends ContractSuite {

    @Override
    protected BackendUnderTest backendUnderTest() {
        CpuBackend backend =
                new CpuBackend(
                        SelectingEngineTest.engine(SelectingEngineTest.MIXED), CpuDevices.SHARED);
        return new BackendUnderTest() {
            @Override
            public Backend backend() {
                return backend;
            }

            @Override
            public String label() {
                return "cpu/auto";
            }

            /** It follows the choice, so that there is no one order. */
            @Override
            public Optional<HopOrder> hopOrder() {
                return Optional.empty();
            }
        };
    }

    @Override
    protected Extent extent() {
        return Extent.everything().withTypes(DataType.FLOAT32);
    }

    /** Ids of operations have slashes; those of scenarios have none. */
    @Override
    protected boolean selects(String id) {
        return super.selects(id)
                && (id.contains("/")
                        || id.startsWith("V")
                        || id.startsWith("values-")
                        || id.startsWith("group-")
                        || id.startsWith("abort-"));
    }
}
