package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.collectives.WaitInterruptedException;

/** Several communicators are closed, and something goes wrong on the way. */
final class ClosingTest {
    private static final Duration SOON = Duration.ofSeconds(20);
    private static final CommunicatorConfig CONFIG =
            CommunicatorConfig.defaults().withOperationTimeout(SOON);

    private final CpuBackend backend = new CpuBackend();

    @Test
    void aTraceThatCannotBeWrittenIsToldWhenItsCommunicatorIsClosed() {
        Path full = Path.of("/dev/full");
        assumeTrue(Files.exists(full), "unsupported: no /dev/full here");
        List<Communicator> traced =
                backend.createLocal(2, CONFIG.withName("traced").withTraceFile(full));
        List<Communicator> others = backend.createLocal(2, CONFIG);
        List<DeviceBuffer> buffers = new ArrayList<>();
        List<DeviceStream> streams = new ArrayList<>();
        for (Communicator communicator : traced) {
            buffers.add(communicator.device().allocate(64));
            streams.add(communicator.device().createStream());
        }
        backend.group(group -> {
            for (int rank = 0; rank < 2; rank++) {
                group.on(traced.get(rank))
                        .allReduce(
                                buffers.get(rank),
                                buffers.get(rank),
                                16,
                                DataType.INT32,
                                ReduceOp.SUM,
                                streams.get(rank));
            }
        });
        backend.synchronizeAll(streams, SOON);

        List<Communicator> all = new ArrayList<>(traced);
        all.addAll(others);
        assertThatThrownBy(() -> backend.closeAll(all))
                .isInstanceOf(UnsupportedException.class)
                .hasMessageStartingWith(
                        "communicator 'traced' is closed, but its trace /dev/full is incomplete: ")
                .hasMessageEndingWith("; free space, or name another file");
        assertThat(all).allMatch(each -> each.status() instanceof CommunicatorStatus.Closed);
        streams.forEach(DeviceStream::close);
        buffers.forEach(DeviceBuffer::close);
    }

    @Test
    void anInterruptWhileWorkIsLeftClosesNothing() {
        List<Communicator> communicators = backend.createLocal(2, CONFIG);
        DeviceStream first = communicators.get(0).device().createStream();
        DeviceStream second = communicators.get(1).device().createStream();
        communicators.get(0).barrier(first);

        Thread.currentThread().interrupt();
        assertThatThrownBy(() -> backend.closeAll(communicators))
                .isInstanceOf(WaitInterruptedException.class);
        assertThat(Thread.interrupted()).isTrue();
        assertThat(communicators)
                .noneMatch(each -> each.status() instanceof CommunicatorStatus.Closed);

        // The work can still be completed, and then both close.
        communicators.get(1).barrier(second);
        backend.closeAll(communicators);
        assertThat(communicators)
                .allMatch(each -> each.status() instanceof CommunicatorStatus.Closed);
        first.close();
        second.close();
    }
}
