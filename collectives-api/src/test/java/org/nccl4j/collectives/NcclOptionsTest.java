package org.nccl4j.collectives;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.assertj.core.api.AbstractThrowableAssert;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

final class NcclOptionsTest {

    @Test
    void nothingIsSetAtFirst() {
        assertThat(NcclOptions.none().values()).isEmpty();
        assertThat(NcclOptions.none().netName()).isEmpty();
        assertThat(NcclOptions.none()).isEqualTo(new NcclOptions(Map.of(), Optional.empty()));
    }

    @Test
    void eachWithAddsItsSettingAlone() {
        NcclOptions one = NcclOptions.none().with(NcclOption.CTA_POLICY, 1);
        NcclOptions two = one.with(NcclOption.MAX_CTAS, 8).withNetName("Socket");
        assertThat(one.values()).containsExactly(Map.entry(NcclOption.CTA_POLICY, 1));
        assertThat(two.values())
                .containsOnly(
                        Map.entry(NcclOption.CTA_POLICY, 1), Map.entry(NcclOption.MAX_CTAS, 8));
        assertThat(two.netName()).hasValue("Socket");
        assertThat(two.with(NcclOption.MAX_CTAS, 4).values())
                .containsEntry(NcclOption.MAX_CTAS, 4)
                .hasSize(2);
        assertThat(two.withNetName(null).netName()).isEmpty();
        assertThat(NcclOptions.none().values()).as("copies are changed").isEmpty();
    }

    @Test
    void theValuesAreCopied() {
        Map<NcclOption, Integer> mine = new HashMap<>(Map.of(NcclOption.MIN_CTAS, 2));
        NcclOptions options = new NcclOptions(mine, Optional.empty());
        mine.clear();
        assertThat(options.values()).containsExactly(Map.entry(NcclOption.MIN_CTAS, 2));
    }

    @ParameterizedTest
    @EnumSource(NcclOption.class)
    void whatNcclAcceptsIsAcceptedAndNothingElse(NcclOption option) {
        assertThat(NcclOptions.none().with(option, option.minimum()).values())
                .containsEntry(option, option.minimum());
        assertThat(NcclOptions.none().with(option, option.maximum()).values())
                .containsEntry(option, option.maximum());
        refused(() -> NcclOptions.none().with(option, option.minimum() - 1))
                .hasMessageStartingWith(
                        option.fieldName()
                                + " is "
                                + (option.minimum() - 1)
                                + ", must be "
                                + (option.maximum() == Integer.MAX_VALUE
                                        ? "at least "
                                        : option.minimum() + " to "));
        if (option.maximum() < Integer.MAX_VALUE) {
            refused(() -> NcclOptions.none().with(option, option.maximum() + 1))
                    .hasMessage(
                            option.fieldName()
                                    + " is "
                                    + (option.maximum() + 1)
                                    + ", must be "
                                    + option.minimum()
                                    + " to "
                                    + option.maximum());
        }
    }

    @Test
    void theLeastIsNotAboveTheMost() {
        NcclOptions least = NcclOptions.none().with(NcclOption.MIN_CTAS, 8);
        refused(() -> least.with(NcclOption.MAX_CTAS, 7))
                .hasMessage("minCTAs is 8, must be at most maxCTAs, which is 7");
        assertThat(least.with(NcclOption.MAX_CTAS, 8).values()).hasSize(2);
    }

    @Test
    void whatIsMissingIsRefused() {
        refused(() -> NcclOptions.none().with(null, 1))
                .hasMessage("an NCCL option must be given, got null");
        refused(() -> NcclOptions.none().withNetName(" ")).hasMessage("netName must not be blank");
        refused(() -> new NcclOptions(null, Optional.empty()))
                .hasMessageContaining("left out, not null");
        refused(() -> new NcclOptions(Map.of(), null)).hasMessageContaining("left out, not null");
    }

    @Test
    void fieldsHaveNamesVersionsAndLimits() {
        assertThat(Arrays.stream(NcclOption.values()).map(NcclOption::fieldName))
                .doesNotHaveDuplicates()
                .contains("cgaClusterSize", "CTAPolicy", "maxP2pPeers")
                .doesNotContain("blocking", "commName", "netName");
        for (NcclOption option : NcclOption.values()) {
            assertThat(option.sinceVersion()).as(option.name()).isBetween(21700, 29999);
            assertThat(option.minimum()).as(option.name()).isLessThanOrEqualTo(option.maximum());
            // What stands for a field that is not set.
            assertThat(option.minimum()).as(option.name()).isGreaterThan(Integer.MIN_VALUE);
        }
    }

    private static AbstractThrowableAssert<?, ?> refused(ThrowingCallable call) {
        return assertThatThrownBy(call).isInstanceOf(InvalidArgumentException.class);
    }
}
