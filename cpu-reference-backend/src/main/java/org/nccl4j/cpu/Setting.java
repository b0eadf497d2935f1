package org.nccl4j.cpu;

import java.util.Optional;
import java.util.function.UnaryOperator;

/**
 * What somebody has set by a system property or an environment variable. All settings of the CPU
 * backend are read here, by one rule: the property wins, and what is empty or blank counts as not
 * set, as NCCL has it with its variables.
 *
 * <p>Thread safety: immutable.
 *
 * @param origin where it is set, for messages
 * @param value not blank
 */
record Setting(String origin, String value) {

    /**
     * Looks a setting up.
     *
     * @param properties a system property by its name; null if there is none
     * @param environment an environment variable by its name; null if there is none
     */
    static Optional<Setting> of(
            String property,
            UnaryOperator<String> properties,
            String variable,
            UnaryOperator<String> environment) {
        return given("system property " + property, properties.apply(property))
                .or(() -> given("environment variable " + variable, environment.apply(variable)));
    }

    private static Optional<Setting> given(String origin, String value) {
        return Optional.ofNullable(value)
                .filter(found -> !found.isBlank())
                .map(found -> new Setting(origin, found));
    }

    @Override
    public String toString() {
        return origin + "=" + value;
    }
}
