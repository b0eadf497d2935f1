package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.Backends;
import org.nccl4j.examples.GradientAveraging;
import org.nccl4j.examples.ProcessPerGpu;

/** The programs that users start from, unchanged, on the NCCL backend. */
@OnEmulator
final class ExamplesOnEmulatorTest {
    @ParameterizedTest
    @ValueSource(ints = {1, 2, 8})
    void gradientAveragingLearnsWhatItLearnsOnTheCpu(int ranks) throws Exception {
        List<GradientAveraging.Model> models = GradientAveraging.run(Backends.named("nccl"), ranks);
        GradientAveraging.Model onCpu =
                GradientAveraging.run(Backends.named("cpu"), ranks).getFirst();

        assertThat(models).hasSize(ranks).containsOnly(models.getFirst());
        GradientAveraging.Model model = models.getFirst();
        assertThat(model.firstLoss()).isGreaterThan(50);
        assertThat(model.lastLoss()).isLessThan(0.01f);
        for (int i = 0; i < model.weights().size(); i++) {
            // Another order of summation, so other last bits.
            assertThat(model.weights().get(i)).isCloseTo(onCpu.weights().get(i), within(1e-4f));
        }
    }

    @Test
    void processesMeetThroughTheFile(@TempDir Path folder) throws IOException {
        int ranks = 2;
        Path idFile = folder.resolve("job.id");
        List<ChildJvm> processes = new ArrayList<>();
        try {
            for (int rank = 0; rank < ranks; rank++) {
                processes.add(
                        ChildJvm.start(
                                folder,
                                "rank" + rank,
                                EmulatorLibraries.of("2.30"),
                                Map.of(),
                                ProcessPerGpu.class,
                                Integer.toString(rank),
                                Integer.toString(ranks),
                                idFile.toString()));
            }
            List<String> models = new ArrayList<>();
            for (int rank = 0; rank < ranks; rank++) {
                processes.get(rank).awaitSuccess(Duration.ofSeconds(30));
                String said = Files.readString(processes.get(rank).out());
                assertThat(said).startsWith("rank " + rank + ": Model[weights=[");
                models.add(said.substring(said.indexOf("Model")));
            }
            assertThat(models).containsOnly(models.getFirst());
            assertThat(idFile).doesNotExist();
        } finally {
            processes.forEach(ChildJvm::close);
        }
    }
}
