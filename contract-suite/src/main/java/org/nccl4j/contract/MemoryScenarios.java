package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;

/** Memory that is not simply a device's: of the host for a device, and in a stream's order. */
final class MemoryScenarios {
    private static final int COUNT = 33;

    private MemoryScenarios() {}

    static List<Scenario> all() {
        return List.of(
                new Scenario("memory-of-the-host-is-readable", MemoryScenarios::readable),
                new Scenario("memory-of-the-host-in-every-operation", MemoryScenarios::everywhere),
                new Scenario("memory-of-the-host-sizes", MemoryScenarios::hostSizes),
                new Scenario("memory-of-the-host-closed-early", MemoryScenarios::hostClosedEarly),
                new Scenario("memory-of-a-stream-in-every-operation", MemoryScenarios::ordered),
                new Scenario("memory-of-a-stream-on-another", MemoryScenarios::onAnotherStream),
                new Scenario("memory-of-a-stream-behind-work", MemoryScenarios::behindWork),
                new Scenario("memory-of-a-stream-closed-early", MemoryScenarios::closedEarly),
                new Scenario("memory-of-a-stream-sizes", MemoryScenarios::orderedSizes),
                new Scenario("memory-of-a-stream-refused", MemoryScenarios::refused));
    }

    private static void readable(Stage stage) {
        RankSet ranks = stage.ranks(2);
        ranks.onEvery(rank -> {
            DeviceBuffer host = rank.newHostBuffer(64);
            assertThat(host.isHostAccessible()).isTrue();
            assertThat(host.isReadOnly()).isFalse();
            assertThat(host.sizeBytes()).isEqualTo(64);
            assertThat(host.hostSegment().byteSize()).isEqualTo(64);
            MemorySegment memory = host.hostSegment();
            for (int i = 0; i < 16; i++) {
                memory.setAtIndex(ValueLayout.JAVA_INT, i, i + 100 * rank.rank());
            }
            DeviceBuffer device = rank.newBuffer(64);
            rank.stream().copy(host, device, 64);
            rank.stream().fill(host.slice(0, 32), (byte) -1);
            rank.stream().copy(device.slice(0, 16), host.slice(16, 16), 16);
            rank.synchronize();
            for (int i = 0; i < 16; i++) {
                int written = (i >= 4 && i < 8 ? i - 4 : i) + 100 * rank.rank();
                assertThat(memory.getAtIndex(ValueLayout.JAVA_INT, i))
                        .as("element %d", i)
                        .isEqualTo(i < 4 ? -1 : written);
            }
        });
    }

    /** What is sent, what is received, and both, out of place and in place, in both ways to run. */
    private static void everywhere(Stage stage) {
        OperationProgram.Source both = (rank, number, sizeBytes) -> rank.newHostBuffer(sizeBytes);
        OperationProgram.Source sent =
                (rank, number, sizeBytes) ->
                        number == 0
                                ? rank.newHostBuffer(sizeBytes)
                                : rank.region(number, sizeBytes);
        OperationProgram.Source received =
                (rank, number, sizeBytes) ->
                        number == 1
                                ? rank.newHostBuffer(sizeBytes)
                                : rank.region(number, sizeBytes);
        inEveryOperation(stage, List.of(both, sent, received));
    }

    private static void ordered(Stage stage) {
        inEveryOperation(
                stage,
                List.of((rank, number, sizeBytes) -> {
                    DeviceBuffer made = rank.newOrderedBuffer(sizeBytes);
                    // It is written by another stream of the suite next.
                    rank.synchronize();
                    return made;
                }));
    }

    private static void inEveryOperation(Stage stage, List<OperationProgram.Source> sources) {
        RankSet ranks = stage.ranks(3);
        TierCases cases = new TierCases(stage.seed());
        List<OperationProgram> programs = new ArrayList<>();
        for (Collective collective : Collective.values()) {
            Reduction reduction = collective.reduces() ? Reduction.SUM : null;
            OperationCase operation =
                    cases.operation(collective, DataType.FLOAT32, reduction, ranks.size(), COUNT);
            for (OperationProgram.Source source : sources) {
                programs.add(OperationProgram.exact(operation, source));
                if (collective.hasInPlaceForm()) {
                    programs.add(OperationProgram.exact(operation.asInPlace(), source));
                }
            }
        }
        stage.run(new RankRunner.ThreadPerRank(0), ranks, programs);
        stage.run(new RankRunner.OneThreadWithGroups(), ranks, programs);
    }

    private static void hostSizes(Stage stage) {
        Rank zero = stage.ranks(1).rank(0);
        sizes("host", zero, zero.device()::allocateHost);
    }

    private static void orderedSizes(Stage stage) {
        Rank zero = stage.ranks(1).rank(0);
        sizes("stream", zero, zero.stream()::allocate);
    }

    private interface SizedAllocation {
        DeviceBuffer of(long sizeBytes);
    }

    private static void sizes(String what, Rank rank, SizedAllocation allocation) {
        assertThat(allocation.of(0)).as(what).isSameAs(DeviceBuffer.EMPTY);
        for (long impossible : new long[] {-1, Long.MIN_VALUE, 1L << 60, Long.MAX_VALUE}) {
            assertThat(Expect.refusal(() -> allocation.of(impossible)))
                    .hasMessageContaining(Long.toString(impossible));
        }
        for (long possible : new long[] {1, 3, 4097, (1 << 20) + 1}) {
            DeviceBuffer made = allocation.of(possible);
            assertThat(made.sizeBytes()).isEqualTo(possible);
            assertThat(made.device()).isEqualTo(rank.device());
            rank.stream().fill(made, (byte) 7);
            rank.synchronize();
            assertThat(rank.read(made)).hasSize((int) possible).containsOnly(7);
            made.close();
            made.close();
            assertThat(Expect.refusal(() -> rank.stream().fill(made, (byte) 1)))
                    .hasMessageContaining("closed");
        }
    }

    private static void hostClosedEarly(Stage stage) {
        RankSet ranks = stage.ranks(2);
        closedWithWork(ranks, rank -> rank.device().allocateHost(4L * COUNT));
    }

    private static void closedEarly(Stage stage) {
        RankSet ranks = stage.ranks(2);
        closedWithWork(ranks, rank -> rank.stream().allocate(4L * COUNT));
        // And without any use at all.
        ranks.onEvery(rank -> rank.stream().allocate(4096).close());
        ranks.onEvery(rank -> assertThat(new Summands(rank, 2).sum()).containsExactly(4));
    }

    private interface Allocation {
        DeviceBuffer of(Rank rank);
    }

    /** The first rank closes its buffers while its operation waits for the second. */
    private static void closedWithWork(RankSet ranks, Allocation allocation) {
        ranks.on(
                0,
                rank -> {
                    DeviceBuffer send = allocation.of(rank);
                    DeviceBuffer recv = allocation.of(rank);
                    rank.stream().fill(send, (byte) 1);
                    sum(rank, send, recv);
                    send.close();
                    recv.close();
                    // Memory that is given back too early would be handed out here.
                    for (int i = 0; i < 4; i++) {
                        DeviceBuffer other = allocation.of(rank);
                        rank.newStream().fill(rank.newBuffer(4L * COUNT), (byte) 0x55);
                        other.close();
                    }
                });
        ranks.on(
                1,
                rank -> {
                    DeviceBuffer send = rank.newBuffer(4L * COUNT);
                    DeviceBuffer recv = rank.newBuffer(4L * COUNT);
                    rank.stream().fill(send, (byte) 1);
                    sum(rank, send, recv);
                    rank.synchronize();
                    assertThat(rank.read(recv)).containsOnly(2);
                });
        ranks.onEvery(Rank::synchronize);
    }

    private static void sum(Rank rank, DeviceBuffer send, DeviceBuffer recv) {
        rank.communicator()
                .allReduce(send, recv, COUNT, DataType.INT32, ReduceOp.SUM, rank.stream());
    }

    private static void onAnotherStream(Stage stage) {
        Rank zero = stage.ranks(1).rank(0);
        DeviceStream first = zero.stream();
        DeviceStream second = zero.newStream();
        DeviceEvent event = zero.newEvent();
        for (int round = 0; round < 10; round++) {
            byte value = (byte) (round + 1);
            DeviceBuffer memory = first.allocate(1 << 16);
            first.fill(memory, value);
            first.record(event);
            second.waitFor(event);
            DeviceBuffer copied = zero.newBuffer(1 << 16);
            second.copy(memory, copied, 1 << 16);
            // Given back when both streams have passed it.
            memory.close();
            DeviceBuffer next = first.allocate(1 << 16);
            first.fill(next, (byte) -1);
            next.close();
            second.synchronize(RankSet.DEADLINE);
            assertThat(zero.read(copied)).as("round %d", round).containsOnly(value);
        }
        zero.synchronize();
    }

    /** Allocating waits neither for earlier work of the stream nor for the device. */
    private static void behindWork(Stage stage) {
        RankSet ranks = stage.ranks(2);
        Summands gate = new Summands(ranks.rank(0), 1);
        ranks.on(
                0,
                rank -> {
                    gate.enqueue();
                    long start = System.nanoTime();
                    DeviceBuffer memory = rank.stream().allocate(4L * COUNT);
                    rank.stream().fill(memory, (byte) 3);
                    DeviceBuffer copied = rank.newBuffer(4L * COUNT);
                    rank.stream().copy(memory, copied, 4L * COUNT);
                    memory.close();
                    assertThat(Duration.ofNanos(System.nanoTime() - start))
                            .isLessThan(Duration.ofSeconds(10));
                    Expect.staysBusy("the operation without its peer", rank.stream());
                });
        ranks.on(1, rank -> new Summands(rank, 2).enqueue());
        ranks.onEvery(Rank::synchronize);
        assertThat(gate.result()).containsExactly(3);
    }

    private static void refused(Stage stage) {
        RankSet ranks = stage.ranks(2);
        ranks.onEvery(rank -> {
            DeviceStream closed = rank.device().createStream();
            closed.close();
            assertThat(Expect.refusal(() -> closed.allocate(16))).hasMessageContaining("closed");
            Summands sum = new Summands(rank, 5);
            stage.backend()
                    .group(group -> {
                        sum.enqueue(group.on(rank.communicator()), rank.stream());
                        assertThat(Expect.refusal(() -> rank.stream().allocate(16)))
                                .hasMessageContaining("group");
                    });
            rank.synchronize();
            assertThat(sum.result()).containsExactly(10);
        });
    }
}
