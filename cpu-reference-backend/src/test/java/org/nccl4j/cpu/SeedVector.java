package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/**
 * A case of {@code seed-vectors.json}: inputs, and what is expected of them. Remembers which
 * expectations a test has looked at, so that none is passed over.
 */
final class SeedVector {
    private final JsonNode vector;
    private final Set<String> unchecked = new TreeSet<>();

    private SeedVector(JsonNode vector) {
        this.vector = vector;
        unchecked.addAll(vector.get("expected").propertyNames());
    }

    /** All cases, in the order of the file. */
    static Stream<SeedVector> all() {
        try (InputStream file = SeedVector.class.getResourceAsStream("/seed-vectors.json")) {
            List<SeedVector> vectors = new ArrayList<>();
            for (JsonNode vector : new JsonMapper().readTree(file)) {
                vectors.add(new SeedVector(vector));
            }
            return vectors.stream();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    String id() {
        return vector.get("id").asString();
    }

    String model() {
        return vector.get("model").asString();
    }

    int ranks() {
        return vector.get("inputs").get("n_ranks").asInt();
    }

    boolean has(String input) {
        return vector.get("inputs").has(input);
    }

    JsonNode input(String name) {
        return vector.get("inputs").required(name);
    }

    boolean expects(String name) {
        return vector.get("expected").has(name);
    }

    JsonNode expected(String name) {
        unchecked.remove(name);
        return vector.get("expected").required(name);
    }

    /** Compares a number within the vector's tolerance. */
    void expect(String name, double actual) {
        double expected = expected(name).asDouble();
        double tolerance = vector.get("tolerance_rel").asDouble() * Math.abs(expected);
        assertThat(actual).as(name).isCloseTo(expected, within(tolerance));
    }

    /** Compares a whole number within the vector's tolerance. */
    void expect(String name, long actual) {
        expect(name, (double) actual);
    }

    /** Compares a whole number if the vector has it. */
    void expectIfThere(String name, long actual) {
        expectIfThere(name, (double) actual);
    }

    /** Compares a number if the vector has it. */
    void expectIfThere(String name, double actual) {
        if (expects(name)) {
            expect(name, actual);
        }
    }

    void checkThatNothingWasPassedOver() {
        assertThat(unchecked).as("expectations of " + id() + " that no test looks at").isEmpty();
    }

    @Override
    public String toString() {
        return id();
    }

    /** A list of whole numbers. */
    static long[] numbers(JsonNode list) {
        long[] numbers = new long[list.size()];
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = list.get(i).asLong();
        }
        return numbers;
    }

    /** The leaves of nested lists, in order. */
    static List<JsonNode> leaves(JsonNode node) {
        List<JsonNode> leaves = new ArrayList<>();
        if (node.isArray()) {
            for (JsonNode child : node) {
                leaves.addAll(leaves(child));
            }
        } else {
            leaves.add(node);
        }
        return leaves;
    }
}
