package org.nccl4j.hardware;

import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;
import org.nccl4j.contract.DriveMode;
import org.nccl4j.contract.Extent;

/** The oldest NCCL: what it lacks is done another way, or refused by name. */
@OnEmulator(nccl = "2.18")
final class OldEmulatorContractTest extends ContractSuite {
    @Override
    protected BackendUnderTest backendUnderTest() {
        return new NcclUnderTest("nccl/emulator-2.18", true);
    }

    @Override
    protected Extent extent() {
        return Extent.everything()
                .withCountsOnly(0, 33, 1025)
                .withDriveModes(DriveMode.ONE_THREAD_WITH_RECORDED_GROUPS);
    }

    /** Operations, whose ids are paths; the scenarios do not depend on the version. */
    @Override
    protected boolean selects(String id) {
        return super.selects(id) && id.contains("/");
    }
}
