package org.nccl4j.collectives.spi;

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
 * docs/semantics.md}, rule 9: only ranges that this rank reads or writes count. Nothing is
 * allocated unless a check fails.
 *
 * <p>Thread safety: immutable.
 */
public final class ArgumentChecks {
    private final Capabilities capabilities;
    private final Device device;
    private final int rank;
    private final int size;

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
        count("allReduce", count);
        long bytes = type.bytes(count);
        reads("allReduce", "send", send, bytes);
        writes("allReduce", "recv", recv, bytes);
        if (bytes > 0) {
            disjointOrEqual("allReduce", send, 0, bytes, recv, 0, bytes, true);
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
        count("reduce", count);
        member("reduce", "root", root);
        long bytes = type.bytes(count);
        reads("reduce", "send", send, bytes);
        if (rank == root) {
            writes("reduce", "recv", recv, bytes);
            if (bytes > 0) {
                disjointOrEqual("reduce", send, 0, bytes, recv, 0, bytes, true);
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
        count("broadcast", count);
        member("broadcast", "root", root);
        long bytes = type.bytes(count);
        writes("broadcast", "recv", recv, bytes);
        if (rank == root) {
            reads("broadcast", "send", send, bytes);
            if (bytes > 0) {
                disjointOrEqual("broadcast", send, 0, bytes, recv, 0, bytes, true);
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
        count("allGather", count);
        long bytes = type.bytes(count);
        reads("allGather", "send", send, bytes);
        writes("allGather", "recv", recv, times("allGather", bytes));
        if (bytes > 0) {
            inPlaceBlock("allGather", send, recv, rank * bytes, bytes, size * bytes);
        }
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
        long bytes = type.bytes(layout.countElements(rank));
        reads("allGatherV", "send", send, bytes);
        long extent = type.bytes(layout.extentElements());
        writes("allGatherV", "recv", recv, extent);
        if (bytes > 0) {
            long offset = type.bytes(layout.offsetElements(rank));
            if (send.address() != recv.address() + offset) {
                for (int r = 0; r < size; r++) {
                    disjointOrEqual(
                            "allGatherV",
                            send,
                            0,
                            bytes,
                            recv,
                            type.bytes(layout.offsetElements(r)),
                            type.bytes(layout.countElements(r)),
                            false);
                }
            }
        }
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
        count("reduceScatter", count);
        long bytes = type.bytes(count);
        reads("reduceScatter", "send", send, times("reduceScatter", bytes));
        writes("reduceScatter", "recv", recv, bytes);
        if (bytes > 0) {
            inPlaceBlock("reduceScatter", recv, send, rank * bytes, bytes, size * bytes);
        }
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
        long bytes = type.bytes(layout.countElements(rank));
        reads("reduceScatterV", "send", send, type.bytes(layout.extentElements()));
        writes("reduceScatterV", "recv", recv, bytes);
        if (bytes > 0
                && recv.address() != send.address() + type.bytes(layout.offsetElements(rank))) {
            for (int r = 0; r < size; r++) {
                disjointOrEqual(
                        "reduceScatterV",
                        recv,
                        0,
                        bytes,
                        send,
                        type.bytes(layout.offsetElements(r)),
                        type.bytes(layout.countElements(r)),
                        false);
            }
        }
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
        count("gather", count);
        member("gather", "root", root);
        long bytes = type.bytes(count);
        reads("gather", "send", send, bytes);
        if (rank == root) {
            writes("gather", "recv", recv, times("gather", bytes));
            if (bytes > 0) {
                inPlaceBlock("gather", send, recv, rank * bytes, bytes, size * bytes);
            }
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
        count("scatter", count);
        member("scatter", "root", root);
        long bytes = type.bytes(count);
        writes("scatter", "recv", recv, bytes);
        if (rank == root) {
            reads("scatter", "send", send, times("scatter", bytes));
            if (bytes > 0) {
                inPlaceBlock("scatter", recv, send, rank * bytes, bytes, size * bytes);
            }
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
        count("allToAll", count);
        long bytes = times("allToAll", type.bytes(count));
        reads("allToAll", "send", send, bytes);
        writes("allToAll", "recv", recv, bytes);
        if (bytes > 0) {
            disjointOrEqual("allToAll", send, 0, bytes, recv, 0, bytes, false);
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
        if (plan == null || plan.ranks() != size) {
            throw refuse(
                    "allToAllV",
                    plan == null
                            ? "plan is null"
                            : "the plan is for "
                                    + plan.ranks()
                                    + " ranks, the communicator has "
                                    + size);
        }
        reads("allToAllV", "send", send, type.bytes(plan.send().extentElements()));
        writes("allToAllV", "recv", recv, type.bytes(plan.receive().extentElements()));
        if (plan.send().totalElements() > 0 && plan.receive().totalElements() > 0) {
            for (int s = 0; s < size; s++) {
                for (int r = 0; r < size; r++) {
                    disjointOrEqual(
                            "allToAllV",
                            send,
                            type.bytes(plan.send().offsetElements(s)),
                            type.bytes(plan.send().countElements(s)),
                            recv,
                            type.bytes(plan.receive().offsetElements(r)),
                            type.bytes(plan.receive().countElements(r)),
                            false);
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
        type("send", type);
        count("send", count);
        member("send", "peer", peer);
        reads("send", "send", send, type.bytes(count));
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
        type("recv", type);
        count("recv", count);
        member("recv", "peer", peer);
        writes("recv", "recv", recv, type.bytes(count));
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
        send(send, sendCount, type, destination);
        recv(recv, recvCount, type, source);
        if (sendCount > 0 && recvCount > 0) {
            disjointOrEqual(
                    "sendRecv",
                    send,
                    0,
                    type.bytes(sendCount),
                    recv,
                    0,
                    type.bytes(recvCount),
                    false);
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
                    "the stream is on device "
                            + stream.device().ordinal()
                            + ", the communicator on device "
                            + device.ordinal()
                            + "; use a stream of the communicator's device()");
        }
    }

    private void count(String operation, long count) {
        if (count < 0) {
            throw refuse(operation, "count is " + count + ", must be at least 0");
        }
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
        if (!capabilities.types().contains(type)) {
            throw new UnsupportedException(
                    where(operation)
                            + "this backend has no "
                            + type
                            + "; it has "
                            + capabilities.types());
        }
    }

    private void reduction(String operation, DataType type, ReduceOp op) {
        type(operation, type);
        if (op == null) {
            throw refuse(operation, "reduction is null");
        }
        if (op instanceof ReduceOp.PreMulSum scaled && scaled.type() != type) {
            throw refuse(
                    operation,
                    "the scalar of preMulSum is "
                            + scaled.type()
                            + ", the buffers are "
                            + type
                            + "; make it with"
                            + " ReduceOp.preMulSum("
                            + type
                            + ", ...)");
        }
        if (!capabilities.supports(type, op)) {
            throw new UnsupportedException(
                    where(operation) + "this backend has no " + op + " of " + type);
        }
    }

    private void layout(String operation, BlockLayout layout) {
        if (layout == null || layout.ranks() != size) {
            throw refuse(
                    operation,
                    layout == null
                            ? "layout is null"
                            : "the layout has "
                                    + layout.ranks()
                                    + " blocks, the communicator "
                                    + size
                                    + " ranks");
        }
    }

    private long times(String operation, long blockBytes) {
        if (blockBytes > Long.MAX_VALUE / size) {
            throw refuse(
                    operation,
                    size
                            + " blocks of "
                            + blockBytes
                            + " bytes exceed 2^63-1 bytes; check the count");
        }
        return blockBytes * size;
    }

    private void reads(String operation, String what, DeviceBuffer buffer, long bytes) {
        if (bytes == 0) {
            return;
        }
        if (buffer == null) {
            throw refuse(operation, what + " is null, needs " + bytes + " bytes");
        }
        if (buffer.isClosed()) {
            throw refuse(operation, what + " " + buffer + " is closed");
        }
        if (buffer.sizeBytes() < bytes) {
            throw refuse(
                    operation,
                    what + " has " + buffer.sizeBytes() + " bytes, the operation needs " + bytes);
        }
        if (buffer.device() == null
                ? !capabilities.hostBuffers()
                : !buffer.device().equals(device)) {
            throw refuse(
                    operation,
                    what
                            + " "
                            + buffer
                            + " is not memory of the communicator's device "
                            + device.ordinal());
        }
        if (capabilities.hostBuffers() && !buffer.isHostAccessible()) {
            throw refuse(
                    operation,
                    what
                            + " "
                            + buffer
                            + " is a bare address; wrap a MemorySegment of that address and size instead");
        }
    }

    private void writes(String operation, String what, DeviceBuffer buffer, long bytes) {
        reads(operation, what, buffer, bytes);
        if (bytes > 0 && buffer.isReadOnly()) {
            throw refuse(operation, what + " " + buffer + " is read-only");
        }
    }

    /** One block may start exactly at its own place in the whole; otherwise both must be apart. */
    private void inPlaceBlock(
            String operation,
            DeviceBuffer block,
            DeviceBuffer whole,
            long placeBytes,
            long blockBytes,
            long wholeBytes) {
        if (block.address() != whole.address() + placeBytes) {
            disjointOrEqual(operation, block, 0, blockBytes, whole, 0, wholeBytes, false);
        }
    }

    private void disjointOrEqual(
            String operation,
            DeviceBuffer a,
            long aOffset,
            long aBytes,
            DeviceBuffer b,
            long bOffset,
            long bBytes,
            boolean equalIsInPlace) {
        if (aBytes == 0 || bBytes == 0) {
            return;
        }
        long aStart = a.address() + aOffset;
        long bStart = b.address() + bOffset;
        if (aStart < bStart + bBytes
                && bStart < aStart + aBytes
                && !(equalIsInPlace && aStart == bStart)) {
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

    private InvalidArgumentException refuse(String operation, String why) {
        return new InvalidArgumentException(where(operation) + why + "; nothing was enqueued");
    }

    private String where(String operation) {
        return operation + " on rank " + rank + "/" + size + ": ";
    }
}
