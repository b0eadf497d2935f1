package org.nccl4j.hardware;

import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;
import org.nccl4j.contract.DriveMode;
import org.nccl4j.contract.Extent;

/** The contract's core tier, whole, on the emulator of NCCL 2.30. */
@OnEmulator
final class EmulatorContractTest extends ContractSuite {
    @Override
    protected BackendUnderTest backendUnderTest() {
        return new NcclUnderTest("nccl/emulator-2.30", true);
    }

    /** {@link EmulatorNonBlockingContractTest} has recorded groups as well. */
    @Override
    protected Extent extent() {
        return Extent.everything()
                .withDriveModes(DriveMode.THREAD_PER_RANK, DriveMode.ONE_THREAD_WITH_GROUPS);
    }

    @Override
    protected boolean selects(String id) {
        return super.selects(id) && !id.equals(DroppedCommunicatorTest.ID);
    }
}
