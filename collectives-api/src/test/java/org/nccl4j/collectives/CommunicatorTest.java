package org.nccl4j.collectives;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The default methods of {@link Communicator}. */
final class CommunicatorTest {
    @ParameterizedTest
    @CsvSource({"0, 4, 0", "72, 4, 18", "9223372036854775807, 1, 9223372036854775807"})
    void anEvenShareIsExact(long total, int size, long share) {
        assertThat(communicator(size).evenShare(total)).isEqualTo(share);
    }

    /** Case V7. */
    @Test
    void whatTheRanksDoNotDivideIsRefused() {
        assertThatThrownBy(() -> communicator(4).evenShare(73))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        "73 elements cannot be split evenly over 4 ranks; pad the buffer or use"
                                + " BlockLayout.even(73, 4) with a V operation");
    }

    @Test
    void aNegativeTotalIsRefused() {
        assertThatThrownBy(() -> communicator(4).evenShare(-4))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("a total of -4 elements must be at least 0");
    }

    @Test
    void aBackendWithoutRegistrationSaysSo() {
        assertThatThrownBy(() -> communicator(4).register(DeviceBuffer.EMPTY))
                .isInstanceOf(UnsupportedException.class)
                .hasMessage(
                        "communicator 'world' on rank 2/4 cannot register EMPTY: this backend has"
                                + " no use for it; ask Capabilities.registration first");
    }

    /** Rank 2 of so many; what it does not know goes to the default methods. */
    private static Communicator communicator(int size) {
        return (Communicator)
                Proxy.newProxyInstance(
                        Communicator.class.getClassLoader(),
                        new Class<?>[] {Communicator.class},
                        (proxy, method, arguments) ->
                                switch (method.getName()) {
                                    case "rank" -> 2;
                                    case "size" -> size;
                                    case "config" -> CommunicatorConfig.defaults();
                                    default ->
                                            InvocationHandler.invokeDefault(
                                                    proxy, method, arguments);
                                });
    }
}
