package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.Named;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UniqueId;

/** The backend as programs find and use it. */
final class CpuBackendTest {
    private static final Duration SOON = Duration.ofSeconds(20);

    @Test
    void isFoundByItsName() {
        assertThat(Backends.named("cpu")).isInstanceOf(CpuBackend.class);
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 8})
    void oneThreadDrivesAllRanksByGroups(int ranks) {
        CpuBackend backend = new CpuBackend();
        int count = 200_000;
        List<Communicator> communicators =
                backend.createLocal(
                        ranks, CommunicatorConfig.defaults().withOperationTimeout(SOON));
        List<DeviceBuffer> buffers = new ArrayList<>();
        List<DeviceStream> streams = new ArrayList<>();
        for (Communicator communicator : communicators) {
            DeviceBuffer buffer = communicator.device().allocate(4L * count);
            for (int i = 0; i < count; i++) {
                buffer.hostSegment()
                        .setAtIndex(ValueLayout.JAVA_INT, i, i * (communicator.rank() + 1));
            }
            buffers.add(buffer);
            streams.add(communicator.device().createStream());
        }
        backend.group(group -> {
            for (int rank = 0; rank < ranks; rank++) {
                group.on(communicators.get(rank))
                        .allReduce(
                                buffers.get(rank),
                                buffers.get(rank),
                                count,
                                DataType.INT32,
                                ReduceOp.SUM,
                                streams.get(rank));
            }
        });
        backend.synchronizeAll(streams, SOON);
        for (DeviceBuffer buffer : buffers) {
            for (int i = 0; i < count; i++) {
                assertThat(buffer.hostSegment().getAtIndex(ValueLayout.JAVA_INT, i))
                        .isEqualTo(i * (ranks * (ranks + 1) / 2));
            }
        }
        backend.closeAll(communicators);
        buffers.forEach(DeviceBuffer::close);
        streams.forEach(DeviceStream::close);
    }

    static Stream<Arguments> nullIsRefusedLikeAnyOtherArgument() {
        return Stream.of(
                nulls("createLocal", w -> w.backend.createLocal(1, null)),
                nulls("create without bootstrap", w -> w.backend.create(null, 0, 1, config())),
                nulls("create without config", w -> w.backend.create(newId(w), 0, 1, null)),
                nulls("group", w -> w.backend.group(null)),
                nulls("group.on", w -> w.backend.group(group -> group.on(null))),
                nulls("record", w -> w.backend.record(null)),
                nulls("split of null", w -> w.backend.split(null, new int[2], new int[2])),
                nulls("split without colors", w -> w.backend.split(w.ranks, null, new int[2])),
                nulls("split without keys", w -> w.backend.split(w.ranks, new int[2], null)),
                nulls(
                        "exchangeCounts of null",
                        w -> w.backend.exchangeCounts(null, new long[2][2])),
                nulls("exchangeCounts without", w -> w.backend.exchangeCounts(w.ranks, null)),
                nulls("without a row", w -> w.backend.exchangeCounts(w.ranks, new long[2][])),
                nulls("a rank's exchangeCounts", w -> w.rank(0).exchangeCounts(null)),
                nulls("closeAll", w -> w.backend.closeAll(null)),
                nulls(
                        "closeAll of a null",
                        w -> w.backend.closeAll(Arrays.asList(w.rank(0), null))),
                nulls("synchronizeAll", w -> w.backend.synchronizeAll(null, SOON)),
                nulls("synchronizeAll for null", w -> w.backend.synchronizeAll(w.streams, null)),
                nulls("abort", w -> w.rank(0).abort(null)),
                nulls("synchronize, idle", w -> w.stream(0).synchronize(null)),
                nulls("copy", w -> w.stream(0).copy(null, w.ints(0, 1), 4)),
                nulls("fill", w -> w.stream(0).fill(null, (byte) 1)),
                nulls("record an event", w -> w.stream(0).record(null)),
                nulls("waitFor", w -> w.stream(0).waitFor(null)),
                nulls("event", w -> w.rank(0).device().createEvent().synchronize(null)),
                nulls("elapsed", w -> w.rank(0).device().createEvent().elapsedSince(null)),
                nulls("a stream", w -> w.rank(0).barrier(null)),
                nulls("a buffer", w -> w.rank(0).send(null, 1, DataType.INT8, 1, w.stream(0))));
    }

    /** Everything thrown is a CollectiveException, and nothing has changed. */
    @ParameterizedTest
    @MethodSource
    void nullIsRefusedLikeAnyOtherArgument(Consumer<World> call) {
        try (World world = new World(2)) {
            assertThatThrownBy(() -> call.accept(world))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessageContaining("null");
            world.assertWorks();
        }
    }

    private static Arguments nulls(String name, Consumer<World> call) {
        return Arguments.of(Named.of(name, call));
    }

    private static CommunicatorConfig config() {
        return CommunicatorConfig.defaults().withOperationTimeout(SOON);
    }

    private static UniqueId newId(World world) {
        return world.backend.newUniqueId();
    }
}
