package org.nccl4j.bindings;

import java.nio.file.Path;
import java.util.Optional;
import java.util.function.UnaryOperator;

/**
 * What the loader reads of the machine; tests give their own.
 *
 * @param property a system property by its name, null if it is not set
 * @param variable an environment variable by its name, null if it is not set
 * @param root what absolute folders such as {@code /usr/lib64} are below
 */
record Surroundings(UnaryOperator<String> property, UnaryOperator<String> variable, Path root) {

    /** This JVM and this machine. */
    static final Surroundings REAL =
            new Surroundings(System::getProperty, System::getenv, Path.of("/"));

    /** A property's value; one that is empty counts as not set. */
    Optional<String> property(String name) {
        return Optional.ofNullable(property.apply(name)).filter(value -> !value.isBlank());
    }

    /** A variable's value; one that is empty counts as not set, as a shell has it. */
    Optional<String> variable(String name) {
        return Optional.ofNullable(variable.apply(name)).filter(value -> !value.isBlank());
    }

    /** An absolute folder of the machine. */
    Path folder(String absolute) {
        return root.resolve(absolute.substring(1));
    }
}
