package org.nccl4j.cpu;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;

/** The README's example is the code below, and it works. */
final class ReadmeExampleTest {
    private static float[] averageOfRanks() {
        // begin of the README's example
        Backend backend = Backends.named("cpu"); // preferred() takes the GPUs where there are some
        CommunicatorConfig config =
                CommunicatorConfig.defaults().withOperationTimeout(Duration.ofSeconds(30));
        List<Communicator> ranks = backend.createLocal(4, config);
        List<DeviceBuffer> gradients = new ArrayList<>();
        List<DeviceStream> streams = new ArrayList<>();
        try {
            for (Communicator rank : ranks) {
                DeviceBuffer gradient = rank.device().allocate(3 * Float.BYTES);
                for (int i = 0; i < 3; i++) {
                    gradient.hostSegment().setAtIndex(JAVA_FLOAT, i, rank.rank() + i);
                }
                gradients.add(gradient);
                streams.add(rank.device().createStream());
            }
            // One thread drives all ranks, so their calls go into one group. It only enqueues.
            backend.group(group -> {
                for (Communicator rank : ranks) {
                    DeviceBuffer gradient = gradients.get(rank.rank());
                    DeviceStream stream = streams.get(rank.rank());
                    group.on(rank)
                            .allReduce(
                                    gradient, gradient, 3, DataType.FLOAT32, ReduceOp.AVG, stream);
                }
            });
            backend.synchronizeAll(streams, Duration.ofSeconds(30));
            return gradients.get(0).hostSegment().toArray(JAVA_FLOAT); // 1.5, 2.5, 3.5 on each rank
        } finally {
            backend.closeAll(ranks);
            streams.forEach(DeviceStream::close);
            gradients.forEach(DeviceBuffer::close);
        }
        // end of the README's example
    }

    @Test
    void yieldsTheAverage() {
        assertThat(averageOfRanks()).containsExactly(1.5f, 2.5f, 3.5f);
    }

    @Test
    void isWhatTheReadmeShows() throws IOException {
        List<String> source =
                Files.readAllLines(Path.of("src/test/java/org/nccl4j/cpu/ReadmeExampleTest.java"));
        String example =
                source.stream()
                        .dropWhile(line -> !line.endsWith("// begin of the README's example"))
                        .skip(1)
                        .takeWhile(line -> !line.endsWith("// end of the README's example"))
                        .map(line -> line.isBlank() ? "" : line.substring(8))
                        .collect(Collectors.joining("\n", "```java\n", "\n```"));
        assertThat(Files.readString(Path.of("../README.md"))).contains(example);
    }
}
