package org.nccl4j.bindings;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatIllegalArgumentException;

import org.junit.jupiter.api.Test;

/** The environment as C sees it. */
final class ProcessEnvironmentTest {

    @Test
    void whatIsSetIsSeenByNativeCodeAndNotByJava() {
        assertThat(ProcessEnvironment.get("NCCL4J_TEST_SET")).isEmpty();

        ProcessEnvironment.set("NCCL4J_TEST_SET", "one");
        assertThat(ProcessEnvironment.get("NCCL4J_TEST_SET")).contains("one");

        ProcessEnvironment.set("NCCL4J_TEST_SET", "zwei=äöü ");
        assertThat(ProcessEnvironment.get("NCCL4J_TEST_SET")).contains("zwei=äöü ");
        assertThat(System.getenv("NCCL4J_TEST_SET")).isNull();
    }

    @Test
    void anEmptyValueIsAValue() {
        ProcessEnvironment.set("NCCL4J_TEST_EMPTY", "");

        assertThat(ProcessEnvironment.get("NCCL4J_TEST_EMPTY")).contains("");
    }

    @Test
    void whatTheProcessWasStartedWithIsThere() {
        assertThat(ProcessEnvironment.get("PATH").orElse(null)).isEqualTo(System.getenv("PATH"));
    }

    @Test
    void whatCCannotHaveIsRefused() {
        for (String name : new String[] {"", "A=B", "A\0B"}) {
            assertThatIllegalArgumentException()
                    .isThrownBy(() -> ProcessEnvironment.set(name, "value"))
                    .withMessageContaining("not a variable's name");
            assertThatIllegalArgumentException().isThrownBy(() -> ProcessEnvironment.get(name));
        }
        assertThatIllegalArgumentException()
                .isThrownBy(() -> ProcessEnvironment.set("NCCL4J_TEST_ZERO", "a\0b"))
                .withMessageContaining("zero character");
    }
}
