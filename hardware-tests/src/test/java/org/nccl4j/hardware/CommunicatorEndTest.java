package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorAbortedException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.NcclOption;
import org.nccl4j.collectives.NcclOptions;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.nccl.NcclBackend;

/** How communicators end, and what is said to who uses one by two threads, on the emulator. */
@OnEmulator
@Timeout(60)
final class CommunicatorEndTest {
    private static final int COUNT = 64;

    private static final CommunicatorConfig CONFIG =
            CommunicatorConfig.defaults()
                    .withName("ending")
                    .withOperationTimeout(Duration.ofSeconds(20));

    private final Backend backend = new NcclBackend();

    private static void sum(Team team, int rank, DeviceBuffer buffer) {
        team.communicator(rank)
                .allReduce(buffer, buffer, COUNT, DataType.INT8, ReduceOp.SUM, team.stream(rank));
    }

    /** The first operation waits inside NCCL for the other rank, which does not come. */
    private static CompletableFuture<Void> enterNccl(
            Team team, EmulatorControls controls, ExecutorService executor, DeviceBuffer buffer) {
        long callsBefore = controls.calls("ncclAllReduce");
        CompletableFuture<Void> inside =
                CompletableFuture.runAsync(() -> sum(team, 0, buffer), executor);
        Awaitility.await()
                .atMost(Team.PATIENCE)
                .until(() -> controls.calls("ncclAllReduce") > callsBefore);
        return inside;
    }

    /** Half of it is for the thread that does not come out of NCCL, and no more. */
    @Test
    void anAbortKeepsToItsTime(EmulatorControls controls) {
        try (ExecutorService executor = Executors.newSingleThreadExecutor()) {
            Team team = Team.local(backend, 2, CONFIG);
            DeviceBuffer buffer = team.buffer(0, COUNT);
            CompletableFuture<Void> inside = enterNccl(team, controls, executor, buffer);

            // Less than what a thread gets by default.
            try {
                team.communicator(0).abort(Duration.ofMillis(450));
            } catch (CollectiveTimeoutException e) {
                assertThat(e).as("on a slow machine").hasMessageContaining("NCCL has ");
            }

            assertThat(inside)
                    .failsWithin(Team.PATIENCE)
                    .withThrowableThat()
                    .withCauseInstanceOf(CommunicatorAbortedException.class);
            team.close();
        }
    }

    @Test
    void anAbortWithoutTimeSaysWhatItWaitsFor(EmulatorControls controls) {
        Team team = Team.local(backend, 2, CONFIG);
        controls.inject("ncclCommAbort:*=delay:2000");
        Communicator communicator = team.communicator(0);

        assertThatThrownBy(() -> communicator.abort(Duration.ofMillis(50)))
                .isInstanceOf(CollectiveTimeoutException.class)
                .hasMessageContaining("rank 0/2")
                .hasMessageContaining("within 0.05s");
        Awaitility.await().atMost(Team.PATIENCE).until(() -> controls.calls("ncclCommAbort") > 0);
        assertThatThrownBy(() -> communicator.abort(Duration.ofSeconds(-1)))
                .isInstanceOf(CollectiveTimeoutException.class)
                .hasMessageContaining("within 0s: NCCL has not come back");

        communicator.abort(Team.PATIENCE);
        team.close();
    }

    @Test
    void aSecondThreadIsTold(EmulatorControls controls) throws Exception {
        try (ExecutorService executor = Executors.newSingleThreadExecutor();
                Team team = Team.local(backend, 2, CONFIG)) {
            DeviceBuffer buffer = team.buffer(0, COUNT);
            DeviceBuffer other = team.buffer(1, COUNT);
            CompletableFuture<Void> inside = enterNccl(team, controls, executor, buffer);

            assertThatThrownBy(() -> sum(team, 0, buffer))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessageContaining("another thread is using")
                    .hasMessageContaining("rank 0/2");
            assertThatThrownBy(() ->
                            backend.group(group ->
                                    group.on(team.communicator(0)).barrier(team.stream(0))))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessageContaining("another thread is using");

            sum(team, 1, other);
            inside.get(Team.PATIENCE.toSeconds(), TimeUnit.SECONDS);
            team.stream(0).synchronize(Team.PATIENCE);
            team.stream(1).synchronize(Team.PATIENCE);
        }
    }

    @Test
    void aRankThatStaysAwayIsLookedForElsewhere() {
        CommunicatorConfig hasty = CONFIG.withOperationTimeout(Duration.ofMillis(300));
        UniqueId id = backend.newUniqueId();

        assertThatThrownBy(() -> backend.create(id, 1, 4, hasty))
                .isInstanceOf(CollectiveTimeoutException.class)
                .hasMessageContaining("on rank 1/4: NCCL has not connected the 4 ranks within 0.3s")
                .hasMessageContaining("ranks 0, 2-3 have not come in this process")
                .hasMessageContaining(id.toString())
                .hasMessageContaining("NCCL_SOCKET_IFNAME");
    }

    @Test
    void anIdThatIsNotMadeInTimeIsGivenUp(EmulatorControls controls) {
        controls.inject("ncclGetUniqueId=delay:2000");
        CommunicatorConfig hasty = CONFIG.withOperationTimeout(Duration.ofMillis(300));

        assertThatThrownBy(() -> backend.createLocal(2, hasty))
                .isInstanceOf(CollectiveTimeoutException.class)
                .hasMessageContaining("has not made a unique id within 0.3s");
    }

    @Test
    void sharingWithPartsIsRefused() {
        CommunicatorConfig sharing =
                CONFIG.withNccl(NcclOptions.none().with(NcclOption.SPLIT_SHARE, 1));

        assertThatThrownBy(() -> backend.createLocal(2, sharing))
                .isInstanceOf(UnsupportedException.class)
                .hasMessageContaining("SPLIT_SHARE");
    }

    @Test
    void anAlgorithmIsRefusedForNcclChoosesItself() {
        assertThatThrownBy(() -> backend.createLocal(2, CONFIG.withAlgorithm("ring")))
                .isInstanceOf(UnsupportedException.class)
                .hasMessageContaining("take algorithm 'ring': NCCL chooses by itself")
                .hasMessageContaining("NCCL_ALGO");
        assertThatThrownBy(() -> backend.algorithm("all-reduce", 2, 1024, CONFIG))
                .isInstanceOf(UnsupportedException.class)
                .hasMessageContaining("does not tell which algorithms it takes");
    }

    /** More operations than are remembered: the oldest that is known is not said to be the one. */
    @Test
    void theOperationThatWaitsMayHaveBeenForgotten() {
        try (Team team =
                Team.local(backend, 2, CONFIG.withOperationTimeout(Duration.ofSeconds(3)))) {
            DeviceBuffer mine = team.buffer(0, COUNT);
            DeviceBuffer other = team.buffer(1, COUNT);
            backend.group(group -> {
                for (int rank = 0; rank < 2; rank++) {
                    DeviceBuffer buffer = rank == 0 ? mine : other;
                    group.on(team.communicator(rank))
                            .allReduce(
                                    buffer,
                                    buffer,
                                    COUNT,
                                    DataType.INT8,
                                    ReduceOp.SUM,
                                    team.stream(rank));
                }
            });
            for (int i = 0; i < 300; i++) {
                sum(team, 0, mine);
            }

            assertThatThrownBy(() -> team.stream(0).synchronize(Team.PATIENCE))
                    .isInstanceOf(CollectiveTimeoutException.class)
                    .hasMessageContaining("or an earlier one")
                    .hasMessageContaining("rank 1 has not called it and last called allReduce #0");
        }
    }

    /** Nobody looks at as many ranks as there might be. */
    @Test
    void anAbsurdSizeIsRefusedInTime() {
        CommunicatorConfig hasty = CONFIG.withOperationTimeout(Duration.ofSeconds(1));
        long startNanos = System.nanoTime();

        assertThatThrownBy(() -> backend.create(backend.newUniqueId(), 0, Integer.MAX_VALUE, hasty))
                .isInstanceOf(CollectiveException.class)
                .hasMessageContaining("rank 0/" + Integer.MAX_VALUE);

        assertThat(Duration.ofNanos(System.nanoTime() - startNanos))
                .isLessThan(Duration.ofSeconds(10));
    }
}
