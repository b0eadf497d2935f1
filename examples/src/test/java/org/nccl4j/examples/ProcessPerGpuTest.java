package org.nccl4j.examples;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;

final class ProcessPerGpuTest {
    /** In threads here, because the CPU joins no ranks of other processes. */
    @Test
    void ranksMeetThroughTheFile(@TempDir Path folder) throws Exception {
        Backend backend = Backends.named("cpu");
        Path idFile = folder.resolve("job.id");
        List<GradientAveraging.Model> models = new ArrayList<>();
        try (ExecutorService ranks = Executors.newFixedThreadPool(3)) {
            List<Future<GradientAveraging.Model>> running = new ArrayList<>();
            for (int r = 2; r >= 0; r--) {
                int rank = r;
                running.add(ranks.submit(() -> ProcessPerGpu.join(backend, rank, rank, 3, idFile)));
            }
            for (Future<GradientAveraging.Model> model : running) {
                models.add(model.get());
            }
        }
        assertThat(models).hasSize(3).containsOnly(models.getFirst());
        assertThat(models.getFirst().lastLoss()).isLessThan(0.01f);
        assertThat(folder).isEmptyDirectory();
    }
}
