package org.nccl4j.nccl;

import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;

/**
 * One rank's operation as calls of NCCL. What the loaded library lacks is made of sends and
 * receives, as NCCL itself does it; the choice depends on the library's version alone, which is the
 * same on all ranks. All but the operations that are a single call belong into a group.
 *
 * <p>Thread safety: as the communicator.
 */
final class NativeCalls {
    /** All-to-all, gather and scatter came together. */
    private static final int ALL_TO_ALL_SINCE = 22803;

    static final boolean HAS_ALL_TO_ALL = NcclLibrary.versionCode() >= ALL_TO_ALL_SINCE;

    private NativeCalls() {}

    /**
     * Enqueues an operation that moves something.
     *
     * @param root root of a rooted collective, peer of a send or receive
     * @return NCCL's code, of the first call that failed
     */
    static int enqueue(
            OperationKind kind,
            long send,
            long recv,
            long count,
            DataType type,
            int operator,
            int root,
            BlockLayout sendLayout,
            BlockLayout recvLayout,
            Member member,
            long stream) {
        long comm = member.comm();
        // The constants are in the order of NCCL's.
        int t = type.ordinal();
        return switch (kind) {
            case ALL_REDUCE, BARRIER ->
                    NcclLibrary.allReduce(send, recv, count, t, operator, comm, stream);
            case REDUCE -> NcclLibrary.reduce(send, recv, count, t, operator, root, comm, stream);
            case BROADCAST ->
                    NcclLibrary.broadcast(
                            send == 0 ? recv : send, recv, count, t, root, comm, stream);
            case ALL_GATHER -> NcclLibrary.allGather(send, recv, count, t, comm, stream);
            case REDUCE_SCATTER ->
                    NcclLibrary.reduceScatter(send, recv, count, t, operator, comm, stream);
            case SEND -> NcclLibrary.send(send, count, t, root, comm, stream);
            case RECV -> NcclLibrary.recv(recv, count, t, root, comm, stream);
            case GATHER ->
                    HAS_ALL_TO_ALL
                            ? NcclLibrary.gather(send, recv, count, t, root, comm, stream)
                            : gather(send, recv, count, type, root, member, stream);
            case SCATTER ->
                    HAS_ALL_TO_ALL
                            ? NcclLibrary.scatter(send, recv, count, t, root, comm, stream)
                            : scatter(send, recv, count, type, root, member, stream);
            case ALL_TO_ALL, EXCHANGE_COUNTS ->
                    HAS_ALL_TO_ALL
                            ? NcclLibrary.allToAll(send, recv, count, t, comm, stream)
                            : allToAll(send, recv, count, type, member, stream);
            case ALL_GATHER_V -> allGatherV(send, recv, recvLayout, type, member, stream);
            case REDUCE_SCATTER_V ->
                    reduceScatterV(send, recv, sendLayout, type, operator, member, stream);
            case ALL_TO_ALL_V ->
                    allToAllV(send, recv, sendLayout, recvLayout, type, member, stream);
            case SPLIT -> throw new IllegalArgumentException("a split goes to no stream");
        };
    }

    private static boolean isFine(int code) {
        return code == NcclLibrary.SUCCESS || code == NcclLibrary.IN_PROGRESS;
    }

    private static int gather(
            long send, long recv, long count, DataType type, int root, Member member, long stream) {
        int t = type.ordinal();
        long blockBytes = type.bytes(count);
        boolean inPlace = member.rank == root && send == recv + root * blockBytes;
        int code = NcclLibrary.SUCCESS;
        if (!inPlace) {
            code = NcclLibrary.send(send, count, t, root, member.comm(), stream);
        }
        for (int r = 0; member.rank == root && r < member.size && isFine(code); r++) {
            if (r != root || !inPlace) {
                long block = recv + r * blockBytes;
                code = NcclLibrary.recv(block, count, t, r, member.comm(), stream);
            }
        }
        return code;
    }

    private static int scatter(
            long send, long recv, long count, DataType type, int root, Member member, long stream) {
        int t = type.ordinal();
        long blockBytes = type.bytes(count);
        boolean inPlace = member.rank == root && recv == send + root * blockBytes;
        int code = NcclLibrary.SUCCESS;
        for (int r = 0; member.rank == root && r < member.size && isFine(code); r++) {
            if (r != root || !inPlace) {
                long block = send + r * blockBytes;
                code = NcclLibrary.send(block, count, t, r, member.comm(), stream);
            }
        }
        if (!inPlace && isFine(code)) {
            code = NcclLibrary.recv(recv, count, t, root, member.comm(), stream);
        }
        return code;
    }

    private static int allToAll(
            long send, long recv, long count, DataType type, Member member, long stream) {
        int t = type.ordinal();
        long blockBytes = type.bytes(count);
        int code = NcclLibrary.SUCCESS;
        for (int r = 0; r < member.size && isFine(code); r++) {
            code = NcclLibrary.send(send + r * blockBytes, count, t, r, member.comm(), stream);
            if (isFine(code)) {
                code = NcclLibrary.recv(recv + r * blockBytes, count, t, r, member.comm(), stream);
            }
        }
        return code;
    }

    private static int allToAllV(
            long send,
            long recv,
            BlockLayout sent,
            BlockLayout received,
            DataType type,
            Member member,
            long stream) {
        int t = type.ordinal();
        int code = NcclLibrary.SUCCESS;
        for (int r = 0; r < member.size && isFine(code); r++) {
            long sendCount = sent.countElements(r);
            long recvCount = received.countElements(r);
            if (sendCount > 0) {
                long block = send + type.bytes(sent.offsetElements(r));
                code = NcclLibrary.send(block, sendCount, t, r, member.comm(), stream);
            }
            if (recvCount > 0 && isFine(code)) {
                long block = recv + type.bytes(received.offsetElements(r));
                code = NcclLibrary.recv(block, recvCount, t, r, member.comm(), stream);
            }
        }
        return code;
    }

    private static int allGatherV(
            long send, long recv, BlockLayout layout, DataType type, Member member, long stream) {
        int code = NcclLibrary.SUCCESS;
        for (int r = 0; r < member.size && isFine(code); r++) {
            long count = layout.countElements(r);
            if (count > 0) {
                long block = recv + type.bytes(layout.offsetElements(r));
                code =
                        NcclLibrary.broadcast(
                                r == member.rank ? send : block,
                                block,
                                count,
                                type.ordinal(),
                                r,
                                member.comm(),
                                stream);
            }
        }
        return code;
    }

    private static int reduceScatterV(
            long send,
            long recv,
            BlockLayout layout,
            DataType type,
            int operator,
            Member member,
            long stream) {
        int code = NcclLibrary.SUCCESS;
        for (int r = 0; r < member.size && isFine(code); r++) {
            long count = layout.countElements(r);
            if (count > 0) {
                code =
                        NcclLibrary.reduce(
                                send + type.bytes(layout.offsetElements(r)),
                                r == member.rank ? recv : 0,
                                count,
                                type.ordinal(),
                                operator,
                                r,
                                member.comm(),
                                stream);
            }
        }
        return code;
    }
}
