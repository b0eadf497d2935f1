package org.nccl4j.hardware;

import java.util.Optional;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.InMemoryStore;
import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;
import org.nccl4j.contract.HopOrder;
import org.nccl4j.nccl.NcclBackend;

/**
 * NCCL with the consistency check: ranks that disagree are told as on the CPU, and those that agree
 * notice nothing.
 */
@OnEmulator
final class ConsistencyCheckTest extends ContractSuite {
    @Override
    protected BackendUnderTest backendUnderTest() {
        return new Checked(new NcclBackend());
    }

    @Override
    protected boolean selects(String id) {
        return super.selects(id)
                && (id.contains("mismatch")
                        || id.contains("split")
                        || id.equals("timeout-names-who-is-absent")
                        || isSmallOperation(id));
    }

    private static boolean isSmallOperation(String id) {
        return id.contains("/INT32/") && id.contains("/n=3") && !id.contains("/prod");
    }

    private record Checked(Backend backend) implements BackendUnderTest {
        @Override
        public String label() {
            return "nccl/emulator-2.30-checked";
        }

        @Override
        public Optional<HopOrder> hopOrder() {
            return Optional.empty();
        }

        @Override
        public CommunicatorConfig configured(CommunicatorConfig config) {
            return config.withConsistencyCheck(new InMemoryStore());
        }

        @Override
        public boolean detectsMismatches() {
            return true;
        }
    }
}
