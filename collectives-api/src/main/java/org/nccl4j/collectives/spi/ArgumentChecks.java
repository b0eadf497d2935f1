package org.nccl4j.collectives.spi;

import java.util.Set;
import java.util.TreeSet;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UnsupportedException;

/**
 * The checks that every backend makes before it enqueues, so that bad input gets the same error
 * everywhere and leaves everything usable. The rules of overlap are those of {@code
 * docs/semantics.md}, rule 9: only ranges that this rank reads or writes count. A buffer starts at
 * a multiple of its element's size: a GPU loses its context over less. Nothing is allocated unless
 * a check fails.
 *
 * <p>Thread safety: immutable.
 */
public final class ArgumentChecks {
    private final Capabilities capabilities;
    private final Device device;
    private final int rank;
    private final int size;
    // Bit i is the i-th constant: cheaper on every call than asking the sets.
    private final int typeBits;
    private final int reductionBits;

    /**
     * Refuses an argument that is null, before anything has changed.
     *
     * @param operation what was called
     * @param what the argument
     * @param argument its value
     * @throws InvalidArgumentException if it is null
     */
    public static void given(String operation, String what, Object argument) {
        if (argument == null) {
            throw new InvalidArgumentException(
                    operation + ": the " + what + " is null; nothing has changed");
        }
    }

    /**
     * Checks for one rank.
     *
     * @param capabilities the backend's
     * @param device the rank's device
     * @param rank the rank
     * @param size the number of ranks
     */
    public ArgumentChecks(Capabilities capabilities, Device device, int rank, int size) {
        this.capabilities = capabilities;
        this.device = device;
        this.rank = rank;
        this.size = size;
        this.typeBits = bits(capabilities.types());
        this.reductionBits = bits(capabilities.reductions());
    }

    /**
     * Checks an all-reduce.
     *
     * @param send as in the operation
     * @param recv as in the operation
     * @param count elements
     * @param type element type
     * @param op reduction
     */
    public void allReduce(
            DeviceBuffer send, DeviceBuffer recv, long count, DataType type, ReduceOp op) {
        reduction("allReduce", type, op);
        long bytes = bytes("allReduce", type, count);
        reads("allReduce", "send", send, bytes, type);
        writes("allReduce", "recv", recv, bytes, type);
        if (bytes > 0 && send.address() != recv.address()) {
            apart("allReduce", send, 0, bytes, recv, 0, bytes);
        }
    }

    /**
     * Checks a reduce.
     *
     * @param send as in the operation
     * @param recv as in the operation
     * @param count elements
     * @param type element type
     * @param op reduction
     * @param root root
     */
    public void reduce(
            DeviceBuffer send,
            DeviceBuffer recv,
            long count,
            DataType type,
            ReduceOp op,
            int root) {
        reduction("reduce", type, op);
        long bytes = bytes("reduce", type, count);
        member("reduce", "root", root);
        reads("reduce", "send", send, bytes, type);
        if (rank == root) {
            writes("reduce", "recv", recv, bytes, type);
            if (bytes > 0 && send.address() != recv.address()) {
                apart("reduce", send, 0, bytes, recv, 0, bytes);
            }
        }
    }

    /**
     * Checks a broadcast.
     *
     * @param send as in the operation
     * @param recv as in the operation
     * @param count elements
     * @param type element type
     * @param root root
     */
    public void broadcast(
            DeviceBuffer send, DeviceBuffer recv, long count, DataType type, int root) {
        type("broadcast", type);
        long bytes = bytes("broadcast", type, count);
        member("broadcast", "root", root);
        writes("broadcast", "recv", recv, bytes, type);
        if (rank == root) {
            reads("broadcast", "send", send, bytes, type);
            if (bytes > 0 && send.address() != recv.address()) {
                apart("broadcast", send, 0, bytes, recv, 0, bytes);
            }
        }
    }

    /**
     * Checks an all-gather.
     *
     * @param send as in the operation
     * @param recv as in the operation
     * @param count elements of one rank
     * @param type element type
     */
    public void allGather(DeviceBuffer send, DeviceBuffer recv, long count, DataType type) {
        type("allGather", type);
        long bytes = bytes("allGather", type, count);
        long allBytes = times("allGather", bytes);
        reads("allGather", "send", send, bytes, type);
        writes("allGather", "recv", recv, allBytes, type);
        inPlaceOrApart("allGather", send, bytes, recv, allBytes);
    }

    /**
     * Checks an all-gather-v.
     *
     * @param send as in the operation
     * @param recv as in the operation
     * @param layout blocks of recv
     * @param type element type
     */
    public void allGatherV(
            DeviceBuffer send, DeviceBuffer recv, BlockLayout layout, DataType type) {
        type("allGatherV", type);
        layout("allGatherV", layout);
        long bytes = bytes("allGatherV", type, layout.countElements(rank));
        long extentBytes = bytes("allGatherV", type, layout.extentElements());
        reads("allGatherV", "send", send, bytes, type);
        writes("allGatherV", "recv", recv, extentBytes, type);
        inPlaceOrApart("allGatherV", send, bytes, recv, extentBytes, layout, type);
    }

    /**
     * Checks a reduce-scatter.
     *
     * @param send as in the operation
     * @param recv as in the operation
     * @param count elements of one block
     * @param type element type
     * @param op reduction
     */
    public void reduceScatter(
            DeviceBuffer send, DeviceBuffer recv, long count, DataType type, ReduceOp op) {
        reduction("reduceScatter", type, op);
        long bytes = bytes("reduceScatter", type, count);
        long allBytes = times("reduceScatter", bytes);
        reads("reduceScatter", "send", send, allBytes, type);
        writes("reduceScatter", "recv", recv, bytes, type);
        inPlaceOrApart("reduceScatter", recv, bytes, send, allBytes);
    }

    /**
     * Checks a reduce-scatter-v.
     *
     * @param send as in the operation
     * @param recv as in the operation
     * @param layout blocks of send
     * @param type element type
     * @param op reduction
     */
    public void reduceScatterV(
            DeviceBuffer send, DeviceBuffer recv, BlockLayout layout, DataType type, ReduceOp op) {
        reduction("reduceScatterV", type, op);
        layout("reduceScatterV", layout);
        long bytes = bytes("reduceScatterV", type, layout.countElements(rank));
        long extentBytes = bytes("reduceScatterV", type, layout.extentElements());
        reads("reduceScatterV", "send", send, extentBytes, type);
        writes("reduceScatterV", "recv", recv, bytes, type);
        inPlaceOrApart("reduceScatterV", recv, bytes, send, extentBytes, layout, type);
    }

    /**
     * Checks a gather.
     *
     * @param send as in the operation
     * @param recv as in the operation
     * @param count elements of one rank
     * @param type element type
     * @param root root
     */
    public void gather(DeviceBuffer send, DeviceBuffer recv, long count, DataType type, int root) {
        type("gather", type);
        long bytes = bytes("gather", type, count);
        long allBytes = times("gather", bytes);
        member("gather", "root", root);
        reads("gather", "send", send, bytes, type);
        if (rank == root) {
            writes("gather", "recv", recv, allBytes, type);
            inPlaceOrApart("gather", send, bytes, recv, allBytes);
        }
    }

    /**
     * Checks a scatter.
     *
     * @param send as in the operation
     * @param recv as in the operation
     * @param count elements of one block
     * @param type element type
     * @param root root
     */
    public void scatter(DeviceBuffer send, DeviceBuffer recv, long count, DataType type, int root) {
        type("scatter", type);
        long bytes = bytes("scatter", type, count);
        long allBytes = times("scatter", bytes);
        member("scatter", "root", root);
        writes("scatter", "recv", recv, bytes, type);
        if (rank == root) {
            reads("scatter", "send", send, allBytes, type);
            inPlaceOrApart("scatter", recv, bytes, send, allBytes);
        }
    }

    /**
     * Checks an all-to-all.
     *
     * @param send as in the operation
     * @param recv as in the operation
     * @param count elements of one block
     * @param type element type
     */
    public void allToAll(DeviceBuffer send, DeviceBuffer recv, long count, DataType type) {
        type("allToAll", type);
        long allBytes = times("allToAll", bytes("allToAll", type, count));
        reads("allToAll", "send", send, allBytes, type);
        writes("allToAll", "recv", recv, allBytes, type);
        if (allBytes > 0) {
            apart("allToAll", send, 0, allBytes, recv, 0, allBytes);
        }
    }

    /**
     * Checks an all-to-all-v.
     *
     * @param send as in the operation
     * @param recv as in the operation
     * @param plan this rank's blocks
     * @param type element type
     */
    public void allToAllV(DeviceBuffer send, DeviceBuffer recv, AllToAllVPlan plan, DataType type) {
        type("allToAllV", type);
        if (plan == null) {
            throw refuse("allToAllV", "plan is null");
        }
        if (plan.ranks() != size) {
            throw refuse(
                    "allToAllV",
                    "the plan is for " + plan.ranks() + " ranks, the communicator has " + size);
        }
        BlockLayout sent = plan.send();
        BlockLayout received = plan.receive();
        long sentBytes = bytes("allToAllV", type, sent.extentElements());
        long receivedBytes = bytes("allToAllV", type, received.extentElements());
        reads("allToAllV", "send", send, sentBytes, type);
        writes("allToAllV", "recv", recv, receivedBytes, type);
        if (sentBytes > 0
                && receivedBytes > 0
                && overlap(send.address(), sentBytes, recv.address(), receivedBytes)) {
            // Blocks of both may lie between each other in one piece of memory.
            for (int s = 0; s < size; s++) {
                if (sent.countElements(s) > 0) {
                    apart(
                            "allToAllV",
                            send,
                            type.bytes(sent.offsetElements(s)),
                            type.bytes(sent.countElements(s)),
                            recv,
                            received,
                            type);
                }
            }
        }
    }

    /**
     * Checks a send.
     *
     * @param send as in the operation
     * @param count elements
     * @param type element type
     * @param peer the destination
     */
    public void send(DeviceBuffer send, long count, DataType type, int peer) {
        send("send", "peer", send, count, type, peer);
    }

    /**
     * Checks a receive.
     *
     * @param recv as in the operation
     * @param count elements
     * @param type element type
     * @param peer the source
     */
    public void recv(DeviceBuffer recv, long count, DataType type, int peer) {
        recv("recv", "peer", recv, count, type, peer);
    }

    /**
     * Checks a send-receive.
     *
     * @param send as in the operation
     * @param sendCount elements sent
     * @param destination where to
     * @param recv as in the operation
     * @param recvCount elements received
     * @param source where from
     * @param type element type
     */
    public void sendRecv(
            DeviceBuffer send,
            long sendCount,
            int destination,
            DeviceBuffer recv,
            long recvCount,
            int source,
            DataType type) {
        send("sendRecv", "destination", send, sendCount, type, destination);
        recv("sendRecv", "source", recv, recvCount, type, source);
        if (sendCount > 0 && recvCount > 0) {
            apart("sendRecv", send, 0, type.bytes(sendCount), recv, 0, type.bytes(recvCount));
        }
    }

    /**
     * Checks that a stream is there and belongs to this rank's device.
     *
     * @param operation the operation's name
     * @param stream the stream
     */
    public void stream(String operation, DeviceStream stream) {
        if (stream == null) {
            throw refuse(operation, "stream is null; make one with device().createStream()");
        }
        if (!stream.device().equals(device)) {
            throw refuse(
                    operation,
                    "the stream is on "
                            + describe(stream.device())
                            + ", the communicator on "
                            + describe(device)
                            + "; use a stream of the communicator's device()");
        }
    }

    /**
     * Checks a stream's copy. Memory of every device is taken, closed and read-only memory and an
     * overlap are not.
     *
     * @param capabilities the backend's
     * @param source as in the operation
     * @param destination as in the operation
     * @param sizeBytes as in the operation
     */
    public static void copy(
            Capabilities capabilities,
            DeviceBuffer source,
            DeviceBuffer destination,
            long sizeBytes) {
        if (sizeBytes < 0) {
            throw refuseLocal("copy", "size is " + sizeBytes + " bytes, must be at least 0");
        }
        if (sizeBytes == 0) {
            return;
        }
        local("copy", "source", source, sizeBytes, capabilities);
        local("copy", "destination", destination, sizeBytes, capabilities);
        writable("copy", destination);
        if (overlap(source.address(), sizeBytes, destination.address(), sizeBytes)) {
            throw refuseLocal(
                    "copy",
                    "the first "
                            + sizeBytes
                            + " bytes of source "
                            + source
                            + " and destination "
                            + destination
                            + " overlap");
        }
    }

    /**
     * Checks a stream's fill.
     *
     * @param capabilities the backend's
     * @param destination as in the operation
     */
    public static void fill(Capabilities capabilities, DeviceBuffer destination) {
        if (destination == null) {
            throw refuseLocal("fill", "destination is null");
        }
        if (destination.sizeBytes() > 0) {
            local("fill", "destination", destination, destination.sizeBytes(), capabilities);
            writable("fill", destination);
        }
    }

    private static void local(
            String operation,
            String what,
            DeviceBuffer buffer,
            long bytes,
            Capabilities capabilities) {
        if (buffer == null) {
            throw refuseLocal(operation, what + " is null, needs " + bytes + " bytes");
        }
        if (buffer.isClosed()) {
            throw refuseLocal(operation, what + " " + buffer + " is closed, or its arena is");
        }
        if (buffer.sizeBytes() < bytes) {
            throw refuseLocal(
                    operation, what + " " + buffer + " is too short, needs " + bytes + " bytes");
        }
        if (capabilities.hostBuffers() && !buffer.isHostAccessible()) {
            throw refuseLocal(
                    operation,
                    what
                            + " "
                            + buffer
                            + " is a bare address, which this backend cannot read; wrap a"
                            + " MemorySegment of that address and size instead");
        }
    }

    private static void writable(String operation, DeviceBuffer destination) {
        if (destination.isReadOnly()) {
            throw refuseLocal(operation, "destination " + destination + " is read-only");
        }
    }

    private static InvalidArgumentException refuseLocal(String operation, String why) {
        return new InvalidArgumentException(operation + ": " + why + "; nothing was enqueued");
    }

    private void send(
            String operation,
            String peerName,
            DeviceBuffer send,
            long count,
            DataType type,
            int peer) {
        type(operation, type);
        long bytes = bytes(operation, type, count);
        member(operation, peerName, peer);
        reads(operation, "send", send, bytes, type);
    }

    private void recv(
            String operation,
            String peerName,
            DeviceBuffer recv,
            long count,
            DataType type,
            int peer) {
        type(operation, type);
        long bytes = bytes(operation, type, count);
        member(operation, peerName, peer);
        writes(operation, "recv", recv, bytes, type);
    }

    private long bytes(String operation, DataType type, long count) {
        if (count < 0) {
            throw refuse(operation, "count is " + count + ", must be at least 0");
        }
        if (count > Long.MAX_VALUE / type.sizeBytes()) {
            throw refuse(
                    operation,
                    count
                            + " elements of "
                            + type
                            + " exceed 2^63-1 bytes; counts are elements, check the unit");
        }
        return count * type.sizeBytes();
    }

    private long times(String operation, long blockBytes) {
        if (blockBytes > Long.MAX_VALUE / size) {
            throw refuse(
                    operation,
                    size
                            + " blocks of "
                            + blockBytes
                            + " bytes exceed 2^63-1 bytes; the count is that of one block");
        }
        return blockBytes * size;
    }

    private void member(String operation, String what, int value) {
        if (value < 0 || value >= size) {
            throw refuse(operation, what + " is " + value + ", must be 0 to " + (size - 1));
        }
    }

    private void type(String operation, DataType type) {
        if (type == null) {
            throw refuse(operation, "type is null");
        }
        if ((typeBits >>> type.ordinal() & 1) == 0) {
            throw new UnsupportedException(
                    where(operation)
                            + "this backend has no "
                            + type
                            + "; it has "
                            + new TreeSet<>(capabilities.types())
                            + "; nothing was enqueued");
        }
    }

    private void reduction(String operation, DataType type, ReduceOp op) {
        type(operation, type);
        if (op == null) {
            throw refuse(operation, "reduction is null");
        }
        boolean supported;
        if (op instanceof ReduceOp.Predefined predefined) {
            supported = (reductionBits >>> predefined.ordinal() & 1) != 0;
        } else {
            DataType scalarType = ((ReduceOp.PreMulSum) op).type();
            if (scalarType != type) {
                throw refuse(
                        operation,
                        "the scalar of preMulSum is "
                                + scalarType
                                + ", the buffers are "
                                + type
                                + "; make it with ReduceOp.preMulSum("
                                + type
                                + ", ...)");
            }
            supported = capabilities.preMulSum();
        }
        if (!supported) {
            throw new UnsupportedException(
                    where(operation)
                            + "this backend has no "
                            + op
                            + "; it has "
                            + new TreeSet<>(capabilities.reductions())
                            + (capabilities.preMulSum() ? " and preMulSum" : "")
                            + "; nothing was enqueued");
        }
    }

    private void layout(String operation, BlockLayout layout) {
        if (layout == null) {
            throw refuse(operation, "layout is null");
        }
        if (layout.ranks() != size) {
            throw refuse(
                    operation,
                    "the layout has "
                            + layout.ranks()
                            + " blocks, the communicator "
                            + size
                            + " ranks");
        }
    }

    private void reads(
            String operation, String what, DeviceBuffer buffer, long bytes, DataType type) {
        if (bytes == 0) {
            return;
        }
        if (buffer == null) {
            throw refuse(operation, what + " is null, the operation needs " + bytes + " bytes");
        }
        if (buffer.isClosed()) {
            throw refuse(operation, what + " " + buffer + " is closed, or its arena is");
        }
        if (buffer.sizeBytes() < bytes) {
            throw refuse(
                    operation,
                    what + " " + buffer + " is too short, the operation needs " + bytes + " bytes");
        }
        if (buffer.device() == null
                ? !capabilities.hostBuffers()
                : !buffer.device().equals(device)) {
            throw refuse(
                    operation,
                    what
                            + " "
                            + buffer
                            + " is not memory of the communicator's "
                            + describe(device)
                            + "; allocate it there with device().allocate, or copy it there");
        }
        if (capabilities.hostBuffers() && !buffer.isHostAccessible()) {
            throw refuse(
                    operation,
                    what
                            + " "
                            + buffer
                            + " is a bare address, which this backend cannot read; wrap a"
                            + " MemorySegment of that address and size instead");
        }
        // Sizes are powers of two.
        if ((buffer.address() & (type.sizeBytes() - 1L)) != 0) {
            throw refuse(
                    operation,
                    what
                            + " "
                            + buffer
                            + " does not start at a multiple of "
                            + type.sizeBytes()
                            + " bytes, the size of "
                            + type);
        }
    }

    private void writes(
            String operation, String what, DeviceBuffer buffer, long bytes, DataType type) {
        reads(operation, what, buffer, bytes, type);
        if (bytes > 0 && buffer.isReadOnly()) {
            throw refuse(operation, what + " " + buffer + " is read-only");
        }
    }

    /** One block may start exactly at this rank's place in the whole; otherwise both are apart. */
    private void inPlaceOrApart(
            String operation,
            DeviceBuffer block,
            long blockBytes,
            DeviceBuffer whole,
            long wholeBytes) {
        if (blockBytes > 0 && block.address() != whole.address() + rank * blockBytes) {
            apart(operation, block, 0, blockBytes, whole, 0, wholeBytes);
        }
    }

    /** As above, where the whole has a layout; a block may lie in one of its gaps. */
    private void inPlaceOrApart(
            String operation,
            DeviceBuffer block,
            long blockBytes,
            DeviceBuffer whole,
            long extentBytes,
            BlockLayout layout,
            DataType type) {
        if (blockBytes > 0
                && block.address() != whole.address() + type.bytes(layout.offsetElements(rank))
                && overlap(block.address(), blockBytes, whole.address(), extentBytes)) {
            apart(operation, block, 0, blockBytes, whole, layout, type);
        }
    }

    private void apart(
            String operation,
            DeviceBuffer a,
            long aOffsetBytes,
            long aBytes,
            DeviceBuffer b,
            BlockLayout bLayout,
            DataType type) {
        for (int r = 0; r < size; r++) {
            if (bLayout.countElements(r) > 0) {
                apart(
                        operation,
                        a,
                        aOffsetBytes,
                        aBytes,
                        b,
                        type.bytes(bLayout.offsetElements(r)),
                        type.bytes(bLayout.countElements(r)));
            }
        }
    }

    private void apart(
            String operation,
            DeviceBuffer a,
            long aOffsetBytes,
            long aBytes,
            DeviceBuffer b,
            long bOffsetBytes,
            long bBytes) {
        long aStart = a.address() + aOffsetBytes;
        long bStart = b.address() + bOffsetBytes;
        if (overlap(aStart, aBytes, bStart, bBytes)) {
            throw refuse(
                    operation,
                    "what this rank reads and writes overlaps: [0x"
                            + Long.toHexString(aStart)
                            + ", +"
                            + aBytes
                            + ") and [0x"
                            + Long.toHexString(bStart)
                            + ", +"
                            + bBytes
                            + "); use separate buffers or the exact in-place form");
        }
    }

    /** Whether two non-empty ranges share a byte, anywhere in the 64-bit address space. */
    private static boolean overlap(long aStart, long aBytes, long bStart, long bBytes) {
        return Long.compareUnsigned(bStart - aStart, aBytes) < 0
                || Long.compareUnsigned(aStart - bStart, bBytes) < 0;
    }

    private InvalidArgumentException refuse(String operation, String why) {
        return new InvalidArgumentException(where(operation) + why + "; nothing was enqueued");
    }

    private String where(String operation) {
        return operation + " on rank " + rank + "/" + size + ": ";
    }

    private static String describe(Device device) {
        return "device " + device.ordinal() + " (" + device.name() + ")";
    }

    private static int bits(Set<? extends Enum<?>> constants) {
        int bits = 0;
        for (Enum<?> constant : constants) {
            bits |= 1 << constant.ordinal();
        }
        return bits;
    }
}
