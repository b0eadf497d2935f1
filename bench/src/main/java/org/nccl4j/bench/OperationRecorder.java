package org.nccl4j.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.ReduceOp;

/**
 * Prepares the operations of the ranks that one thread drives, so that a timed loop only issues
 * them and allocates nothing.
 *
 * @param backend the backend
 * @param program the operation
 * @param ranks this thread's ranks
 * @param maxBytes the size of the largest row, through which operations rotate
 * @param unalignElements by how much all places in buffers are shifted
 */
record OperationRecorder(
        Backend backend,
        Program program,
        List<BenchRank> ranks,
        long maxBytes,
        int unalignElements) {

    /** Work that is ready to be enqueued, any number of times. */
    @FunctionalInterface
    interface Prepared {
        void enqueue();
    }

    /** Rotations longer than this start over: they walk through any cache all the same. */
    private static final int LONGEST_ROTATION = 4096;

    /**
     * The iterations of a timed loop: entry {@code i % size} is iteration i.
     *
     * @param aggregated operations per iteration, in one group if more than 1
     */
    List<Prepared> loop(RowPlan row, Placement placement, int iterations, int aggregated) {
        long sizeBytes = row.shape().sizeBytes();
        long places = sizeBytes == 0 ? 1 : Math.min(maxBytes / sizeBytes, LONGEST_ROTATION);
        long period = places / gcd(places, aggregated);
        return IntStream.range(0, (int) Math.min(iterations, period))
                .mapToObj(i -> operations(row, placement, (long) i * aggregated, aggregated))
                .toList();
    }

    /** A single operation of the given number, which chooses its place in the buffers. */
    Prepared one(RowPlan row, Placement placement, long number) {
        return operations(row, placement, number, 1);
    }

    private Prepared operations(RowPlan row, Placement placement, long first, int count) {
        if (program == Program.HYPERCUBE) {
            // Its steps build on each other and are groups already, so no group goes around them.
            List<Prepared> all = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                all.addAll(hypercube(row, placement, first + i));
            }
            Prepared[] steps = all.toArray(Prepared[]::new);
            return () -> {
                for (Prepared step : steps) {
                    step.enqueue();
                }
            };
        }
        RecordedGroup group =
                backend.record(g -> {
                    for (int i = 0; i < count; i++) {
                        for (BenchRank rank : ranks) {
                            add(g.on(rank.communicator()), row, placement, rank, first + i);
                        }
                    }
                });
        return group::issue;
    }

    private void add(Operations on, RowPlan row, Placement placement, BenchRank at, long number) {
        Shape shape = row.shape();
        DataType type = shape.type().dataType();
        DeviceBuffer send = sent(row, placement, at, number);
        DeviceBuffer recv = received(row, placement, at, number);
        long count = shape.paramCount();
        int root = row.series().root();
        int rank = at.rank();
        int size = at.communicator().size();
        ReduceOp op = row.series().op().reduceOp(type, rank);
        switch (program) {
            case ALL_REDUCE -> on.allReduce(send, recv, count, type, op, at.stream());
            case ALL_GATHER -> on.allGather(send, recv, count, type, at.stream());
            case BROADCAST -> on.broadcast(send, recv, count, type, root, at.stream());
            case REDUCE_SCATTER -> on.reduceScatter(send, recv, count, type, op, at.stream());
            case REDUCE -> on.reduce(send, recv, count, type, op, root, at.stream());
            case ALLTOALL -> on.allToAll(send, recv, count, type, at.stream());
            case ALLTOALLV -> on.allToAllV(send, recv, plan(row, rank), type, at.stream());
            case SCATTER -> on.scatter(send, recv, count, type, root, at.stream());
            case GATHER -> on.gather(send, recv, count, type, root, at.stream());
            case SENDRECV -> {
                int to = (rank + 1) % size;
                int from = (rank + size - 1) % size;
                on.sendRecv(send, count, to, recv, count, from, type, at.stream());
            }
            case HYPERCUBE -> throw new IllegalStateException("hypercube is no single operation");
        }
    }

    /** Where a rank sends from. */
    DeviceBuffer sent(RowPlan row, Placement placement, BenchRank at, long number) {
        Shape shape = row.shape();
        long start = start(shape, number);
        if (!isInPlace(placement)) {
            return at.send().slice(start, shape.sendBytes());
        }
        long offset = shape.inPlaceSendOffset(at.rank()) * shape.type().widthBytes();
        return at.recv().slice(start + offset, shape.sendBytes());
    }

    /** Where a rank receives. */
    DeviceBuffer received(RowPlan row, Placement placement, BenchRank at, long number) {
        Shape shape = row.shape();
        long start = start(shape, number);
        if (!isInPlace(placement)) {
            return at.recv().slice(start, shape.recvBytes());
        }
        long offset = shape.inPlaceRecvOffset(at.rank()) * shape.type().widthBytes();
        return at.recv().slice(start + offset, shape.recvBytes());
    }

    /** The first {@code recvBytes} of a receive buffer, which must be zero before an operation. */
    DeviceBuffer cleared(RowPlan row, BenchRank at) {
        return at.recv().slice(start(row.shape(), 0), row.shape().recvBytes());
    }

    /** Programs without an in-place form run the second cell like the first. */
    private boolean isInPlace(Placement placement) {
        return placement == Placement.IN_PLACE && program.checksInPlace();
    }

    private long start(Shape shape, long number) {
        long shiftBytes = (long) unalignElements * shape.type().widthBytes();
        return shiftBytes + shape.rotationOffsetBytes(number, maxBytes);
    }

    private static AllToAllVPlan plan(RowPlan row, int rank) {
        long[][] counts = row.blockCounts();
        long[] received = new long[counts.length];
        for (int from = 0; from < counts.length; from++) {
            received[from] = counts[from][rank];
        }
        return new AllToAllVPlan(BlockLayout.packed(counts[rank]), BlockLayout.packed(received));
    }

    /**
     * All-gather by recursive doubling: after step k a rank holds the chunks of the 2^(k+1) ranks
     * that differ from it in the low k+1 bits. One group per step over all ranks of this thread, so
     * that no step sends what an earlier one has not received.
     */
    private List<Prepared> hypercube(RowPlan row, Placement placement, long number) {
        Shape shape = row.shape();
        DataType type = shape.type().dataType();
        long chunkBytes = shape.sendBytes();
        List<Prepared> steps = new ArrayList<>();
        if (!isInPlace(placement)) {
            for (BenchRank at : ranks) {
                DeviceBuffer send = sent(row, placement, at, number);
                DeviceBuffer own =
                        received(row, placement, at, number)
                                .slice(at.rank() * chunkBytes, chunkBytes);
                steps.add(() -> at.stream().copy(send, own, chunkBytes));
            }
        }
        int size = ranks.getFirst().communicator().size();
        for (int mask = 1; mask < size; mask *= 2) {
            int chunks = mask;
            long count = chunks * shape.paramCount();
            RecordedGroup step =
                    backend.record(g -> {
                        for (BenchRank at : ranks) {
                            DeviceBuffer recv = received(row, placement, at, number);
                            int peer = at.rank() ^ chunks;
                            DeviceBuffer held = chunksOf(recv, at.rank(), chunks, chunkBytes);
                            DeviceBuffer missing = chunksOf(recv, peer, chunks, chunkBytes);
                            g.on(at.communicator())
                                    .sendRecv(
                                            held,
                                            count,
                                            peer,
                                            missing,
                                            count,
                                            peer,
                                            type,
                                            at.stream());
                        }
                    });
            steps.add(step::issue);
        }
        return steps;
    }

    /** The aligned run of {@code chunks} chunks that a rank's own chunk belongs to. */
    private static DeviceBuffer chunksOf(DeviceBuffer recv, int rank, int chunks, long chunkBytes) {
        return recv.slice((rank & -chunks) * chunkBytes, chunks * chunkBytes);
    }

    private static long gcd(long a, long b) {
        return b == 0 ? a : gcd(b, a % b);
    }
}
