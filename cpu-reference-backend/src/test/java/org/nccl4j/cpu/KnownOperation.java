package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Group;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.ReduceOp;

/**
 * One operation of all ranks of a communicator, each with memory of its own, and what every element
 * of that memory comes to, gaps and what lies around the buffers included.
 */
final class KnownOperation implements AutoCloseable {
    /**
     * What all ranks call.
     *
     * @param reductions one per rank
     * @param root of a rooted collective; how far a send goes
     */
    record Shape(
            OperationKind kind,
            DataType type,
            List<ReduceOp> reductions,
            int count,
            int root,
            boolean inPlace) {
        int ranks() {
            return reductions.size();
        }
    }

    private static final int GAP = 3;

    private final Shape shape;
    private final int n;
    private final int count;
    private final DataType type;

    /** Of each rank, what holds all that it reads and writes, and where that starts in there. */
    private final DeviceBuffer[] wholes;

    private final int[] elements;
    private final int[] sendAt;
    private final int[] recvAt;
    private long[][] expected;

    KnownOperation(Shape shape, List<Communicator> ranks) {
        this.shape = shape;
        this.n = shape.ranks();
        this.count = shape.count();
        this.type = shape.type();
        this.wholes = new DeviceBuffer[n];
        this.elements = new int[n];
        this.sendAt = new int[n];
        this.recvAt = new int[n];
        for (int rank = 0; rank < n; rank++) {
            int sends = sendElements(rank);
            int recvs = recvElements(rank);
            if (!shape.inPlace()) {
                sendAt[rank] = GAP;
                recvAt[rank] = 2 * GAP + sends;
                elements[rank] = 3 * GAP + sends + recvs;
            } else {
                boolean within = sends <= recvs;
                sendAt[rank] = GAP + (within ? ownOffset(rank) : 0);
                recvAt[rank] = GAP + (within ? 0 : ownOffset(rank));
                elements[rank] = 2 * GAP + Math.max(sends, recvs);
            }
            wholes[rank] = ranks.get(rank).device().allocate(type.bytes(elements[rank]));
        }
    }

    static boolean hasInPlaceForm(OperationKind kind) {
        return switch (kind) {
            case ALL_TO_ALL, ALL_TO_ALL_V, SEND_RECV, BARRIER -> false;
            default -> true;
        };
    }

    private int sendElements(int rank) {
        return switch (shape.kind()) {
            case REDUCE_SCATTER, SCATTER, ALL_TO_ALL -> n * count;
            case ALL_GATHER_V -> (int) gathered(rank).countElements(rank);
            case REDUCE_SCATTER_V -> (int) gathered(rank).extentElements();
            case ALL_TO_ALL_V -> (int) plan(rank).send().extentElements();
            case BARRIER -> 0;
            default -> count;
        };
    }

    private int recvElements(int rank) {
        return switch (shape.kind()) {
            case ALL_GATHER, GATHER, ALL_TO_ALL -> n * count;
            case ALL_GATHER_V -> (int) gathered(rank).extentElements();
            case REDUCE_SCATTER_V -> (int) gathered(rank).countElements(rank);
            case ALL_TO_ALL_V -> (int) plan(rank).receive().extentElements();
            case BARRIER -> 0;
            default -> count;
        };
    }

    /** In place, where the shorter buffer lies in the longer one. */
    private int ownOffset(int rank) {
        return switch (shape.kind()) {
            case ALL_GATHER, GATHER, REDUCE_SCATTER, SCATTER -> rank * count;
            case ALL_GATHER_V, REDUCE_SCATTER_V -> (int) gathered(rank).offsetElements(rank);
            default -> 0;
        };
    }

    /** Blocks of different sizes, none among them, with gaps that differ from rank to rank. */
    private BlockLayout gathered(int rank) {
        long[] counts = new long[n];
        long[] offsets = new long[n];
        long at = rank;
        for (int p = 0; p < n; p++) {
            counts[p] = (long) ((p * p + 1) % 5) * count;
            offsets[p] = at;
            at += counts[p] + rank;
        }
        return BlockLayout.of(counts, offsets);
    }

    private int exchanged(int from, int to) {
        return (from + 2 * to) % 3 * count;
    }

    private AllToAllVPlan plan(int rank) {
        long[] sends = new long[n];
        long[] recvs = new long[n];
        for (int peer = 0; peer < n; peer++) {
            sends[peer] = exchanged(rank, peer);
            recvs[peer] = exchanged(peer, rank);
        }
        return new AllToAllVPlan(BlockLayout.packed(sends), BlockLayout.packed(recvs));
    }

    private DeviceBuffer buffer(int rank, int at, int length) {
        return wholes[rank].slice(type.bytes(at), type.bytes(length));
    }

    /** Records it for all ranks. */
    void record(Group group, List<Communicator> ranks, List<DeviceStream> streams) {
        for (int rank = 0; rank < n; rank++) {
            record(group.on(ranks.get(rank)), rank, streams.get(rank));
        }
    }

    private void record(Operations on, int rank, DeviceStream stream) {
        DeviceBuffer send = buffer(rank, sendAt[rank], sendElements(rank));
        DeviceBuffer recv = buffer(rank, recvAt[rank], recvElements(rank));
        ReduceOp op = shape.reductions().get(rank);
        int root = shape.root();
        switch (shape.kind()) {
            case ALL_REDUCE -> on.allReduce(send, recv, count, type, op, stream);
            case REDUCE -> on.reduce(send, recv, count, type, op, root, stream);
            case BROADCAST -> on.broadcast(send, recv, count, type, root, stream);
            case ALL_GATHER -> on.allGather(send, recv, count, type, stream);
            case ALL_GATHER_V -> on.allGatherV(send, recv, gathered(rank), type, stream);
            case REDUCE_SCATTER -> on.reduceScatter(send, recv, count, type, op, stream);
            case REDUCE_SCATTER_V ->
                    on.reduceScatterV(send, recv, gathered(rank), type, op, stream);
            case GATHER -> on.gather(send, recv, count, type, root, stream);
            case SCATTER -> on.scatter(send, recv, count, type, root, stream);
            case ALL_TO_ALL -> on.allToAll(send, recv, count, type, stream);
            case ALL_TO_ALL_V -> on.allToAllV(send, recv, plan(rank), type, stream);
            case SEND_RECV -> {
                int to = (rank + root) % n;
                int from = (rank + n - root % n) % n;
                if (count % 2 == 0) {
                    on.sendRecv(send, count, to, recv, count, from, type, stream);
                } else {
                    on.recv(recv, count, type, from, stream);
                    on.send(send, count, type, to, stream);
                }
            }
            case BARRIER -> on.barrier(stream);
            case SPLIT, EXCHANGE_COUNTS -> throw new IllegalArgumentException("a host call");
        }
    }

    /**
     * New values everywhere, and what is to come of them. The order of additions is that of the
     * ranks.
     *
     * @param exact only values whose sums and products are the same in any order
     */
    void fill(SplittableRandom random, boolean exact) {
        for (int rank = 0; rank < n; rank++) {
            MemorySegment memory = wholes[rank].hostSegment();
            for (int i = 0; i < elements[rank]; i++) {
                if (!type.isFloat()) {
                    Elements.setBits(memory, type, i, random.nextLong());
                } else if (exact) {
                    Elements.setValue(memory, type, i, random.nextInt(-3, 4));
                } else {
                    Elements.setValue(memory, type, i, random.nextDouble(-8, 8));
                }
            }
        }
        expect();
    }

    /** The values of another one of the same shape. */
    void fillAs(KnownOperation other) {
        for (int rank = 0; rank < n; rank++) {
            wholes[rank].hostSegment().copyFrom(other.wholes[rank].hostSegment());
        }
        expected = other.expected;
    }

    private long[][] bits() {
        long[][] bits = new long[n][];
        for (int rank = 0; rank < n; rank++) {
            MemorySegment memory = wholes[rank].hostSegment();
            bits[rank] = new long[elements[rank]];
            for (int i = 0; i < elements[rank]; i++) {
                bits[rank][i] = Elements.bits(memory, type, i);
            }
        }
        return bits;
    }

    private void expect() {
        long[][] before = bits();
        expected = bits();
        int root = shape.root();
        for (int rank = 0; rank < n; rank++) {
            switch (shape.kind()) {
                case ALL_REDUCE -> combined(before, new int[n], rank, count);
                case REDUCE -> {
                    if (rank == root) {
                        combined(before, new int[n], rank, count);
                    }
                }
                case REDUCE_SCATTER -> {
                    int[] offsets = new int[n];
                    Arrays.fill(offsets, rank * count);
                    combined(before, offsets, rank, count);
                }
                case REDUCE_SCATTER_V -> {
                    int[] offsets = new int[n];
                    for (int p = 0; p < n; p++) {
                        offsets[p] = (int) gathered(p).offsetElements(rank);
                    }
                    combined(before, offsets, rank, (int) gathered(rank).countElements(rank));
                }
                case BROADCAST -> copied(before, root, 0, rank, 0, count);
                case SCATTER -> copied(before, root, rank * count, rank, 0, count);
                case ALL_GATHER, GATHER -> {
                    for (int p = 0; p < n; p++) {
                        if (shape.kind() == OperationKind.ALL_GATHER || rank == root) {
                            copied(before, p, 0, rank, p * count, count);
                        }
                    }
                }
                case ALL_GATHER_V -> {
                    BlockLayout layout = gathered(rank);
                    for (int p = 0; p < n; p++) {
                        int at = (int) layout.offsetElements(p);
                        copied(before, p, 0, rank, at, (int) layout.countElements(p));
                    }
                }
                case ALL_TO_ALL -> {
                    for (int p = 0; p < n; p++) {
                        copied(before, p, rank * count, rank, p * count, count);
                    }
                }
                case ALL_TO_ALL_V -> {
                    int at = 0;
                    for (int p = 0; p < n; p++) {
                        int from = (int) plan(p).send().offsetElements(rank);
                        copied(before, p, from, rank, at, exchanged(p, rank));
                        at += exchanged(p, rank);
                    }
                }
                case SEND_RECV -> copied(before, (rank + n - root % n) % n, 0, rank, 0, count);
                case BARRIER, SPLIT, EXCHANGE_COUNTS -> {}
            }
        }
    }

    private void copied(long[][] before, int from, int fromAt, int to, int toAt, int length) {
        if (length == 0) {
            // It may lie beyond the end of the buffer.
            return;
        }
        System.arraycopy(
                before[from], sendAt[from] + fromAt, expected[to], recvAt[to] + toAt, length);
    }

    private void combined(long[][] before, int[] offsets, int to, int length) {
        ReduceOp[] ops = shape.reductions().toArray(new ReduceOp[0]);
        long[] inputs = new long[n];
        for (int i = 0; i < length; i++) {
            for (int p = 0; p < n; p++) {
                inputs[p] = before[p][sendAt[p] + offsets[p] + i];
            }
            expected[to][recvAt[to] + i] = ScalarReduction.result(type, ops, inputs, n - 1);
        }
    }

    /** Fails unless each element is what was expected. */
    void assertRight(String what) {
        long[][] actual = bits();
        for (int rank = 0; rank < n; rank++) {
            for (int i = 0; i < elements[rank]; i++) {
                if (!ScalarReduction.same(type, actual[rank][i], expected[rank][i])) {
                    assertThat(type.valueOf(actual[rank][i]))
                            .as("%s, %s: element %d of rank %d", what, shape, i, rank)
                            .isEqualTo(type.valueOf(expected[rank][i]));
                }
            }
        }
    }

    /** Fails unless all bits are those of another one. */
    void assertSameBitsAs(KnownOperation other, String what) {
        for (int rank = 0; rank < n; rank++) {
            assertThat(wholes[rank].hostSegment().mismatch(other.wholes[rank].hostSegment()))
                    .as("%s, %s: rank %d", what, shape, rank)
                    .isEqualTo(-1);
        }
    }

    /** Without what is in its memory. */
    @Override
    public String toString() {
        return shape.toString();
    }

    @Override
    public void close() {
        for (DeviceBuffer whole : wholes) {
            whole.close();
        }
    }
}
