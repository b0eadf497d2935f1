package org.nccl4j.hardware;

import org.nccl4j.collectives.DataType;
import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;
import org.nccl4j.contract.Extent;

/**
 * Case L4: a communicator that is dropped stays, and so must what it holds; by itself therefore.
 */
@OnEmulator(leavesNothing = false)
final class DroppedCommunicatorTest extends ContractSuite {
    static final String ID = "L4-drop-without-close";

    @Override
    protected BackendUnderTest backendUnderTest() {
        return new NcclUnderTest("nccl/emulator-2.30-dropped", true);
    }

    @Override
    protected Extent extent() {
        return Extent.everything().withTypes(new DataType[0]);
    }

    @Override
    protected boolean selects(String id) {
        return id.equals(ID);
    }
}
