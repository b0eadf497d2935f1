package org.nccl4j.hardware;

import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.nccl4j.collectives.Availability;
import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;
import org.nccl4j.nccl.NcclBackend;
import org.opentest4j.TestAbortedException;

/** The contract's core tier on this machine's GPUs, over the NCCL that the loader finds. */
@ExtendWith(GpuContractTest.NeedsGpus.class)
final class GpuContractTest extends ContractSuite {
    static final class NeedsGpus implements BeforeAllCallback {
        @Override
        public void beforeAll(ExtensionContext context) {
            if (new NcclBackend().availability() instanceof Availability.Unavailable none) {
                throw new TestAbortedException(
                        "unsupported: no GPU with NCCL here: "
                                + String.join("; ", none.reasons()).lines().toList().getFirst());
            }
        }
    }

    @Override
    protected BackendUnderTest backendUnderTest() {
        return new NcclUnderTest("nccl/gpu", true);
    }
}
