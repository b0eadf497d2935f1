package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.List;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.Registration;

/** Registered buffers: the same results, and an order of closing that is kept. */
final class RegistrationScenarios {
    private RegistrationScenarios() {}

    static List<Scenario> all() {
        return List.of(
                new Scenario("register-in-operations", RegistrationScenarios::operations),
                new Scenario("register-twice", RegistrationScenarios::twice),
                new Scenario("register-memory-of-the-host", RegistrationScenarios::host),
                new Scenario("register-refused", RegistrationScenarios::refused),
                new Scenario("register-closed-under-work", RegistrationScenarios::underWork),
                new Scenario("register-buffer-closed-first", RegistrationScenarios::bufferFirst),
                new Scenario("register-open-at-close", RegistrationScenarios::openAtClose),
                new Scenario("register-and-abort", RegistrationScenarios::aborted));
    }

    private static RankSet ranks(Stage stage, int size) {
        if (!stage.capabilities().registration()) {
            throw stage.unsupported("registration");
        }
        return stage.ranks(size);
    }

    private static void operations(Stage stage) {
        RankSet ranks = ranks(stage, 3);
        ranks.onEvery(rank -> {
            Summands summands = new Summands(rank, 1, 2, 3);
            try (Registration send = rank.communicator().register(summands.send());
                    Registration recv = rank.communicator().register(summands.recv())) {
                assertThat(send).isNotSameAs(recv);
                assertThat(summands.sum()).containsExactly(3, 6, 9);
                assertThat(summands.sum()).containsExactly(3, 6, 9);
            }
            assertThat(summands.sum()).containsExactly(3, 6, 9);
        });
    }

    /** Parts of one allocation, and the same once more; each is closed for itself. */
    private static void twice(Stage stage) {
        RankSet ranks = ranks(stage, 2);
        ranks.onEvery(rank -> {
            DeviceBuffer whole = rank.newBuffer(1 << 16);
            List<Registration> open = new ArrayList<>();
            for (DeviceBuffer each :
                    List.of(whole, whole, whole.slice(0, 64), whole.slice(4096, 8192))) {
                open.add(rank.communicator().register(each));
            }
            open.removeFirst().close();
            rank.communicator()
                    .allReduce(whole, whole, 1 << 14, DataType.INT32, ReduceOp.SUM, rank.stream());
            rank.synchronize();
            open.forEach(Registration::close);
            open.forEach(Registration::close);
        });
    }

    private static void host(Stage stage) {
        RankSet ranks = ranks(stage, 2);
        ranks.onEvery(rank -> rank.communicator().register(rank.newHostBuffer(4096)).close());
    }

    private static void refused(Stage stage) {
        RankSet ranks = ranks(stage, 2);
        DeviceBuffer closed = ranks.rank(0).device().allocate(64);
        closed.close();
        DeviceBuffer elsewhere = ranks.rank(1).newBuffer(64);
        ranks.on(
                0,
                rank -> {
                    assertThat(Expect.refusal(() -> rank.communicator().register(closed)))
                            .hasMessageContaining("closed");
                    assertThat(
                                    Expect.refusal(
                                            () -> rank.communicator().register(DeviceBuffer.EMPTY)))
                            .hasMessageContaining("empty");
                    assertThat(Expect.refusal(() -> rank.communicator().register(elsewhere)))
                            .hasMessageContaining("device 0");
                });
        ranks.onEvery(rank -> assertThat(new Summands(rank, 1).sum()).containsExactly(2));
    }

    private static void underWork(Stage stage) {
        RankSet ranks = ranks(stage, 2);
        List<Summands> summands = ranks.ranks().stream().map(r -> new Summands(r, 5)).toList();
        Registration[] open = new Registration[1];
        ranks.on(
                0,
                rank -> {
                    open[0] = rank.communicator().register(summands.get(0).send());
                    summands.get(0).enqueue();
                    assertThat(Expect.refusal(open[0]::close)).hasMessageContaining("synchronize");
                });
        ranks.on(1, rank -> assertThat(summands.get(1).sum()).containsExactly(10));
        ranks.on(
                0,
                rank -> {
                    rank.synchronize();
                    open[0].close();
                    assertThat(summands.get(0).result()).containsExactly(10);
                });
    }

    private static void bufferFirst(Stage stage) {
        RankSet ranks = ranks(stage, 2);
        ranks.onEvery(rank -> {
            DeviceBuffer buffer = rank.device().allocate(1 << 12);
            Registration open = rank.communicator().register(buffer);
            buffer.close();
            assertThat(new Summands(rank, 4).sum()).containsExactly(8);
            open.close();
        });
    }

    private static void openAtClose(Stage stage) {
        RankSet ranks = ranks(stage, 2);
        List<Registration> open = new ArrayList<>();
        ranks.on(0, rank -> open.add(rank.communicator().register(rank.newBuffer(256))));
        ranks.on(
                0,
                rank -> {
                    assertThat(Expect.refusal(rank.communicator()::close))
                            .hasMessageContaining("registration")
                            .hasMessageContaining("256 bytes");
                    assertThat(rank.communicator().status())
                            .isInstanceOf(CommunicatorStatus.Ready.class);
                });
        ranks.onEvery(rank -> assertThat(new Summands(rank, 1).sum()).containsExactly(2));
        ranks.on(0, rank -> open.getFirst().close());
        ranks.onEvery(rank -> rank.communicator().close());
    }

    private static void aborted(Stage stage) {
        RankSet ranks = ranks(stage, 2);
        List<Registration> open = new ArrayList<>();
        ranks.on(0, rank -> open.add(rank.communicator().register(rank.newBuffer(256))));
        ranks.on(1, rank -> rank.communicator().abort(RankSet.DEADLINE));
        ranks.on(0, rank -> open.getFirst().close());
        ranks.onEvery(rank -> rank.communicator().close());
    }
}
