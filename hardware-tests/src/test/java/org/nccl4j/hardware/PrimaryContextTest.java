package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.nccl4j.bindings.CudaDriver;
import org.nccl4j.bindings.cudart.CudaRt;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorAbortedException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.nccl.NcclBackend;

/**
 * A process works on the devices that it was given and takes no memory of another: with one process
 * a GPU, a context too many in each of them would be paid by GPU 0 n - 1 times.
 */
@OnEmulator(devices = 4)
final class PrimaryContextTest {
    private static final int FIRST = 2;
    private static final int RANKS = 2;
    private static final CommunicatorConfig CONFIG =
            CommunicatorConfig.defaults().withOperationTimeout(Team.PATIENCE);

    private final Backend backend = new NcclBackend();

    @Test
    void aProcessHasContextsOfItsDevicesAlone(EmulatorControls controls) throws Exception {
        // Nothing of this has one: names, addresses, capabilities.
        assertThat(backend.devices()).hasSize(4);
        assertThat(controls.live("primary contexts")).isZero();

        for (boolean blocking : new boolean[] {true, false}) {
            live(CONFIG.withBlocking(blocking));
            liveUntilAborted(CONFIG.withBlocking(blocking));
        }

        assertThat(controls.live("primary contexts")).isEqualTo(RANKS);
        assertThat(currentContext()).isZero();
    }

    /** A foreign context comes back as well, and nothing begins in it. */
    @Test
    void aThreadKeepsTheContextThatItHas() {
        try (Arena arena = Arena.ofConfined();
                DeviceStream stream = backend.device(FIRST).createStream();
                DeviceBuffer buffer = backend.device(FIRST).allocate(64)) {
            assertThat(CudaRt.cudaSetDevice(FIRST + 1)).isZero();
            long before = currentContext();
            stream.fill(buffer, (byte) 1);
            stream.synchronize(Team.PATIENCE);
            assertThat(currentContext()).isEqualTo(before);
            assertThat(CudaDriver.cuCtxSetCurrent(0)).isZero();
            MemorySegment cell = arena.allocate(ValueLayout.ADDRESS);
            assertThat(CudaDriver.cuCtxGetCurrent(cell)).isZero();
        }
        assertThat(currentContext()).isZero();
    }

    private static long currentContext() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(ValueLayout.JAVA_LONG);
            assertThat(CudaDriver.cuCtxGetCurrent(cell)).isZero();
            return cell.get(ValueLayout.JAVA_LONG, 0);
        }
    }

    private static int currentDevice() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(ValueLayout.JAVA_INT);
            assertThat(CudaDriver.cuCtxGetDevice(cell)).isZero();
            return cell.get(ValueLayout.JAVA_INT, 0);
        }
    }

    private interface RankBody {
        void run(Communicator communicator, int rank) throws InterruptedException;
    }

    private void eachRank(CommunicatorConfig config, RankBody body) throws Exception {
        UniqueId id = backend.newUniqueId();
        try (ExecutorService threads = Executors.newFixedThreadPool(RANKS)) {
            List<Future<Void>> running =
                    threads.invokeAll(
                            List.of(rank(id, 0, config, body), rank(id, 1, config, body)),
                            40,
                            TimeUnit.SECONDS);
            for (Future<Void> each : running) {
                each.get();
            }
        }
    }

    private Callable<Void> rank(UniqueId id, int rank, CommunicatorConfig config, RankBody body) {
        return () -> {
            body.run(backend.create(id, rank, RANKS, config.withDevice(FIRST + rank)), rank);
            // As if it had called cudaSetDevice.
            assertThat(currentDevice()).isEqualTo(FIRST + rank);
            return null;
        };
    }

    private void live(CommunicatorConfig config) throws Exception {
        eachRank(
                config,
                (communicator, rank) -> {
                    try (communicator;
                            DeviceStream stream = communicator.device().createStream();
                            DeviceEvent event = communicator.device().createEvent();
                            DeviceBuffer buffer = communicator.device().allocate(64);
                            DeviceBuffer ordered = stream.allocate(64);
                            DeviceBuffer pinned = communicator.device().allocateHost(64)) {
                        DeviceBuffer host = DeviceBuffer.wrap(Arena.ofAuto().allocate(64));
                        stream.fill(buffer, (byte) 1);
                        communicator.allReduce(
                                buffer, buffer, 4, DataType.INT32, ReduceOp.SUM, stream);
                        communicator.barrier(stream);
                        stream.record(event);
                        stream.waitFor(event);
                        stream.copy(buffer, ordered, 64);
                        stream.copy(ordered, pinned, 64);
                        stream.copy(pinned, host, 64);
                        backend.group(group ->
                                group.on(communicator)
                                        .allReduce(
                                                buffer,
                                                buffer,
                                                4,
                                                DataType.INT32,
                                                ReduceOp.MAX,
                                                stream));
                        stream.completion().toCompletableFuture().join();
                        stream.synchronize(Team.PATIENCE);
                        event.poll();
                        communicator.device().memory();
                        communicator.exchangeCounts(new long[RANKS]).await(Team.PATIENCE);
                        Optional<Communicator> alone =
                                communicator.split(rank, 0).await(Team.PATIENCE);
                        try (Communicator own = alone.orElseThrow()) {
                            own.allReduce(buffer, buffer, 4, DataType.INT32, ReduceOp.SUM, stream);
                            stream.synchronize(Team.PATIENCE);
                        }
                    }
                });
    }

    private void liveUntilAborted(CommunicatorConfig config) throws Exception {
        CountDownLatch connected = new CountDownLatch(RANKS);
        eachRank(
                config,
                (communicator, rank) -> {
                    try (DeviceStream stream = communicator.device().createStream();
                            DeviceBuffer buffer = communicator.device().allocate(64)) {
                        communicator.allReduce(
                                buffer, buffer, 4, DataType.INT32, ReduceOp.SUM, stream);
                        stream.synchronize(Team.PATIENCE);
                        connected.countDown();
                        assertThat(connected.await(20, TimeUnit.SECONDS)).isTrue();
                        communicator.abort(Duration.ofSeconds(10));
                        assertThatThrownBy(() -> communicator.barrier(stream))
                                .isInstanceOf(CommunicatorAbortedException.class);
                        communicator.close();
                    }
                });
    }
}
