package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import java.io.IOException;
import java.io.InputStream;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The published bus bandwidth figures and factors: the vectors whose ids start with busbw-. */
final class BusBandwidthVectorsTest {

    @TestFactory
    Stream<DynamicTest> vectors() throws IOException {
        try (InputStream file = getClass().getResourceAsStream("busbw-vectors.json")) {
            JsonNode vectors = JsonMapper.shared().readTree(file);
            assertThat(vectors.size()).isEqualTo(13);
            return StreamSupport.stream(vectors.spliterator(), false)
                    .map(vector ->
                            DynamicTest.dynamicTest(
                                    vector.get("id").asString(), () -> check(vector)));
        }
    }

    private static void check(JsonNode vector) {
        JsonNode inputs = vector.get("inputs");
        JsonNode expected = vector.get("expected");
        double tolerance = vector.get("tolerance_rel").asDouble();
        // The vectors call it all_to_all.
        String name = inputs.get("op").asString().replace("all_to_all", "alltoall");
        Program program = Program.named(name).orElseThrow();
        int ranks = inputs.get("n_ranks").asInt();
        double factor = program.busFactor(ranks);
        if (inputs.has("bytes")) {
            long sizeBytes = (long) inputs.get("bytes").asDouble();
            double seconds = inputs.get("time_us").asDouble() * 1e-6;
            Shape shape = program.shape(sizeBytes, ElementType.FLOAT, ranks);
            Bandwidth bandwidth = program.bandwidth(shape, ranks, seconds);
            near(bandwidth.algBwGBps(), expected.get("algbw_GBps"), tolerance);
            near(bandwidth.busBwGBps(), expected.get("busbw_GBps"), tolerance);
            near(factor, expected.get("busbw_factor"), tolerance);
        } else if (inputs.has("busbw_GBps")) {
            near(
                    inputs.get("busbw_GBps").asDouble() / factor,
                    expected.get("algbw_GBps"),
                    tolerance);
        } else {
            near(factor, expected.get("factor"), tolerance);
        }
    }

    private static void near(double actual, JsonNode expected, double tolerance) {
        assertThat(actual)
                .isCloseTo(expected.asDouble(), within(Math.abs(expected.asDouble()) * tolerance));
    }
}
