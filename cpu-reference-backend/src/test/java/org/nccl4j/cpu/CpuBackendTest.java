package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;

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
}
