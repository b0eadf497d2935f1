package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * Every operation on 1 to 8 participants against the reference engine, at lengths that n does and
 * does not divide, that are shorter than n, and that take several pieces; results, guard bytes and
 * byte counts.
 */
class DirectEngineTest {
    private static final DataType TYPE = DataType.INT32;
    private static final int[] COUNTS = {1, 3, 33, 64, 257, 5000};
    private static final int LEAST_SHARE_BYTES = 64;

    private final long seed = new Random().nextLong();

    /** More, fewer and as many as there are ranks. */
    private static final int MOST_SHARES = 5;

    private final Engine direct =
            new DirectEngine(MOST_SHARES, KernelChoice.ofThisProcess(), 256, LEAST_SHARE_BYTES);
    private final Engine reference = new ReferenceEngine();

    static Stream<Arguments> kindsAndSizes() {
        return Stream.of(OperationKind.values())
                .filter(kind ->
                        kind != OperationKind.SPLIT && kind != OperationKind.EXCHANGE_COUNTS)
                .flatMap(kind ->
                        IntStream.rangeClosed(1, 8)
                                .filter(n -> kind != OperationKind.SEND_RECV || n == 2)
                                .mapToObj(n -> Arguments.of(kind, n)));
    }

    @ParameterizedTest
    @MethodSource("kindsAndSizes")
    void givesWhatTheReferenceEngineGives(OperationKind kind, int n) throws InterruptedException {
        for (int count : COUNTS) {
            for (boolean inPlace : new boolean[] {false, true}) {
                int root = (count + n) % n;
                TestOperation expected = operation(kind, n, count, root, inPlace);
                Drivers.inRandomOrder(reference, expected, seed);
                TestOperation actual = operation(kind, n, count, root, inPlace);
                Drivers.inRandomOrder(direct, actual, seed);
                compare(actual, expected);
                TestOperation parallel = operation(kind, n, count, root, inPlace);
                Drivers.inThreads(direct, parallel);
                compare(parallel, expected);
                checkBytes(actual);
                checkBytes(parallel);
            }
        }
    }

    /** So long that they are done by other instructions, where the processor has them. */
    @ParameterizedTest
    @EnumSource(
            value = OperationKind.class,
            names = {
                "ALL_GATHER",
                "ALL_GATHER_V",
                "ALL_TO_ALL",
                "ALL_TO_ALL_V",
                "BROADCAST",
                "GATHER",
                "SCATTER",
                "SEND_RECV"
            })
    void longCopiesGiveWhatTheReferenceEngineGives(OperationKind kind) {
        // Two shares are long ones each, and have an odd end.
        int count = 2 * DirectRun.LONG_COPY_BYTES / TYPE.sizeBytes() + 33;
        for (int mostShares = 1; mostShares <= 2; mostShares++) {
            for (boolean inPlace : new boolean[] {false, true}) {
                Engine engine =
                        new DirectEngine(
                                mostShares,
                                KernelChoice.ofThisProcess(),
                                1 << 18,
                                LEAST_SHARE_BYTES);
                TestOperation expected = operation(kind, 2, count, 1, inPlace);
                Drivers.inRandomOrder(reference, expected, seed);
                TestOperation actual = operation(kind, 2, count, 1, inPlace);
                Drivers.inRandomOrder(engine, actual, seed);
                compare(actual, expected);
            }
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {1, 63, 64, 4 << 20, 5 << 20, (8 << 20) - 1, (40 << 20) + 5, 3L << 30})
    void noPieceOfALongCopyIsShort(long range) {
        int enginePieceBytes = 1 << 18;
        long least = Math.min(range, DirectRun.LONG_COPY_BYTES);
        for (long left = range; left > 0; ) {
            long piece = DirectRun.copyPieceBytes(left, enginePieceBytes);
            assertThat(piece).isBetween(least, 8L << 20).isLessThanOrEqualTo(left);
            left -= piece;
        }
    }

    @Test
    void aShareIsAtLeastSoLongThatHandingItOverPays() {
        Engine engine =
                new DirectEngine(
                        MOST_SHARES, KernelChoice.plain(), 1 << 16, DirectEngine.LEAST_SHARE_BYTES);
        int least = DirectEngine.LEAST_SHARE_BYTES / TYPE.sizeBytes();
        assertThat(sharesOf(engine, 1)).isEqualTo(1);
        assertThat(sharesOf(engine, 2 * least - 1)).isEqualTo(1);
        assertThat(sharesOf(engine, 2 * least)).isEqualTo(2);
        assertThat(sharesOf(engine, 1000 * least)).isEqualTo(MOST_SHARES);
    }

    private int sharesOf(Engine engine, int count) {
        TestOperation operation = operation(OperationKind.ALL_REDUCE, 4, count, 0, false);
        Engine.Run run = engine.start(operation);
        int shares = run.shares();
        for (int share = 0; share < shares; share++) {
            while (run.progress(share) != Engine.Progress.DONE) {
                assertThat(operation.totalSentBytes(0)).isZero();
            }
        }
        run.finish(true);
        assertThat(operation.totalSentBytes(0)).isPositive();
        return shares;
    }

    @Test
    void tracesTheWayThroughTheOwnerOfASlice() {
        List<String> steps = new ArrayList<>();
        TestOperation operation =
                operation(OperationKind.ALL_REDUCE, 2, 32, 0, false)
                        .with((op, step, from, to, chunk, offset, bytes) ->
                                steps.add(
                                        step + ": " + from + " to " + to + " chunk " + chunk
                                                + " at " + offset + ", " + bytes));
        Drivers.inRandomOrder(direct, operation, seed);
        assertThat(steps)
                .containsExactlyInAnyOrder(
                        "0: 1 to 0 chunk 0 at 0, 64",
                        "1: 0 to 1 chunk 0 at 0, 64",
                        "0: 0 to 1 chunk 1 at 0, 64",
                        "1: 1 to 0 chunk 1 at 0, 64");
    }

    private TestOperation operation(
            OperationKind kind, int n, int count, int root, boolean inPlace) {
        boolean layouts =
                kind == OperationKind.ALL_GATHER_V
                        || kind == OperationKind.REDUCE_SCATTER_V
                        || kind == OperationKind.ALL_TO_ALL_V;
        TestOperation operation =
                new TestOperation(kind, n, TYPE, layouts ? 0 : count, root).with(ReduceOp.SUM);
        long all = (long) n * count;
        for (int p = 0; p < n; p++) {
            boolean isRoot = p == root;
            switch (kind) {
                case ALL_REDUCE -> buffers(operation, p, count, count, inPlace, 0);
                case REDUCE -> {
                    if (isRoot) {
                        buffers(operation, p, count, count, inPlace, 0);
                    } else {
                        operation.buffers(p, count, -1);
                    }
                }
                case BROADCAST -> {
                    if (isRoot) {
                        buffers(operation, p, count, count, inPlace, 0);
                    } else {
                        operation.buffers(p, -1, count);
                    }
                }
                case ALL_GATHER -> buffers(operation, p, count, all, inPlace, (long) p * count);
                case REDUCE_SCATTER -> buffers(operation, p, all, count, inPlace, (long) p * count);
                case GATHER -> {
                    if (isRoot) {
                        buffers(operation, p, count, all, inPlace, (long) p * count);
                    } else {
                        operation.buffers(p, count, -1);
                    }
                }
                case SCATTER -> {
                    if (isRoot) {
                        buffers(operation, p, all, count, inPlace, (long) p * count);
                    } else {
                        operation.buffers(p, -1, count);
                    }
                }
                case ALL_TO_ALL -> operation.buffers(p, all, all);
                case ALL_GATHER_V -> {
                    BlockLayout layout = spread(n, count, 3);
                    operation.layouts(p, null, layout);
                    buffers(
                            operation,
                            p,
                            layout.countElements(p),
                            layout.extentElements(),
                            inPlace,
                            layout.offsetElements(p));
                }
                case REDUCE_SCATTER_V -> {
                    // Each rank has its own gaps.
                    BlockLayout layout = spread(n, count, p);
                    operation.layouts(p, layout, null);
                    buffers(
                            operation,
                            p,
                            layout.extentElements(),
                            layout.countElements(p),
                            inPlace,
                            layout.offsetElements(p));
                }
                case ALL_TO_ALL_V -> {
                    long[] sends = new long[n];
                    long[] recvs = new long[n];
                    for (int q = 0; q < n; q++) {
                        sends[q] = (long) (p + 2 * q) % 3 * count;
                        recvs[q] = (long) (q + 2 * p) % 3 * count;
                    }
                    BlockLayout send = BlockLayout.packed(sends);
                    BlockLayout recv = BlockLayout.packed(recvs);
                    operation.layouts(p, send, recv);
                    operation.buffers(p, orNone(send), orNone(recv));
                }
                case SEND_RECV -> operation.buffers(p, p == 0 ? count : -1, p == 1 ? count : -1);
                case BARRIER, SPLIT, EXCHANGE_COUNTS -> {}
            }
        }
        for (int p = 0; p < n; p++) {
            MemorySegment send = operation.send(p);
            if (send != null) {
                for (long i = 0; i < send.byteSize() / TYPE.sizeBytes(); i++) {
                    Elements.setBits(send, TYPE, i, (int) (1_000_003L * (p + 1) + 7919 * i));
                }
            }
        }
        return operation;
    }

    private static long orNone(BlockLayout layout) {
        return layout.extentElements() == 0 ? -1 : layout.extentElements();
    }

    /** Buffers of a participant; in place the shorter one is within the longer. */
    private static void buffers(
            TestOperation operation,
            int p,
            long sendElements,
            long recvElements,
            boolean inPlace,
            long offset) {
        if (!inPlace) {
            operation.buffers(
                    p,
                    sendElements == 0 ? -1 : sendElements,
                    recvElements == 0 ? -1 : recvElements);
        } else if (sendElements <= recvElements) {
            operation.buffers(p, -1, recvElements);
            if (sendElements > 0) {
                operation.sendWithinRecv(p, offset, sendElements);
            }
        } else {
            operation.buffers(p, sendElements, -1);
            if (recvElements > 0) {
                operation.recvWithinSend(p, offset, recvElements);
            }
        }
    }

    /** Blocks of different sizes, none among them, with gaps. */
    private static BlockLayout spread(int n, int count, int gap) {
        long[] counts = new long[n];
        long[] offsets = new long[n];
        long at = gap;
        for (int p = 0; p < n; p++) {
            counts[p] = (long) ((p * p + 1) % 5) * count;
            offsets[p] = at;
            at += counts[p] + gap;
        }
        return BlockLayout.of(counts, offsets);
    }

    private void compare(TestOperation actual, TestOperation expected) {
        actual.checkGuards();
        for (int p = 0; p < actual.participants(); p++) {
            if (expected.recv(p) != null) {
                assertThat(actual.recv(p).mismatch(expected.recv(p)))
                        .as("%s, rank %d, seed %d", actual, p, seed)
                        .isEqualTo(-1);
            }
            if (expected.send(p) != null) {
                assertThat(actual.send(p).mismatch(expected.send(p)))
                        .as("%s, send buffer of rank %d, seed %d", actual, p, seed)
                        .isEqualTo(-1);
            }
        }
    }

    /** The formulas of docs/algorithms.md. */
    private static void checkBytes(TestOperation operation) {
        int n = operation.participants();
        long bytes = TYPE.bytes(operation.countElements());
        int root = operation.root();
        for (int p = 0; p < n; p++) {
            for (int q = 0; q < n; q++) {
                long expected =
                        p == q
                                ? 0
                                : switch (operation.kind()) {
                                    case ALL_REDUCE -> share(bytes, n, p) + share(bytes, n, q);
                                    case REDUCE, GATHER -> q == root ? bytes : 0;
                                    case BROADCAST, SCATTER -> p == root ? bytes : 0;
                                    case ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL -> bytes;
                                    case ALL_GATHER_V ->
                                            TYPE.bytes(operation.recvLayout(p).countElements(p));
                                    case REDUCE_SCATTER_V ->
                                            TYPE.bytes(operation.sendLayout(q).countElements(q));
                                    case ALL_TO_ALL_V ->
                                            TYPE.bytes(operation.sendLayout(p).countElements(q));
                                    case SEND_RECV -> p == 0 ? bytes : 0;
                                    case BARRIER, SPLIT, EXCHANGE_COUNTS -> 0;
                                };
                assertThat(operation.sentBytes(p, q))
                        .as("%s, %d to %d", operation, p, q)
                        .isEqualTo(expected);
            }
        }
    }

    /** How long the slice of a participant is: whole cache lines, the last what is left. */
    private static long share(long bytes, int n, int participant) {
        long lines = (bytes + 63) / 64;
        long share = Math.max(LEAST_SHARE_BYTES, (lines + n - 1) / n * 64);
        return Math.clamp(bytes - participant * share, 0, share);
    }
}
