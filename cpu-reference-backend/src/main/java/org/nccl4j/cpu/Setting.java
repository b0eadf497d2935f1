package org.nccl4j.cpu;

/**
 * What a user sets by a system property or an environment variable; the property wins.
 *
 * <p>Thread safety: immutable.
 */
final class Setting {
    private Setting() {}

    /** The value, or null if it is not set. */
    static String value(String property, String variable) {
        String value = System.getProperty(property);
        return value != null ? value : System.getenv(variable);
    }

    /** Where the value comes from: for messages. */
    static String source(String property, String variable) {
        return System.getProperty(property) != null ? "-D" + property : variable;
    }
}
