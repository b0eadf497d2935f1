package org.nccl4j.hardware;

import org.nccl4j.collectives.DataType;
import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;
import org.nccl4j.contract.Extent;

/** NCCL's non-blocking mode: launches are over later, whatever the type. */
@OnEmulator
final class EmulatorNonBlockingContractTest extends ContractSuite {
    @Override
    protected BackendUnderTest backendUnderTest() {
        return new NcclUnderTest("nccl/emulator-2.30-non-blocking", false);
    }

    @Override
    protected Extent extent() {
        return Extent.everything().withTypes(DataType.FLOAT32);
    }

    @Override
    protected boolean selects(String id) {
        return super.selects(id) && !id.equals(DroppedCommunicatorTest.ID);
    }
}
