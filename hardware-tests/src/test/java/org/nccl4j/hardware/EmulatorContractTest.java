package org.nccl4j.hardware;

import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;

/** The contract's core tier, whole, on the emulator of NCCL 2.30. */
@OnEmulator
final class EmulatorContractTest extends ContractSuite {
    @Override
    protected BackendUnderTest backendUnderTest() {
        return new NcclUnderTest("nccl/emulator-2.30", true);
    }

    @Override
    protected boolean selects(String id) {
        return super.selects(id) && !id.equals(DroppedCommunicatorTest.ID);
    }
}
