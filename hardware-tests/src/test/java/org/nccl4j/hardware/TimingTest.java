package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.tuple;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.nccl.NcclBackend;

/** What the flight recorder gets of NCCL's operations, with their times where that is wanted. */
@OnEmulator
@Timeout(60)
final class TimingTest {
    private static final int RANKS = 2;
    private static final int COUNT = 1 << 16;

    private final Backend backend = new NcclBackend();

    private List<RecordedEvent> record(CommunicatorConfig config, Path folder) throws IOException {
        Path file = folder.resolve("recording.jfr");
        try (Recording recording = new Recording()) {
            try (Team team = Team.local(backend, RANKS, config)) {
                RecordedGroup sums = sums(team);
                sums.issue();
                team.synchronizeAll();
                recording.enable("org.nccl4j.Collective");
                recording.start();
                sums.issue();
                sums.issue();
                team.synchronizeAll();
            }
            recording.stop();
            recording.dump(file);
        }
        return RecordingFile.readAllEvents(file);
    }

    /** An all-reduce and a barrier of all ranks. */
    private RecordedGroup sums(Team team) {
        List<DeviceBuffer> buffers =
                List.of(team.buffer(0, 4L * COUNT), team.buffer(1, 4L * COUNT));
        return backend.record(group -> {
            for (int rank = 0; rank < RANKS; rank++) {
                Operations on = group.on(team.communicator(rank));
                DeviceBuffer buffer = buffers.get(rank);
                on.allReduce(
                        buffer, buffer, COUNT, DataType.INT32, ReduceOp.SUM, team.stream(rank));
                on.barrier(team.stream(rank));
            }
        });
    }

    private static void assertComplete(List<RecordedEvent> events) {
        assertThat(events)
                .extracting(
                        event -> event.getString("operation"),
                        event -> event.getLong("sequence"),
                        event -> event.getInt("rank"))
                .containsExactlyInAnyOrder(
                        tuple("allReduce", 2L, 0),
                        tuple("barrier", 3L, 0),
                        tuple("allReduce", 4L, 0),
                        tuple("barrier", 5L, 0),
                        tuple("allReduce", 2L, 1),
                        tuple("barrier", 3L, 1),
                        tuple("allReduce", 4L, 1),
                        tuple("barrier", 5L, 1));
    }

    @Test
    void timedOperationsTellHowLongTheyWaitedAndRan(@TempDir Path folder) throws IOException {
        long start = System.nanoTime();
        List<RecordedEvent> events = record(CommunicatorConfig.defaults().withTiming(true), folder);
        long took = System.nanoTime() - start;

        assertComplete(events);
        for (RecordedEvent event : events) {
            long wait = event.getLong("waitNanos");
            long run = event.getLong("runNanos");
            assertThat(wait).isBetween(0L, took);
            assertThat(run).isBetween(0L, took);
            assertThat(wait + run).isLessThanOrEqualTo(took);
        }
        assertThat(events).anySatisfy(event -> assertThat(event.getLong("runNanos")).isPositive());
    }

    @Test
    void withoutTimingNothingIsMeasured(@TempDir Path folder) throws IOException {
        List<RecordedEvent> events = record(CommunicatorConfig.defaults(), folder);

        assertComplete(events);
        assertThat(events)
                .allSatisfy(event -> {
                    assertThat(event.getLong("waitNanos")).isEqualTo(-1);
                    assertThat(event.getLong("runNanos")).isEqualTo(-1);
                });
    }

    @Test
    void singleOperationsAreTimedInBothModes(@TempDir Path folder) throws Exception {
        for (boolean blocking : new boolean[] {true, false}) {
            Path file = folder.resolve("single-" + blocking + ".jfr");
            CommunicatorConfig config =
                    CommunicatorConfig.defaults().withTiming(true).withBlocking(blocking);
            try (Recording recording = new Recording()) {
                try (Team team = Team.local(backend, RANKS, config)) {
                    sums(team).issue();
                    team.synchronizeAll();
                    recording.enable("org.nccl4j.Collective");
                    recording.start();
                    Thread other =
                            Thread.ofPlatform()
                                    .start(() -> team.communicator(1).barrier(team.stream(1)));
                    team.communicator(0).barrier(team.stream(0));
                    other.join();
                    team.synchronizeAll();
                }
                recording.stop();
                recording.dump(file);
            }
            assertThat(RecordingFile.readAllEvents(file))
                    .hasSize(RANKS)
                    .allSatisfy(event -> {
                        assertThat(event.getString("operation")).isEqualTo("barrier");
                        assertThat(event.getLong("runNanos")).isNotNegative();
                        assertThat(event.getLong("waitNanos")).isNotNegative();
                    });
        }
    }

    @Test
    void anAbortLeavesNothingBehind(@TempDir Path folder) throws IOException {
        try (Recording recording = new Recording()) {
            recording.enable("org.nccl4j.Collective");
            recording.start();
            try (Team team =
                    Team.local(backend, RANKS, CommunicatorConfig.defaults().withTiming(true))) {
                sums(team).issue();
                team.synchronizeAll();
                team.communicator(0).barrier(team.stream(0));
                team.abort();
            }
            recording.stop();
        }
    }
}
