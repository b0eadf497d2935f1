package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.assertj.core.api.Assertions.catchThrowable;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Random;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.CollectiveException.Recovery;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.ReduceOp;

/**
 * What one rank writes no other may use in the same operation; all else may lie as it likes. Calls
 * are held against a map of one region's elements that is filled element by element.
 */
@Timeout(120)
final class OverlapsTest {
    private static final DataType TYPE = DataType.INT32;
    private static final int REGION = 4096;
    private static final int[] SIZES = {2, 3, 9};

    private final Arena arena = Arena.ofAuto();
    private final MemorySegment region = arena.allocate(4L * REGION, 64);

    static Stream<Arguments> kindsAndSizes() {
        return Stream.of(OperationKind.values())
                .filter(OverlapsTest::movesData)
                .flatMap(kind ->
                        Arrays.stream(SIZES)
                                .filter(n -> kind != OperationKind.SEND_RECV || n == 2)
                                .mapToObj(n -> Arguments.of(kind, n)));
    }

    private static boolean movesData(OperationKind kind) {
        return switch (kind) {
            case BARRIER, SPLIT, EXCHANGE_COUNTS -> false;
            default -> true;
        };
    }

    @ParameterizedTest
    @MethodSource("kindsAndSizes")
    void adjacentRangesMayBeUsedAndOneCommonElementIsToldToAll(OperationKind kind, int n) {
        for (boolean fromSend : new boolean[] {true, false}) {
            for (boolean toSend : new boolean[] {true, false}) {
                try (World world = new World(n)) {
                    Call call = new Call(kind, n, 3, 1);
                    call.pack();
                    assertThat(call.overlaps()).isFalse();
                    check(world, call, "packed");
                    // The same again, which the communicator knows by now.
                    check(world, call, "packed, again");
                    if (call.extent(0, toSend) == 0 || call.extent(n - 1, fromSend) == 0) {
                        continue;
                    }
                    // The end of the last rank's range goes into the start of the first one's.
                    int[] moved = fromSend ? call.sendAt : call.recvAt;
                    int[] hit = toSend ? call.sendAt : call.recvAt;
                    moved[n - 1] = hit[0] - call.extent(n - 1, fromSend) + 1;
                    String what =
                            (fromSend ? "send" : "recv") + " to " + (toSend ? "send" : "recv");
                    check(world, call, what);
                }
            }
        }
    }

    @ParameterizedTest
    @MethodSource("kindsAndSizes")
    void aRankMayWorkInPlaceBesideTheOthers(OperationKind kind, int n) {
        try (World world = new World(n)) {
            Call call = new Call(kind, n, 3, n - 1);
            call.pack();
            for (int rank = 0; rank < n; rank++) {
                switch (kind) {
                    case ALL_REDUCE, REDUCE, BROADCAST -> call.recvAt[rank] = call.sendAt[rank];
                    case ALL_GATHER -> call.sendAt[rank] = call.recvAt[rank] + 3 * rank;
                    case GATHER ->
                            call.sendAt[rank] = call.recvAt[rank] + (rank == n - 1 ? 3 * rank : 0);
                    case REDUCE_SCATTER -> call.recvAt[rank] = call.sendAt[rank] + 3 * rank;
                    case SCATTER ->
                            call.recvAt[rank] = call.sendAt[rank] + (rank == n - 1 ? 3 * rank : 0);
                    case ALL_GATHER_V ->
                            call.sendAt[rank] =
                                    call.recvAt[rank]
                                            + (int) call.recvLayouts[rank].offsetElements(rank);
                    case REDUCE_SCATTER_V ->
                            call.recvAt[rank] =
                                    call.sendAt[rank]
                                            + (int) call.sendLayouts[rank].offsetElements(rank);
                    case ALL_TO_ALL, ALL_TO_ALL_V, SEND_RECV -> {}
                    case BARRIER, SPLIT, EXCHANGE_COUNTS -> throw new AssertionError(kind);
                }
            }
            assertThat(call.overlaps()).isFalse();
            check(world, call, "in place");
        }
    }

    @ParameterizedTest
    @MethodSource("kindsAndSizes")
    void allMayReadTheSame(OperationKind kind, int n) {
        try (World world = new World(n)) {
            Call call = new Call(kind, n, 3, 0);
            call.pack();
            Arrays.fill(call.sendAt, REGION / 4 * 3);
            assertThat(call.overlaps()).isFalse();
            check(world, call, "one input");
        }
    }

    static Stream<Arguments> layoutsAndSizes() {
        return Stream.of(
                        OperationKind.ALL_GATHER_V,
                        OperationKind.REDUCE_SCATTER_V,
                        OperationKind.ALL_TO_ALL_V)
                .flatMap(kind -> Arrays.stream(SIZES).mapToObj(n -> Arguments.of(kind, n)));
    }

    @ParameterizedTest
    @MethodSource("layoutsAndSizes")
    void blocksMayLieInEachOthersGaps(OperationKind kind, int n) {
        for (boolean send : new boolean[] {true, false}) {
            try (World world = new World(n)) {
                Call call = new Call(kind, n, 3, -1);
                call.interleave();
                assertThat(call.overlaps()).isFalse();
                check(world, call, "interleaved");
                check(world, call, "interleaved, again");
                if (send) {
                    call.sendAt[n - 1]--;
                } else {
                    call.recvAt[n - 1] = call.recvAt[n - 2];
                }
                assertThat(call.overlaps()).isTrue();
                check(world, call, "interleaved, one moved");
            }
        }
    }

    @Test
    void whatIsLongerThanBeforeIsLookedAtAgain() {
        for (int n : SIZES) {
            try (World world = new World(n)) {
                for (int count = 3; count <= 5; count++) {
                    Call call = new Call(OperationKind.ALL_REDUCE, n, count, -1);
                    for (int rank = 0; rank < n; rank++) {
                        call.sendAt[rank] = 4 * rank;
                        call.recvAt[rank] = 4 * rank;
                    }
                    assertThat(call.overlaps()).isEqualTo(count == 5);
                    check(world, call, "in place");
                }
            }
        }
    }

    @Test
    void anyCallIsJudgedAsElementByElement() {
        long seed = new Random().nextLong();
        Random random = new Random(seed);
        OperationKind[] kinds =
                Stream.of(OperationKind.values())
                        .filter(OverlapsTest::movesData)
                        .toArray(OperationKind[]::new);
        int overlapping = 0;
        for (int round = 0; round < 120; round++) {
            int n = 2 + random.nextInt(10);
            try (World world = new World(n)) {
                boolean failed = false;
                for (int i = 0; i < 10 && !failed; i++) {
                    OperationKind kind = kinds[random.nextInt(kinds.length)];
                    Call call = new Call(kind, n, 1 + random.nextInt(4), random.nextInt(n));
                    if (call.hasLayouts() && random.nextBoolean()) {
                        call.interleave();
                    } else {
                        call.pack();
                    }
                    if (random.nextInt(3) == 0) {
                        int[] moved = random.nextBoolean() ? call.sendAt : call.recvAt;
                        moved[random.nextInt(n)] += random.nextInt(41) - 20;
                    }
                    if (!call.isRefused()) {
                        failed = check(world, call, "seed " + seed + ", round " + round);
                    }
                }
                overlapping += failed ? 1 : 0;
            }
        }
        assertThat(overlapping).as("seed %d", seed).isBetween(20, 119);
    }

    @Test
    void saysWhoseMemoryItIsAndWhatToDo() {
        try (World world = new World(2)) {
            DeviceBuffer zero = buffer(0, 8);
            DeviceBuffer one = buffer(6, 8);
            world.allReduce(0, zero);
            world.allReduce(1, one);
            String text =
                    "communicator 'world': ranks' memory overlaps in allReduce #0: what rank 0/2"
                            + " receives into "
                            + text(zero)
                            + " and what rank 1/2 receives into "
                            + text(one)
                            + " have 8 bytes in common from 0x"
                            + Long.toHexString(one.address())
                            + "; what a rank receives into no other rank may use: give each rank"
                            + " memory of its own, or slices that lie apart (their offsets and"
                            + " lengths are bytes, counts are elements), and create a new"
                            + " communicator";
            assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG)).hasMessage(text);
            assertThatThrownBy(() -> world.stream(1).synchronize(World.LONG)).hasMessage(text);
        }
        try (World world = new World(2)) {
            Call call = new Call(OperationKind.ALL_GATHER_V, 2, 3, -1);
            call.interleave();
            call.recvAt[1] = call.recvAt[0] - 1;
            call.enqueue(world, 0);
            call.enqueue(world, 1);
            assertThatThrownBy(() -> world.stream(0).synchronize(World.LONG))
                    .hasMessageContainingAll(
                            "overlaps in allGatherV #0: what rank 0/2 receives into [0x",
                            ", +12) as block 0 and what rank 1/2 receives into [0x",
                            " as block 0 have 8 bytes in common");
        }
    }

    @Test
    void aSendAndAReceiveOfOneRankMustLieApartToo() {
        for (int at : new int[] {3, 2}) {
            try (World world = new World(2)) {
                Communicator rank = world.rank(0);
                DeviceStream stream = world.stream(0);
                world.backend.group(group -> {
                    group.on(rank).send(buffer(0, 3), 3, TYPE, 0, stream);
                    group.on(rank).recv(buffer(at, 3), 3, TYPE, 0, stream);
                });
                if (at == 3) {
                    stream.synchronize(World.LONG);
                } else {
                    assertThatThrownBy(() -> stream.synchronize(World.LONG))
                            .isInstanceOf(InvalidArgumentException.class)
                            .hasMessageContainingAll(
                                    "send/recv #0 from rank 0 to rank 0: what rank 0/2 sends from",
                                    "and what rank 0/2 receives into",
                                    "4 bytes in common");
                }
            }
        }
    }

    private static String text(DeviceBuffer buffer) {
        return "[0x" + Long.toHexString(buffer.address()) + ", +" + buffer.sizeBytes() + ")";
    }

    private DeviceBuffer buffer(int at, int count) {
        return DeviceBuffer.wrap(region.asSlice(4L * at, 4L * count));
    }

    /** Has all ranks make their calls, which must be judged as the map says. */
    private static boolean check(World world, Call call, String what) {
        String text = call + ", " + what;
        boolean overlaps = call.overlaps();
        for (int rank = 0; rank < call.n; rank++) {
            call.enqueue(world, rank);
        }
        for (int rank = 0; rank < call.participants(); rank++) {
            DeviceStream stream = world.stream(rank);
            Throwable failure = catchThrowable(() -> stream.synchronize(World.LONG));
            if (!overlaps) {
                assertThat(failure).as(text).isNull();
                continue;
            }
            assertThat(failure)
                    .as(text)
                    .isInstanceOfSatisfying(
                            InvalidArgumentException.class,
                            e ->
                                    assertThat(e.recovery())
                                            .isEqualTo(Recovery.RECREATE_COMMUNICATOR));
            int again = rank;
            assertThatThrownBy(() -> world.rank(again).barrier(stream))
                    .as(text)
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessage(failure.getMessage());
        }
        return overlaps;
    }

    /** The calls of all ranks; places are elements of the region. */
    private final class Call {
        private final OperationKind kind;
        private final int n;
        private final int count;
        private final int root;
        private final int[] sendAt;
        private final int[] recvAt;

        /** Of the kinds that have one, else null. */
        private final BlockLayout[] sendLayouts;

        private final BlockLayout[] recvLayouts;

        Call(OperationKind kind, int n, int count, int root) {
            this.kind = kind;
            this.n = n;
            this.count = count;
            this.root = root;
            this.sendAt = new int[n];
            this.recvAt = new int[n];
            boolean all = kind == OperationKind.ALL_TO_ALL_V;
            sendLayouts = all || kind == OperationKind.REDUCE_SCATTER_V ? new BlockLayout[n] : null;
            recvLayouts = all || kind == OperationKind.ALL_GATHER_V ? new BlockLayout[n] : null;
        }

        @Override
        public String toString() {
            return kind
                    + " on "
                    + n
                    + " ranks, count "
                    + count
                    + ", root "
                    + root
                    + ", send "
                    + Arrays.toString(sendAt)
                    + ", recv "
                    + Arrays.toString(recvAt);
        }

        boolean hasLayouts() {
            return sendLayouts != null || recvLayouts != null;
        }

        int participants() {
            return kind == OperationKind.SEND_RECV ? 2 : n;
        }

        /** All ranges one after the other; of the blocks of a layout one is empty. */
        void pack() {
            long[] counts = new long[n];
            for (int block = 0; block < n; block++) {
                counts[block] = block == root ? 0 : count;
            }
            int end = REGION / 4;
            for (int rank = 0; rank < n; rank++) {
                if (sendLayouts != null) {
                    sendLayouts[rank] =
                            BlockLayout.packed(
                                    kind == OperationKind.ALL_TO_ALL_V && rank == root
                                            ? new long[n]
                                            : kind == OperationKind.ALL_TO_ALL_V
                                                    ? equal()
                                                    : counts);
                }
                if (recvLayouts != null) {
                    recvLayouts[rank] = BlockLayout.packed(counts);
                }
                sendAt[rank] = end;
                end += extent(rank, true);
                recvAt[rank] = end;
                end += extent(rank, false);
            }
        }

        private long[] equal() {
            long[] counts = new long[n];
            Arrays.fill(counts, count);
            return counts;
        }

        /** Blocks in rows that begin with one per rank and range. */
        void interleave() {
            long[] offsets = new long[n];
            for (int block = 0; block < n; block++) {
                offsets[block] = (long) block * 2 * n * count;
            }
            BlockLayout layout = BlockLayout.of(equal(), offsets);
            for (int rank = 0; rank < n; rank++) {
                if (sendLayouts != null) {
                    sendLayouts[rank] = layout;
                }
                if (recvLayouts != null) {
                    recvLayouts[rank] = layout;
                }
                // A read range beside a written one of another rank.
                sendAt[rank] = REGION / 4 + 2 * rank * count;
                recvAt[rank] = sendAt[rank] + count;
            }
        }

        /** Elements from the start of a range to its end. */
        int extent(int rank, boolean send) {
            int last = -1;
            boolean[] map = new boolean[REGION];
            int[] places = send ? sendAt : recvAt;
            int before = places[rank];
            places[rank] = 0;
            mark(rank, send, map);
            places[rank] = before;
            for (int i = 0; i < REGION; i++) {
                last = map[i] ? i : last;
            }
            return last + 1;
        }

        /** Whether a rank's own call is refused. */
        boolean isRefused() {
            for (int rank = 0; rank < participants(); rank++) {
                boolean[] read = new boolean[REGION];
                boolean[] written = new boolean[REGION];
                mark(rank, true, read);
                mark(rank, false, written);
                if (common(read, written)) {
                    return true;
                }
            }
            return false;
        }

        boolean overlaps() {
            for (int one = 0; one < participants(); one++) {
                boolean[] written = new boolean[REGION];
                mark(one, false, written);
                for (int other = 0; other < participants(); other++) {
                    boolean[] used = new boolean[REGION];
                    mark(other, true, used);
                    mark(other, false, used);
                    if (one != other && common(written, used)) {
                        return true;
                    }
                }
            }
            return false;
        }

        private static boolean common(boolean[] one, boolean[] other) {
            for (int i = 0; i < REGION; i++) {
                if (one[i] && other[i]) {
                    return true;
                }
            }
            return false;
        }

        /** Marks what a rank reads or writes. */
        private void mark(int rank, boolean send, boolean[] map) {
            int at = send ? sendAt[rank] : recvAt[rank];
            BlockLayout[] layouts = send ? sendLayouts : recvLayouts;
            if (layouts != null) {
                for (int block = 0; block < n; block++) {
                    mark(
                            map,
                            at + (int) layouts[rank].offsetElements(block),
                            (int) layouts[rank].countElements(block));
                }
                return;
            }
            int elements =
                    switch (kind) {
                        case ALL_REDUCE -> count;
                        case REDUCE -> send || rank == root ? count : 0;
                        case BROADCAST -> !send || rank == root ? count : 0;
                        case ALL_GATHER -> send ? count : count * n;
                        case GATHER -> send ? count : rank == root ? count * n : 0;
                        case REDUCE_SCATTER -> send ? count * n : count;
                        case SCATTER -> !send ? count : rank == root ? count * n : 0;
                        case ALL_TO_ALL -> count * n;
                        case SEND_RECV -> rank == (send ? 0 : 1) ? count : 0;
                        case ALL_GATHER_V -> (int) recvLayouts[rank].countElements(rank);
                        case REDUCE_SCATTER_V -> (int) sendLayouts[rank].countElements(rank);
                        case ALL_TO_ALL_V, BARRIER, SPLIT, EXCHANGE_COUNTS ->
                                throw new AssertionError(kind);
                    };
            mark(map, at, elements);
        }

        private static void mark(boolean[] map, int at, int elements) {
            Arrays.fill(map, at, at + elements, true);
        }

        void enqueue(World world, int rank) {
            Communicator on = world.rank(rank);
            DeviceStream stream = world.stream(rank);
            int sent = extent(rank, true);
            int received = extent(rank, false);
            DeviceBuffer send = sent == 0 ? null : buffer(sendAt[rank], sent);
            DeviceBuffer recv = received == 0 ? null : buffer(recvAt[rank], received);
            switch (kind) {
                case ALL_REDUCE -> on.allReduce(send, recv, count, TYPE, ReduceOp.SUM, stream);
                case REDUCE -> on.reduce(send, recv, count, TYPE, ReduceOp.SUM, root, stream);
                case BROADCAST -> on.broadcast(send, recv, count, TYPE, root, stream);
                case ALL_GATHER -> on.allGather(send, recv, count, TYPE, stream);
                case GATHER -> on.gather(send, recv, count, TYPE, root, stream);
                case REDUCE_SCATTER ->
                        on.reduceScatter(send, recv, count, TYPE, ReduceOp.SUM, stream);
                case SCATTER -> on.scatter(send, recv, count, TYPE, root, stream);
                case ALL_TO_ALL -> on.allToAll(send, recv, count, TYPE, stream);
                case ALL_GATHER_V -> on.allGatherV(send, recv, recvLayouts[rank], TYPE, stream);
                case REDUCE_SCATTER_V ->
                        on.reduceScatterV(
                                send, recv, sendLayouts[rank], TYPE, ReduceOp.SUM, stream);
                case ALL_TO_ALL_V ->
                        on.allToAllV(
                                send,
                                recv,
                                new AllToAllVPlan(sendLayouts[rank], recvLayouts[rank]),
                                TYPE,
                                stream);
                case SEND_RECV -> {
                    if (rank == 0) {
                        on.send(send, count, TYPE, 1, stream);
                    } else if (rank == 1) {
                        on.recv(recv, count, TYPE, 0, stream);
                    }
                }
                case BARRIER, SPLIT, EXCHANGE_COUNTS -> throw new AssertionError(kind);
            }
        }
    }
}
