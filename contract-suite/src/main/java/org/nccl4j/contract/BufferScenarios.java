package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.ReduceOp;

/** Whose memory operations take, and for how long. */
final class BufferScenarios {
    private BufferScenarios() {}

    static List<Scenario> all() {
        return List.of(
                new Scenario("buffer-closed-after-enqueue", BufferScenarios::closedAfterEnqueue),
                new Scenario("buffer-use-after-close", BufferScenarios::useAfterClose),
                new Scenario("buffer-wrapped-host-memory", BufferScenarios::wrapped),
                new Scenario("buffer-wrap-refused", BufferScenarios::refused),
                new Scenario("buffer-beyond-2-gib", BufferScenarios::large),
                new Scenario("buffer-allocation", BufferScenarios::allocation));
    }

    private static void closedAfterEnqueue(Stage stage) {
        RankSet ranks = stage.ranks(2);
        int count = 100_000;
        ranks.on(
                0,
                rank -> {
                    DeviceBuffer send = rank.device().allocate(4L * count);
                    DeviceBuffer recv = rank.device().allocate(4L * count);
                    rank.stream().fill(send, (byte) 1);
                    rank.communicator()
                            .allReduce(
                                    send, recv, count, DataType.INT32, ReduceOp.SUM, rank.stream());
                    send.close();
                    recv.close();
                    send.close();
                    // Memory that is given back too early would be handed out here.
                    for (int i = 0; i < 4; i++) {
                        DeviceBuffer other = rank.newBuffer(4L * count);
                        DeviceBuffer filler = rank.newBuffer(4L * count);
                        rank.newStream().fill(other, (byte) 0x55);
                        rank.newStream().fill(filler, (byte) 0x33);
                    }
                });
        ranks.on(
                1,
                rank -> {
                    DeviceBuffer send = rank.newBuffer(4L * count);
                    DeviceBuffer recv = rank.newBuffer(4L * count);
                    rank.stream().fill(send, (byte) 1);
                    rank.communicator()
                            .allReduce(
                                    send, recv, count, DataType.INT32, ReduceOp.SUM, rank.stream());
                    rank.synchronize();
                    assertThat(rank.read(recv)).containsOnly(2);
                });
        ranks.onEvery(Rank::synchronize);
    }

    private static void useAfterClose(Stage stage) {
        RankSet ranks = stage.ranks(2);
        ranks.onEvery(rank -> {
            DeviceBuffer whole = rank.device().allocate(64);
            DeviceBuffer part = whole.slice(16, 16);
            DeviceBuffer recv = rank.newBuffer(16);
            part.close();
            assertThat(whole.isClosed()).as("closing a part does nothing").isFalse();
            whole.close();
            assertThat(part.isClosed()).isTrue();
            for (DeviceBuffer gone : List.of(whole, part)) {
                assertThat(
                                Expect.refusal(() ->
                                        rank.communicator()
                                                .allReduce(
                                                        gone,
                                                        recv,
                                                        4,
                                                        DataType.INT32,
                                                        ReduceOp.SUM,
                                                        rank.stream())))
                        .hasMessageContaining("allReduce")
                        .hasMessageContaining("send")
                        .hasMessageContaining("closed");
                assertThat(
                                Expect.refusal(() ->
                                        rank.communicator()
                                                .allReduce(
                                                        recv,
                                                        gone,
                                                        4,
                                                        DataType.INT32,
                                                        ReduceOp.SUM,
                                                        rank.stream())))
                        .hasMessageContaining("recv")
                        .hasMessageContaining("closed");
                assertThat(Expect.refusal(() -> rank.stream().fill(gone, (byte) 1)))
                        .hasMessageContaining("closed");
            }
            DeviceBuffer.EMPTY.close();
            assertThat(DeviceBuffer.EMPTY.isClosed()).isFalse();
        });
        ranks.onEvery(rank -> assertThat(new Summands(rank, 2).sum()).containsExactly(4));
    }

    private static void wrapped(Stage stage) {
        if (!stage.capabilities().hostBuffers()) {
            throw stage.unsupported("operations on host memory");
        }
        int count = 1025;
        RankSet ranks = stage.ranks(2);
        try (Arena shared = Arena.ofShared()) {
            List<List<MemorySegment>> kinds = new ArrayList<>();
            for (int r = 0; r < 2; r++) {
                kinds.add(hostMemory(4L * count, shared));
            }
            for (int kind = 0; kind < kinds.getFirst().size(); kind++) {
                int k = kind;
                ranks.onEvery(rank -> {
                    DeviceBuffer send = DeviceBuffer.wrap(kinds.get(rank.rank()).get(k));
                    DeviceBuffer recv = rank.newBuffer(4L * count);
                    int[] values = new int[count];
                    for (int i = 0; i < count; i++) {
                        values[i] = i * (rank.rank() + 1) + k;
                    }
                    rank.write(Elements.int32(values), send);
                    sum(rank, send, recv, count);
                    for (int i = 0; i < count; i++) {
                        values[i] = 3 * i + 2 * k;
                    }
                    assertThat(rank.read(recv)).isEqualTo(Elements.int32(values));
                    sum(rank, recv, send, count);
                    for (int i = 0; i < count; i++) {
                        values[i] *= 2;
                    }
                    assertThat(rank.read(send)).isEqualTo(Elements.int32(values));
                });
                stage.counts(1);
            }
            ByteBuffer direct = ByteBuffer.allocateDirect(64);
            direct.position(16).limit(48);
            assertThat(DeviceBuffer.wrap(direct).sizeBytes()).isEqualTo(32);
        }
    }

    private static void sum(Rank rank, DeviceBuffer send, DeviceBuffer recv, int count) {
        rank.communicator()
                .allReduce(send, recv, count, DataType.INT32, ReduceOp.SUM, rank.stream());
        rank.synchronize();
    }

    private static List<MemorySegment> hostMemory(long sizeBytes, Arena shared) {
        return List.of(
                MemorySegment.ofBuffer(ByteBuffer.allocateDirect((int) sizeBytes + 8))
                        .asSlice(0, sizeBytes),
                shared.allocate(sizeBytes, 8),
                Arena.ofAuto().allocate(sizeBytes, 8),
                Arena.global().allocate(sizeBytes, 8),
                mapped(sizeBytes, shared));
    }

    private static MemorySegment mapped(long sizeBytes, Arena arena) {
        try {
            Path file = Files.createTempFile("contract", ".bin");
            try (FileChannel channel =
                    FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                return channel.map(FileChannel.MapMode.READ_WRITE, 0, sizeBytes, arena);
            } finally {
                Files.delete(file);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void refused(Stage stage) {
        InvalidArgumentException heap =
                Expect.refusal(() -> DeviceBuffer.wrap(MemorySegment.ofArray(new byte[8])));
        assertThat(heap).hasMessageContaining("heap").hasMessageContaining("Arena");
        InvalidArgumentException heapBuffer =
                Expect.refusal(() -> DeviceBuffer.wrap(ByteBuffer.allocate(8)));
        assertThat(heapBuffer).hasMessageContaining("allocateDirect");
        try (Arena confined = Arena.ofConfined()) {
            MemorySegment segment = confined.allocate(8);
            assertThat(Expect.refusal(() -> DeviceBuffer.wrap(segment)))
                    .hasMessageContaining("confined")
                    .hasMessageContaining("Arena.ofShared()");
        }
        if (!stage.capabilities().hostBuffers()) {
            RankSet ranks = stage.ranks(1);
            Rank zero = ranks.rank(0);
            DeviceBuffer host = DeviceBuffer.wrap(Arena.ofAuto().allocate(8));
            Expect.refusal(() -> sum(zero, host, zero.newBuffer(8), 2));
        }
    }

    /** Offsets that do not fit an int; only the ends of the buffers are ever touched. */
    private static void large(Stage stage) {
        long far = (1L << 31) + 8;
        int count = 3;
        RankSet ranks = stage.ranks(2);
        BlockLayout layout = BlockLayout.of(new long[] {count, count}, new long[] {far, 0});
        AllToAllVPlan plan = new AllToAllVPlan(BlockLayout.packed(count, count), layout);
        ranks.onEvery(rank -> {
            byte r = (byte) (10 * rank.rank());
            DeviceBuffer send =
                    rank.newBuffer(
                            new byte[] {
                                r,
                                (byte) (r + 1),
                                (byte) (r + 2),
                                (byte) (r + 3),
                                (byte) (r + 4),
                                (byte) (r + 5)
                            });
            DeviceBuffer recv = sparse(stage, rank, far + count);
            DeviceBuffer ofZero = recv.slice(far, count);
            DeviceBuffer ofOne = recv.slice(0, count);
            rank.communicator().allGatherV(send, recv, layout, DataType.UINT8, rank.stream());
            rank.synchronize();
            assertThat(rank.read(ofZero)).containsExactly(0, 1, 2);
            assertThat(rank.read(ofOne)).containsExactly(10, 11, 12);
            rank.communicator().allToAllV(send, recv, plan, DataType.UINT8, rank.stream());
            rank.synchronize();
            int from = 3 * rank.rank();
            assertThat(rank.read(ofZero)).containsExactly(from, from + 1, from + 2);
            assertThat(rank.read(ofOne)).containsExactly(10 + from, 11 + from, 12 + from);
        });
    }

    /** Memory that takes no room until it is touched. */
    private static DeviceBuffer sparse(Stage stage, Rank rank, long sizeBytes) {
        if (stage.capabilities().hostBuffers()) {
            return DeviceBuffer.wrap(mapped(sizeBytes, Arena.ofAuto()));
        }
        long freeBytes = rank.device().memory().freeBytes();
        if (freeBytes < sizeBytes) {
            throw stage.unsupported("a buffer over 2 GiB, " + freeBytes + " bytes are free");
        }
        return rank.newBuffer(sizeBytes);
    }

    private static void allocation(Stage stage) {
        RankSet ranks = stage.ranks(1);
        Rank zero = ranks.rank(0);
        assertThat(zero.device().allocate(0)).isSameAs(DeviceBuffer.EMPTY);
        assertThat(Expect.refusal(() -> zero.device().allocate(-1))).hasMessageContaining("-1");
        assertThat(Expect.refusal(() -> zero.device().allocate(1L << 60)))
                .hasMessageContaining(Long.toString(1L << 60));
        DeviceBuffer one = zero.newBuffer(1);
        assertThat(one.sizeBytes()).isEqualTo(1);
        assertThat(one.device()).isEqualTo(zero.device());
        assertThatThrownBy(() -> one.slice(0, 2)).isInstanceOf(InvalidArgumentException.class);
        assertThat(zero.device().memory().totalBytes()).isPositive();
        assertThat(zero.device().memory().freeBytes())
                .isBetween(1L, zero.device().memory().totalBytes());
    }
}
