package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.IntConsumer;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UnsupportedException;

/** Every wrong argument of every operation is refused, by value and range, and changes nothing. */
final class ArgumentScenarios {
    private static final DataType TYPE = DataType.INT32;
    private static final int SIZE = 3;
    private static final int RANK = 1;

    private ArgumentScenarios() {}

    static List<Scenario> all() {
        return List.of(
                new Scenario("V17-bad-arguments", ArgumentScenarios::badArguments),
                new Scenario("V17-unsupported-type-or-reduction", ArgumentScenarios::unsupported),
                new Scenario("V17-bad-host-calls", ArgumentScenarios::badHostCalls),
                new Scenario("V17-ignored-arguments", ArgumentScenarios::ignored));
    }

    private record BadCall(String name, Runnable call, List<String> says) {}

    /** Collects calls of rank 1 of 3 with eight elements per buffer. */
    private static final class BadCalls {
        private final List<BadCall> calls = new ArrayList<>();
        private final Operations on;
        private final DeviceStream stream;
        private final DeviceBuffer a;
        private final DeviceBuffer b;
        private final DeviceBuffer closed;

        private BadCalls(Rank rank) {
            this.on = rank.communicator();
            this.stream = rank.stream();
            this.a = rank.newBuffer(4 * 24L);
            this.b = rank.newBuffer(4 * 24L);
            this.closed = rank.device().allocate(4 * 24L);
            closed.close();
        }

        private void add(String name, Runnable call, String... says) {
            calls.add(new BadCall(name, call, List.of(says)));
        }
    }

    private interface CountedCall {
        void call(DeviceBuffer send, DeviceBuffer recv, long count, DataType type, DeviceStream s);
    }

    /** What is wrong in the same way for every operation with buffers and a count. */
    private static void common(
            BadCalls bad, Rank other, String operation, CountedCall call, int sends, int receives) {
        DeviceBuffer a = bad.a;
        DeviceBuffer b = bad.b;
        DeviceStream s = bad.stream;
        bad.add(operation + " count", () -> call.call(a, b, -1, TYPE, s), operation, "-1");
        bad.add(
                operation + " count beyond memory",
                () -> call.call(a, b, Long.MAX_VALUE / 2, TYPE, s),
                operation,
                Long.toString(Long.MAX_VALUE / 2));
        bad.add(operation + " type", () -> call.call(a, b, 1, null, s), operation, "type", "null");
        bad.add(
                operation + " stream",
                () -> call.call(a, b, 1, TYPE, null),
                operation,
                "stream",
                "null");
        DeviceStream foreign = other.newStream();
        bad.add(
                operation + " stream of another device",
                () -> call.call(a, b, 1, TYPE, foreign),
                operation,
                "stream",
                "device");
        if (sends > 0) {
            DeviceBuffer shortSend = a.slice(0, 4L * sends * 2 - 1);
            bad.add(
                    operation + " short send",
                    () -> call.call(shortSend, b, 2, TYPE, s),
                    operation,
                    "send",
                    Long.toString(4L * sends * 2 - 1),
                    Long.toString(4L * sends * 2));
            bad.add(
                    operation + " null send",
                    () -> call.call(null, b, 1, TYPE, s),
                    operation,
                    "send",
                    "null");
            bad.add(
                    operation + " empty send",
                    () -> call.call(DeviceBuffer.EMPTY, b, 1, TYPE, s),
                    operation,
                    "send");
            bad.add(
                    operation + " closed send",
                    () -> call.call(bad.closed, b, 1, TYPE, s),
                    operation,
                    "send",
                    "closed");
            DeviceBuffer odd = a.slice(2, 64);
            bad.add(
                    operation + " misaligned send",
                    () -> call.call(odd, b, 1, TYPE, s),
                    operation,
                    "send",
                    "multiple of 4");
        }
        if (receives > 0) {
            DeviceBuffer shortRecv = b.slice(0, 4L * receives * 2 - 1);
            bad.add(
                    operation + " short recv",
                    () -> call.call(a, shortRecv, 2, TYPE, s),
                    operation,
                    "recv",
                    Long.toString(4L * receives * 2 - 1),
                    Long.toString(4L * receives * 2));
            bad.add(
                    operation + " null recv",
                    () -> call.call(a, null, 1, TYPE, s),
                    operation,
                    "recv",
                    "null");
            bad.add(
                    operation + " closed recv",
                    () -> call.call(a, bad.closed, 1, TYPE, s),
                    operation,
                    "recv",
                    "closed");
            DeviceBuffer foreignBuffer = other.newBuffer(96);
            bad.add(
                    operation + " recv of another device",
                    () -> call.call(a, foreignBuffer, 1, TYPE, s),
                    operation,
                    "recv",
                    "device");
        }
        if (sends > 0 && receives > 0) {
            DeviceBuffer shifted = a.slice(4, 92);
            bad.add(
                    operation + " overlap",
                    () -> call.call(a, shifted, 2, TYPE, s),
                    operation,
                    "overlap");
        }
    }

    private static void rooted(BadCalls bad, String operation, IntConsumer call) {
        for (int root : new int[] {-1, SIZE, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
            bad.add(
                    operation + " root " + root,
                    () -> call.accept(root),
                    operation,
                    "root",
                    Integer.toString(root),
                    "0 to 2");
        }
    }

    private static void reducing(BadCalls bad, String operation, Consumer<ReduceOp> call) {
        bad.add(operation + " reduction", () -> call.accept(null), operation, "null");
        ReduceOp ofFloats = new ReduceOp.PreMulSum(DataType.FLOAT32, 0);
        bad.add(
                operation + " scalar of another type",
                () -> call.accept(ofFloats),
                operation,
                "FLOAT32",
                "INT32");
    }

    private static List<BadCall> calls(Rank rank, Rank other) {
        BadCalls bad = new BadCalls(rank);
        Operations on = bad.on;
        DeviceBuffer a = bad.a;
        DeviceBuffer b = bad.b;
        DeviceStream stream = bad.stream;
        ReduceOp sum = ReduceOp.SUM;

        common(
                bad,
                other,
                "allReduce",
                (x, y, count, type, s) -> on.allReduce(x, y, count, type, sum, s),
                1,
                1);
        reducing(bad, "allReduce", op -> on.allReduce(a, b, 1, TYPE, op, stream));

        common(
                bad,
                other,
                "reduce",
                (x, y, count, type, s) -> on.reduce(x, y, count, type, sum, RANK, s),
                1,
                1);
        reducing(bad, "reduce", op -> on.reduce(a, b, 1, TYPE, op, 0, stream));
        rooted(bad, "reduce", root -> on.reduce(a, b, 1, TYPE, sum, root, stream));

        common(
                bad,
                other,
                "broadcast",
                (x, y, count, type, s) -> on.broadcast(x, y, count, type, RANK, s),
                1,
                1);
        rooted(bad, "broadcast", root -> on.broadcast(a, b, 1, TYPE, root, stream));

        common(bad, other, "allGather", on::allGather, 1, SIZE);
        DeviceBuffer wrongPlace = a.slice(4L * 2 * 2, 8);
        bad.add(
                "allGather in place of another rank",
                () -> on.allGather(wrongPlace, a, 2, TYPE, stream),
                "allGather",
                "overlap");

        common(
                bad,
                other,
                "reduceScatter",
                (x, y, count, type, s) -> on.reduceScatter(x, y, count, type, sum, s),
                SIZE,
                1);
        reducing(bad, "reduceScatter", op -> on.reduceScatter(a, b, 1, TYPE, op, stream));
        bad.add(
                "reduceScatter in place of another rank",
                () -> on.reduceScatter(a, wrongPlace, 2, TYPE, sum, stream),
                "reduceScatter",
                "overlap");

        common(
                bad,
                other,
                "gather",
                (x, y, count, type, s) -> on.gather(x, y, count, type, RANK, s),
                1,
                SIZE);
        rooted(bad, "gather", root -> on.gather(a, b, 1, TYPE, root, stream));

        common(
                bad,
                other,
                "scatter",
                (x, y, count, type, s) -> on.scatter(x, y, count, type, RANK, s),
                SIZE,
                1);
        rooted(bad, "scatter", root -> on.scatter(a, b, 1, TYPE, root, stream));

        common(bad, other, "allToAll", on::allToAll, SIZE, SIZE);
        bad.add(
                "allToAll in place",
                () -> on.allToAll(a, a, 1, TYPE, stream),
                "allToAll",
                "overlap");

        vectors(bad);
        pointToPoint(bad, other);
        bad.add("barrier stream", () -> on.barrier(null), "barrier", "stream", "null");
        DeviceStream closedStream = rank.device().createStream();
        closedStream.close();
        bad.add("barrier closed stream", () -> on.barrier(closedStream), "closed");
        bad.add(
                "allReduce closed stream",
                () -> on.allReduce(a, b, 1, TYPE, sum, closedStream),
                "closed");
        return bad.calls;
    }

    private static void vectors(BadCalls bad) {
        Operations on = bad.on;
        DeviceBuffer a = bad.a;
        DeviceBuffer b = bad.b;
        DeviceStream stream = bad.stream;
        ReduceOp sum = ReduceOp.SUM;
        BlockLayout two = BlockLayout.even(4, 2);
        BlockLayout three = BlockLayout.packed(2, 3, 1);
        BlockLayout spread = BlockLayout.of(new long[] {2, 3, 1}, new long[] {0, 20, 4});
        bad.add("allGatherV layout", () -> on.allGatherV(a, b, null, TYPE, stream), "allGatherV");
        bad.add(
                "allGatherV layout of 2",
                () -> on.allGatherV(a, b, two, TYPE, stream),
                "allGatherV",
                "2",
                "3");
        bad.add(
                "allGatherV short recv",
                () -> on.allGatherV(a, b.slice(0, 88), spread, TYPE, stream),
                "allGatherV",
                "recv",
                "88",
                "92");
        bad.add(
                "allGatherV overlap",
                () -> on.allGatherV(a.slice(0, 12), a, three, TYPE, stream),
                "allGatherV",
                "overlap");
        bad.add(
                "reduceScatterV layout",
                () -> on.reduceScatterV(a, b, null, TYPE, sum, stream),
                "reduceScatterV");
        bad.add(
                "reduceScatterV layout of 2",
                () -> on.reduceScatterV(a, b, two, TYPE, sum, stream),
                "reduceScatterV",
                "2",
                "3");
        bad.add(
                "reduceScatterV short send",
                () -> on.reduceScatterV(a.slice(0, 88), b, spread, TYPE, sum, stream),
                "reduceScatterV",
                "send",
                "88",
                "92");
        bad.add(
                "reduceScatterV overlap",
                () -> on.reduceScatterV(a, a.slice(0, 12), three, TYPE, sum, stream),
                "reduceScatterV",
                "overlap");
        reducing(bad, "reduceScatterV", op -> on.reduceScatterV(a, b, three, TYPE, op, stream));
        AllToAllVPlan plan = new AllToAllVPlan(spread, three);
        bad.add("allToAllV plan", () -> on.allToAllV(a, b, null, TYPE, stream), "allToAllV");
        bad.add(
                "allToAllV plan of 2",
                () -> on.allToAllV(a, b, new AllToAllVPlan(two, two), TYPE, stream),
                "allToAllV",
                "2",
                "3");
        bad.add(
                "allToAllV short send",
                () -> on.allToAllV(a.slice(0, 88), b, plan, TYPE, stream),
                "allToAllV",
                "send",
                "88",
                "92");
        bad.add(
                "allToAllV short recv",
                () -> on.allToAllV(a, b.slice(0, 20), plan, TYPE, stream),
                "allToAllV",
                "recv",
                "20",
                "24");
        bad.add(
                "allToAllV overlap",
                () -> on.allToAllV(a, a, plan, TYPE, stream),
                "allToAllV",
                "overlap");
    }

    private static void pointToPoint(BadCalls bad, Rank other) {
        Operations on = bad.on;
        DeviceBuffer a = bad.a;
        DeviceBuffer b = bad.b;
        DeviceStream stream = bad.stream;
        common(bad, other, "send", (x, y, count, type, s) -> on.send(x, count, type, 0, s), 1, 0);
        common(bad, other, "recv", (x, y, count, type, s) -> on.recv(y, count, type, 0, s), 0, 1);
        common(
                bad,
                other,
                "sendRecv",
                (x, y, count, type, s) -> on.sendRecv(x, count, 0, y, count, 2, type, s),
                1,
                1);
        bad.add(
                "sendRecv in place",
                () -> on.sendRecv(a, 2, 0, a, 2, 2, TYPE, stream),
                "sendRecv",
                "overlap");
        for (int peer : new int[] {-1, SIZE}) {
            String value = Integer.toString(peer);
            bad.add(
                    "send peer " + peer,
                    () -> on.send(a, 1, TYPE, peer, stream),
                    "send",
                    "peer",
                    value,
                    "0 to 2");
            bad.add(
                    "recv peer " + peer,
                    () -> on.recv(b, 1, TYPE, peer, stream),
                    "recv",
                    "peer",
                    value,
                    "0 to 2");
            bad.add(
                    "sendRecv destination " + peer,
                    () -> on.sendRecv(a, 1, peer, b, 1, 0, TYPE, stream),
                    "sendRecv",
                    "destination",
                    value,
                    "0 to 2");
            bad.add(
                    "sendRecv source " + peer,
                    () -> on.sendRecv(a, 1, 0, b, 1, peer, TYPE, stream),
                    "sendRecv",
                    "source",
                    value,
                    "0 to 2");
        }
        bad.add("send to itself", () -> on.send(a, 1, TYPE, RANK, stream), "send", "group");
        bad.add("recv from itself", () -> on.recv(b, 1, TYPE, RANK, stream), "recv", "group");
    }

    private static void badArguments(Stage stage) {
        RankSet ranks = stage.ranks(SIZE);
        List<Summands> sums = ranks.ranks().stream().map(r -> new Summands(r, 2)).toList();
        List<BadCall> calls = calls(ranks.rank(RANK), ranks.rank(0));
        if (stage.capabilities().hostBuffers()) {
            Rank rank = ranks.rank(RANK);
            DeviceBuffer send = rank.newBuffer(64);
            DeviceBuffer readOnly = DeviceBuffer.wrap(Arena.ofAuto().allocate(64).asReadOnly());
            calls.add(
                    new BadCall(
                            "allReduce read-only recv",
                            () ->
                                    rank.communicator()
                                            .allReduce(
                                                    send,
                                                    readOnly,
                                                    1,
                                                    TYPE,
                                                    ReduceOp.SUM,
                                                    rank.stream()),
                            List.of("allReduce", "recv", "read-only")));
        }
        for (BadCall bad : calls) {
            ranks.on(
                    RANK,
                    rank -> {
                        InvalidArgumentException refusal;
                        try {
                            refusal = Expect.refusal(bad.call());
                        } catch (AssertionError e) {
                            throw new AssertionError(bad.name() + ": " + e.getMessage(), e);
                        }
                        assertThat(refusal.getMessage()).as(bad.name()).contains(bad.says());
                        assertThat(rank.communicator().status())
                                .as(bad.name())
                                .isInstanceOf(CommunicatorStatus.Ready.class);
                        assertThat(rank.stream().poll()).as("nothing was enqueued").isTrue();
                    });
            ranks.onEvery(rank -> assertThat(sums.get(rank.rank()).sum()).containsExactly(6));
        }
        stage.counts(calls.size());
    }

    private static void unsupported(Stage stage) {
        RankSet ranks = stage.ranks(1);
        Rank zero = ranks.rank(0);
        DeviceBuffer a = zero.newBuffer(64);
        DeviceBuffer b = zero.newBuffer(64);
        int refused = 0;
        for (DataType type : DataType.values()) {
            for (Reduction reduction : Reduction.values()) {
                ReduceOp op = reduction.operator(type, 0);
                if (stage.capabilities().supports(type, op)) {
                    continue;
                }
                refused++;
                try {
                    zero.communicator().allReduce(a, b, 1, type, op, zero.stream());
                } catch (UnsupportedException e) {
                    assertThat(e).hasMessageContaining(type.toString());
                    continue;
                }
                throw new AssertionError(reduction + " of " + type + " was not refused");
            }
        }
        if (refused == 0) {
            assertThat(stage.capabilities().types()).contains(DataType.values());
        }
        assertThat(zero.stream().poll()).isTrue();
    }

    private static void badHostCalls(Stage stage) {
        RankSet ranks = stage.ranks(SIZE);
        int limit = stage.backend().deviceLimit();
        ranks.on(
                RANK,
                rank -> {
                    var communicator = rank.communicator();
                    assertThat(Expect.refusal(() -> communicator.split(-2, 0)))
                            .hasMessageContaining("-2");
                    assertThat(Expect.refusal(() -> communicator.exchangeCounts(new long[2])))
                            .hasMessageContaining("exchangeCounts")
                            .hasMessageContaining("3");
                    assertThat(
                                    Expect.refusal(() ->
                                            communicator.exchangeCounts(new long[] {0, -5, 0})))
                            .hasMessageContaining("-5");
                });
        CommunicatorConfig config = CommunicatorConfig.defaults();
        for (int wrong : new int[] {0, -1, limit + 1}) {
            assertThat(Expect.refusal(() -> stage.backend().createLocal(wrong, config)))
                    .hasMessageContaining(Integer.toString(wrong));
        }
        for (int wrong : new int[] {-1, limit}) {
            assertThat(Expect.refusal(() -> stage.backend().device(wrong)))
                    .hasMessageContaining(Integer.toString(wrong));
        }
        ranks.onEvery(rank -> assertThat(new Summands(rank, 2).sum()).containsExactly(6));
    }

    /** What a rank neither reads nor writes may be anything. */
    private static void ignored(Stage stage) {
        RankSet ranks = stage.ranks(2);
        ranks.onEvery(rank -> {
            Operations on = rank.communicator();
            DeviceStream stream = rank.stream();
            DeviceBuffer a = rank.newBuffer(Elements.int32(3, 4, 0, 0));
            DeviceBuffer b = rank.newBuffer(Elements.int32(0, 0, 0, 0));
            DeviceBuffer closed = rank.device().allocate(4);
            closed.close();
            boolean root = rank.rank() == 0;
            on.reduce(a, root ? b : closed, 2, TYPE, ReduceOp.SUM, 0, stream);
            on.gather(a, root ? b : a, 1, TYPE, 0, stream);
            on.broadcast(root ? a : closed, b, 2, TYPE, 0, stream);
            on.scatter(root ? a : b, b, 1, TYPE, 0, stream);
            rank.synchronize();
            assertThat(Elements.toInt32(rank.read(b))).containsExactly(root ? 3 : 4, 4, 0, 0);
        });
    }
}
