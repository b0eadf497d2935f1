package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * Every operation on 1 to 8 participants, at lengths that n does and does not divide, that are
 * shorter than n, and that take several pieces; results, guard bytes and byte counts.
 */
class ReferenceEngineTest {
    /** Short pieces, so that a kilobyte takes several. */
    private static final int PIECE_BYTES = 64;

    private static final int[] COUNTS = {1, 3, 7, 8, 33, 64, 257};
    private static final DataType TYPE = DataType.INT32;

    private final Engine engine = new ReferenceEngine(RingSchedule.B, PIECE_BYTES);

    static Stream<Integer> sizes() {
        return IntStream.rangeClosed(1, 8).boxed();
    }

    /** Input element i of a rank: every block, rank and place differs. */
    private static int input(int rank, long i) {
        return (int) (1_000_003L * (rank + 1) + 7919 * i);
    }

    private static void fillSend(TestOperation operation) {
        for (int p = 0; p < operation.participants(); p++) {
            MemorySegment send = operation.send(p);
            if (send != null) {
                for (long i = 0; i < send.byteSize() / TYPE.sizeBytes(); i++) {
                    Elements.setBits(send, TYPE, i, input(p, i));
                }
            }
        }
    }

    private void run(TestOperation operation) {
        long seed = new Random().nextLong();
        try {
            fillSend(operation);
            Drivers.inRandomOrder(engine, operation, seed);
            operation.checkGuards();
        } catch (AssertionError | RuntimeException e) {
            throw new AssertionError(operation + ", seed " + seed, e);
        }
    }

    private static int element(MemorySegment segment, long i) {
        return (int) Elements.bits(segment, TYPE, i);
    }

    private static int sum(int n, long i) {
        int sum = 0;
        for (int p = 0; p < n; p++) {
            sum += input(p, i);
        }
        return sum;
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void allReduce(int n) {
        for (int count : COUNTS) {
            for (boolean inPlace : new boolean[] {false, true}) {
                TestOperation operation =
                        new TestOperation(OperationKind.ALL_REDUCE, n, TYPE, count, -1)
                                .with(ReduceOp.SUM);
                for (int p = 0; p < n; p++) {
                    operation.buffers(p, inPlace ? -1 : count, count);
                    if (inPlace) {
                        operation.sendWithinRecv(p, 0, count);
                    }
                }
                run(operation);
                BlockLayout chunks = BlockLayout.even(count, n);
                for (int p = 0; p < n; p++) {
                    for (int i = 0; i < count; i++) {
                        assertThat(element(operation.recv(p), i)).isEqualTo(sum(n, i));
                    }
                    // Every chunk is sent in both halves, but for the own one in the first and the
                    // successor's in the second.
                    long expected =
                            n == 1
                                    ? 0
                                    : 2L * count
                                            - chunks.countElements(p)
                                            - chunks.countElements((p + 1) % n);
                    assertThat(operation.totalSentBytes(p)).isEqualTo(4 * expected);
                    assertThat(operation.sentBytes(p, (p + 1) % n)).isEqualTo(4 * expected);
                }
            }
        }
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void reduceScatter(int n) {
        for (int count : COUNTS) {
            for (boolean inPlace : new boolean[] {false, true}) {
                TestOperation operation =
                        new TestOperation(OperationKind.REDUCE_SCATTER, n, TYPE, count, -1)
                                .with(ReduceOp.SUM);
                for (int p = 0; p < n; p++) {
                    operation.buffers(p, (long) n * count, inPlace ? -1 : count);
                    if (inPlace) {
                        operation.recvWithinSend(p, (long) p * count, count);
                    }
                }
                run(operation);
                for (int p = 0; p < n; p++) {
                    for (int i = 0; i < count; i++) {
                        assertThat(element(operation.recv(p), i))
                                .isEqualTo(sum(n, (long) p * count + i));
                    }
                    assertThat(operation.totalSentBytes(p)).isEqualTo(4L * (n - 1) * count);
                }
            }
        }
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void reduceScatterV(int n) {
        for (int count : COUNTS) {
            long[] counts = new long[n];
            for (int p = 0; p < n; p++) {
                counts[p] = (long) (p * p % 5) * count;
            }
            for (boolean inPlace : new boolean[] {false, true}) {
                BlockLayout layout = spread(counts, 3);
                TestOperation operation =
                        new TestOperation(OperationKind.REDUCE_SCATTER_V, n, TYPE, 0, -1)
                                .with(ReduceOp.SUM);
                for (int p = 0; p < n; p++) {
                    operation.layouts(p, layout, null);
                    operation.buffers(p, layout.extentElements(), inPlace ? -1 : orNull(counts[p]));
                    if (inPlace && counts[p] > 0) {
                        operation.recvWithinSend(p, layout.offsetElements(p), counts[p]);
                    }
                }
                run(operation);
                for (int p = 0; p < n; p++) {
                    for (int i = 0; i < counts[p]; i++) {
                        assertThat(element(operation.recv(p), i))
                                .isEqualTo(sum(n, layout.offsetElements(p) + i));
                    }
                    assertThat(operation.totalSentBytes(p))
                            .isEqualTo(4 * (layout.totalElements() - counts[p]));
                }
            }
        }
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void allGather(int n) {
        for (int count : COUNTS) {
            for (boolean inPlace : new boolean[] {false, true}) {
                TestOperation operation =
                        new TestOperation(OperationKind.ALL_GATHER, n, TYPE, count, -1);
                for (int p = 0; p < n; p++) {
                    operation.buffers(p, inPlace ? -1 : count, (long) n * count);
                    if (inPlace) {
                        operation.sendWithinRecv(p, (long) p * count, count);
                    }
                }
                run(operation);
                for (int p = 0; p < n; p++) {
                    for (int r = 0; r < n; r++) {
                        for (int i = 0; i < count; i++) {
                            assertThat(element(operation.recv(p), (long) r * count + i))
                                    .isEqualTo(input(r, i));
                        }
                    }
                    assertThat(operation.totalSentBytes(p)).isEqualTo(4L * (n - 1) * count);
                }
            }
        }
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void allGatherV(int n) {
        for (int count : COUNTS) {
            long[] counts = new long[n];
            for (int p = 0; p < n; p++) {
                counts[p] = (long) ((p + 1) * 3 % 4) * count;
            }
            TestOperation operation = new TestOperation(OperationKind.ALL_GATHER_V, n, TYPE, 0, -1);
            BlockLayout[] layouts = new BlockLayout[n];
            for (int p = 0; p < n; p++) {
                // Places may differ from rank to rank.
                layouts[p] = spread(counts, p);
                operation.layouts(p, null, layouts[p]);
                operation.buffers(p, orNull(counts[p]), layouts[p].extentElements());
            }
            run(operation);
            for (int p = 0; p < n; p++) {
                for (int r = 0; r < n; r++) {
                    for (int i = 0; i < counts[r]; i++) {
                        assertThat(element(operation.recv(p), layouts[p].offsetElements(r) + i))
                                .isEqualTo(input(r, i));
                    }
                }
                assertThat(operation.totalSentBytes(p))
                        .isEqualTo(4 * (layouts[p].totalElements() - counts[(p + 1) % n]));
            }
        }
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void broadcast(int n) {
        for (int count : COUNTS) {
            for (int root = 0; root < n; root++) {
                for (boolean inPlace : new boolean[] {false, true}) {
                    TestOperation operation =
                            new TestOperation(OperationKind.BROADCAST, n, TYPE, count, root);
                    for (int p = 0; p < n; p++) {
                        operation.buffers(p, p == root && !inPlace ? count : -1, count);
                    }
                    if (inPlace) {
                        operation.sendWithinRecv(root, 0, count);
                    }
                    run(operation);
                    for (int p = 0; p < n; p++) {
                        for (int i = 0; i < count; i++) {
                            assertThat(element(operation.recv(p), i)).isEqualTo(input(root, i));
                        }
                        boolean last = (p + 1) % n == root;
                        assertThat(operation.totalSentBytes(p)).isEqualTo(last ? 0 : 4L * count);
                    }
                }
            }
        }
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void reduceLeavesOtherRanksReceiveBuffersAlone(int n) {
        for (int count : COUNTS) {
            for (int root = 0; root < n; root++) {
                TestOperation operation =
                        new TestOperation(OperationKind.REDUCE, n, TYPE, count, root)
                                .with(ReduceOp.SUM);
                for (int p = 0; p < n; p++) {
                    operation.buffers(p, count, count);
                    operation.recv(p).fill((byte) 9);
                }
                run(operation);
                for (int p = 0; p < n; p++) {
                    for (int i = 0; i < count; i++) {
                        assertThat(element(operation.recv(p), i))
                                .isEqualTo(p == root ? sum(n, i) : 0x09090909);
                        assertThat(element(operation.send(p), i)).isEqualTo(input(p, i));
                    }
                    assertThat(operation.totalSentBytes(p)).isEqualTo(p == root ? 0 : 4L * count);
                }
            }
        }
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void reduceInPlaceAtTheRoot(int n) {
        for (int root = 0; root < n; root++) {
            TestOperation operation =
                    new TestOperation(OperationKind.REDUCE, n, TYPE, 50, root).with(ReduceOp.SUM);
            for (int p = 0; p < n; p++) {
                operation.buffers(p, p == root ? -1 : 50, p == root ? 50 : -1);
            }
            operation.sendWithinRecv(root, 0, 50);
            run(operation);
            for (int i = 0; i < 50; i++) {
                assertThat(element(operation.recv(root), i)).isEqualTo(sum(n, i));
            }
        }
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void gatherAndScatter(int n) {
        for (int count : COUNTS) {
            for (int root = 0; root < n; root++) {
                for (boolean inPlace : new boolean[] {false, true}) {
                    TestOperation gather =
                            new TestOperation(OperationKind.GATHER, n, TYPE, count, root);
                    TestOperation scatter =
                            new TestOperation(OperationKind.SCATTER, n, TYPE, count, root);
                    for (int p = 0; p < n; p++) {
                        boolean same = inPlace && p == root;
                        long whole = p == root ? (long) n * count : -1;
                        gather.buffers(p, same ? -1 : count, whole);
                        scatter.buffers(p, whole, same ? -1 : count);
                    }
                    if (inPlace) {
                        gather.sendWithinRecv(root, (long) root * count, count);
                        scatter.recvWithinSend(root, (long) root * count, count);
                    }
                    run(gather);
                    run(scatter);
                    for (int p = 0; p < n; p++) {
                        for (int i = 0; i < count; i++) {
                            assertThat(element(gather.recv(root), (long) p * count + i))
                                    .isEqualTo(input(p, i));
                            assertThat(element(scatter.recv(p), i))
                                    .isEqualTo(input(root, (long) p * count + i));
                        }
                        assertThat(gather.totalSentBytes(p)).isEqualTo(p == root ? 0 : 4L * count);
                        assertThat(scatter.totalSentBytes(p))
                                .isEqualTo(p == root ? 4L * (n - 1) * count : 0);
                    }
                }
            }
        }
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void allToAll(int n) {
        for (int count : COUNTS) {
            TestOperation operation =
                    new TestOperation(OperationKind.ALL_TO_ALL, n, TYPE, count, -1);
            for (int p = 0; p < n; p++) {
                operation.buffers(p, (long) n * count, (long) n * count);
            }
            run(operation);
            for (int p = 0; p < n; p++) {
                for (int r = 0; r < n; r++) {
                    for (int i = 0; i < count; i++) {
                        assertThat(element(operation.recv(p), (long) r * count + i))
                                .isEqualTo(input(r, (long) p * count + i));
                    }
                    assertThat(operation.sentBytes(p, r)).isEqualTo(p == r ? 0 : 4L * count);
                }
            }
        }
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void allToAllV(int n) {
        for (int count : COUNTS) {
            TestOperation operation = new TestOperation(OperationKind.ALL_TO_ALL_V, n, TYPE, 0, -1);
            for (int p = 0; p < n; p++) {
                long[] to = new long[n];
                long[] from = new long[n];
                for (int r = 0; r < n; r++) {
                    to[r] = (long) ((p + 2 * r) % 3) * count;
                    from[r] = (long) ((r + 2 * p) % 3) * count;
                }
                BlockLayout send = spread(to, 1);
                BlockLayout recv = spread(from, 2);
                operation.layouts(p, send, recv);
                operation.buffers(p, send.extentElements(), recv.extentElements());
            }
            run(operation);
            for (int p = 0; p < n; p++) {
                for (int r = 0; r < n; r++) {
                    BlockLayout recv = operation.recvLayout(p);
                    BlockLayout send = operation.sendLayout(r);
                    for (int i = 0; i < recv.countElements(r); i++) {
                        assertThat(element(operation.recv(p), recv.offsetElements(r) + i))
                                .isEqualTo(input(r, send.offsetElements(p) + i));
                    }
                    assertThat(operation.sentBytes(r, p))
                            .isEqualTo(p == r ? 0 : 4 * send.countElements(p));
                }
            }
        }
    }

    @Test
    void sendRecv() {
        for (int count : COUNTS) {
            TestOperation operation =
                    new TestOperation(OperationKind.SEND_RECV, 2, TYPE, count, -1)
                            .buffers(0, count, -1)
                            .buffers(1, -1, count);
            run(operation);
            for (int i = 0; i < count; i++) {
                assertThat(element(operation.recv(1), i)).isEqualTo(input(0, i));
            }
            assertThat(operation.sentBytes(0, 1)).isEqualTo(4L * count);
            assertThat(operation.totalSentBytes(1)).isZero();
        }
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void noRankLeavesTheBarrierBeforeTheLastEntersIt(int n) {
        for (int late = 0; late < n; late++) {
            Engine.Run run = engine.start(new TestOperation(OperationKind.BARRIER, n, null, 0, -1));
            for (int round = 0; round < 10; round++) {
                for (int p = 0; p < n; p++) {
                    if (p != late) {
                        assertThat(run.progress(p)).isNotEqualTo(Engine.Progress.DONE);
                    }
                }
            }
            List<Integer> waiting = new ArrayList<>(IntStream.range(0, n).boxed().toList());
            int rounds = 0;
            while (!waiting.isEmpty()) {
                waiting.removeIf(p -> run.progress(p) == Engine.Progress.DONE);
                assertThat(++rounds).isLessThan(100);
            }
            run.finish(true);
        }
    }

    @ParameterizedTest
    @MethodSource("sizes")
    void participantsInThreadsOfTheirOwn(int n) throws InterruptedException {
        Engine large = new ReferenceEngine();
        for (int count : new int[] {5, 70_000, 300_001}) {
            TestOperation operation =
                    new TestOperation(OperationKind.ALL_REDUCE, n, TYPE, count, -1)
                            .with(ReduceOp.SUM);
            for (int p = 0; p < n; p++) {
                operation.buffers(p, -1, count);
                operation.sendWithinRecv(p, 0, count);
            }
            fillSend(operation);
            Drivers.inThreads(large, operation);
            operation.checkGuards();
            for (int p = 0; p < n; p++) {
                assertThat(operation.recv(p).mismatch(operation.recv(0))).isEqualTo(-1);
            }
            for (int i = 0; i < count; i++) {
                if (element(operation.recv(0), i) != sum(n, i)) {
                    assertThat(element(operation.recv(0), i))
                            .as("element " + i)
                            .isEqualTo(sum(n, i));
                }
            }
        }
    }

    @Test
    void aRunThatWasGivenUpLeavesNothingBehind() {
        for (int steps = 0; steps < 12; steps++) {
            TestOperation abandoned = sumOf(3, 100);
            fillSend(abandoned);
            Engine.Run run = engine.start(abandoned);
            for (int i = 0; i < steps; i++) {
                run.progress(i % 3);
            }
            run.finish(true);
            TestOperation next = sumOf(3, 100);
            run(next);
            assertThat(element(next.recv(2), 99)).isEqualTo(sum(3, 99));
        }
    }

    @ParameterizedTest
    @EnumSource(
            value = OperationKind.class,
            mode = EnumSource.Mode.EXCLUDE,
            names = {
                "SPLIT",
                "EXCHANGE_COUNTS",
                "ALL_GATHER_V",
                "REDUCE_SCATTER_V",
                "ALL_TO_ALL_V",
                "BARRIER"
            })
    void aRankThatIsDoneMayReuseItsBuffers(OperationKind kind) {
        int n = kind == OperationKind.SEND_RECV ? 2 : 4;
        int count = 90;
        long seed = new Random().nextLong();
        for (int round = 0; round < 50; round++) {
            TestOperation calm = new TestOperation(kind, n, TYPE, count, 1).with(ReduceOp.SUM);
            TestOperation hasty = new TestOperation(kind, n, TYPE, count, 1).with(ReduceOp.SUM);
            byte[][] results = new byte[n][];
            for (int p = 0; p < n; p++) {
                calm.buffers(p, (long) n * count, (long) n * count);
                hasty.buffers(p, (long) n * count, (long) n * count);
                calm.recv(p).fill((byte) 0);
                hasty.recv(p).fill((byte) 0);
            }
            fillSend(calm);
            fillSend(hasty);
            Drivers.inRandomOrder(engine, calm, seed + round);
            Drivers.inRandomOrder(
                    engine,
                    hasty,
                    seed + round,
                    done -> {
                        results[done] = hasty.recv(done).toArray(ValueLayout.JAVA_BYTE);
                        hasty.recv(done).fill((byte) 0xee);
                        hasty.send(done).fill((byte) 0xee);
                    });
            for (int p = 0; p < n; p++) {
                assertThat(results[p])
                        .as("rank %d, seed %d", p, seed + round)
                        .isEqualTo(calm.recv(p).toArray(ValueLayout.JAVA_BYTE));
            }
        }
    }

    /** Through reflection, because the module does not read the JDK's management modules. */
    @Test
    void steadyStateAllocatesNothing() throws ReflectiveOperationException {
        Object threads =
                Class.forName("java.lang.management.ManagementFactory")
                        .getMethod("getThreadMXBean")
                        .invoke(null);
        Method allocated =
                Class.forName("com.sun.management.ThreadMXBean")
                        .getMethod("getCurrentThreadAllocatedBytes");
        int n = 3;
        int count = 40;
        int rounds = 2_000;
        for (OperationKind kind : OperationKind.values()) {
            switch (kind) {
                case SPLIT, EXCHANGE_COUNTS, ALL_GATHER_V, REDUCE_SCATTER_V, ALL_TO_ALL_V -> {
                    continue;
                }
                default -> {}
            }
            int members = kind == OperationKind.SEND_RECV ? 2 : n;
            TestOperation operation = new TestOperation(kind, members, TYPE, count, 0);
            for (int p = 0; p < members; p++) {
                operation.buffers(p, (long) n * count, (long) n * count);
                operation.with(p, p % 2 == 0 ? ReduceOp.SUM : ReduceOp.preMulSum(TYPE, 2L));
            }
            // The first rounds make the run and load classes.
            roundRobin(operation, 10 * rounds);
            long before = (long) allocated.invoke(threads);
            roundRobin(operation, rounds);
            long bytes = (long) allocated.invoke(threads) - before;
            assertThat(bytes).as("%s", kind).isLessThan(rounds);
        }
    }

    private void roundRobin(TestOperation operation, int rounds) {
        int n = operation.participants();
        boolean[] done = new boolean[n];
        for (int round = 0; round < rounds; round++) {
            Engine.Run run = engine.start(operation);
            Arrays.fill(done, false);
            for (int left = n; left > 0; ) {
                for (int p = 0; p < n; p++) {
                    if (!done[p] && run.progress(p) == Engine.Progress.DONE) {
                        done[p] = true;
                        left--;
                    }
                }
            }
            run.finish(true);
        }
    }

    private static TestOperation sumOf(int n, int count) {
        TestOperation operation =
                new TestOperation(OperationKind.ALL_REDUCE, n, TYPE, count, -1).with(ReduceOp.SUM);
        for (int p = 0; p < n; p++) {
            operation.buffers(p, count, count);
        }
        return operation;
    }

    /** Who has nothing to send or to receive may have no buffer. */
    private static long orNull(long elements) {
        return elements == 0 ? -1 : elements;
    }

    /** Blocks in reverse order with gaps. */
    private static BlockLayout spread(long[] counts, int gap) {
        long[] offsets = new long[counts.length];
        long next = gap;
        for (int r = counts.length - 1; r >= 0; r--) {
            offsets[r] = next;
            next += counts[r] + gap;
        }
        return BlockLayout.of(counts, offsets);
    }
}
