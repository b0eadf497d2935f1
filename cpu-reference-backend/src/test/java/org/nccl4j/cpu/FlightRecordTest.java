package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.tuple;

import java.nio.file.Path;
import java.util.List;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;

/** What the JDK's flight recorder gets. */
final class FlightRecordTest {
    @Test
    void eachRanksPartIsRecordedWithWaitAndRunTime(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("recording.jfr");
        try (World world = new World(2);
                Recording recording = new Recording()) {
            world.assertWorks();
            recording.enable("org.nccl4j.Collective");
            recording.start();
            DeviceBuffer[] buffers = {world.zeros(0, 1000), world.zeros(1, 1000)};
            world.allReduce(0, buffers[0]);
            world.allReduce(1, buffers[1]);
            world.rank(0).send(buffers[0], 7, DataType.FLOAT32, 1, world.stream(0));
            world.rank(1).recv(buffers[1], 7, DataType.FLOAT32, 0, world.stream(1));
            world.allReduce(0, DeviceBuffer.EMPTY);
            world.allReduce(1, DeviceBuffer.EMPTY);
            world.synchronize();
            recording.stop();
            world.assertWorks();
            recording.dump(file);
        }
        List<RecordedEvent> events = RecordingFile.readAllEvents(file);
        assertThat(events)
                .extracting(
                        event -> event.getString("operation"),
                        event -> event.getLong("sequence"),
                        event -> event.getInt("rank"),
                        event -> event.getLong("countElements"),
                        event -> event.getString("type"),
                        event -> event.getLong("bytes"))
                .containsExactlyInAnyOrder(
                        tuple("allReduce", 1L, 0, 1000L, "INT32", 4000L),
                        tuple("allReduce", 1L, 1, 1000L, "INT32", 4000L),
                        tuple("send", 0L, 0, 7L, "FLOAT32", 28L),
                        tuple("recv", 0L, 1, 7L, "FLOAT32", 28L),
                        tuple("allReduce", 2L, 0, 0L, "INT32", 0L),
                        tuple("allReduce", 2L, 1, 0L, "INT32", 0L));
        for (RecordedEvent event : events) {
            assertThat(event.getString("communicator")).isEqualTo("world");
            assertThat(event.getInt("size")).isEqualTo(2);
            long wait = event.getDuration("waitNanos").toNanos();
            long run = event.getDuration("runNanos").toNanos();
            assertThat(wait).isNotNegative();
            assertThat(run).isNotNegative();
            assertThat(event.getStackTrace()).isNull();
        }
    }
}
