package org.nccl4j.examples;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.Backends;

final class GradientAveragingTest {
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 5})
    void allRanksLearnTheSameModel(int ranks) throws Exception {
        List<GradientAveraging.Model> models = GradientAveraging.run(Backends.named("cpu"), ranks);

        assertThat(models).hasSize(ranks).containsOnly(models.getFirst());
        GradientAveraging.Model model = models.getFirst();
        assertThat(model.firstLoss()).isGreaterThan(50);
        assertThat(model.lastLoss()).isLessThan(0.01f);
        for (int i = 0; i < model.weights().size(); i++) {
            assertThat(model.weights().get(i)).isCloseTo(i + 1, within(0.05f));
        }
    }
}
