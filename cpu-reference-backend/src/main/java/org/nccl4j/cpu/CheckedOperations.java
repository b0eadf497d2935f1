package org.nccl4j.cpu;

import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.spi.ArgumentChecks;

/**
 * Checks the arguments of one rank's operations and hands them on in one form, with null for each
 * buffer that the rank does not use.
 */
abstract class CheckedOperations implements Operations {
    final Member member;
    private final ArgumentChecks checks;

    CheckedOperations(Member member) {
        this.member = member;
        this.checks =
                new ArgumentChecks(
                        CpuBackend.CAPABILITIES, member.device(), member.rank, member.clique.size);
    }

    /** Refuses what is called at the wrong time or place. */
    abstract void requireAllowed(String operation, CpuStream stream);

    /** Takes a checked operation. */
    abstract void take(
            OperationKind kind,
            boolean sender,
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            ReduceOp op,
            int root,
            BlockLayout sendLayout,
            BlockLayout recvLayout,
            CpuStream stream);

    /** Takes a checked send and receive that belong together. */
    abstract void takeSendRecv(
            DeviceBuffer send,
            long sendCountElements,
            int destination,
            DeviceBuffer recv,
            long recvCountElements,
            int source,
            DataType type,
            CpuStream stream);

    /** Takes a checked operation of blocks of one size. */
    private void take(
            OperationKind kind,
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            ReduceOp op,
            int root,
            CpuStream stream) {
        take(kind, false, send, recv, countElements, type, op, root, null, null, stream);
    }

    /** Takes a checked send. */
    final void takeSend(
            DeviceBuffer send, long countElements, DataType type, int peer, CpuStream stream) {
        take(
                OperationKind.SEND_RECV,
                true,
                send,
                null,
                countElements,
                type,
                null,
                peer,
                null,
                null,
                stream);
    }

    /** Takes a checked receive. */
    final void takeRecv(
            DeviceBuffer recv, long countElements, DataType type, int peer, CpuStream stream) {
        take(OperationKind.SEND_RECV, null, recv, countElements, type, null, peer, stream);
    }

    private CpuStream stream(OperationKind kind, DeviceStream stream) {
        return stream(kind.operation(), stream);
    }

    private CpuStream stream(String operation, DeviceStream stream) {
        checks.stream(operation, stream);
        if (!(stream instanceof CpuStream mine)) {
            throw new InvalidArgumentException(
                    operation
                            + ": the stream is of another backend; make one with"
                            + " device().createStream(); nothing was enqueued");
        }
        requireAllowed(operation, mine);
        return mine;
    }

    @Override
    public final void allReduce(
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            ReduceOp op,
            DeviceStream stream) {
        CpuStream mine = stream(OperationKind.ALL_REDUCE, stream);
        checks.allReduce(send, recv, countElements, type, op);
        take(OperationKind.ALL_REDUCE, send, recv, countElements, type, op, -1, mine);
    }

    @Override
    public final void reduce(
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            ReduceOp op,
            int root,
            DeviceStream stream) {
        CpuStream mine = stream(OperationKind.REDUCE, stream);
        checks.reduce(send, recv, countElements, type, op, root);
        take(
                OperationKind.REDUCE,
                send,
                root == member.rank ? recv : null,
                countElements,
                type,
                op,
                root,
                mine);
    }

    @Override
    public final void broadcast(
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            int root,
            DeviceStream stream) {
        CpuStream mine = stream(OperationKind.BROADCAST, stream);
        checks.broadcast(send, recv, countElements, type, root);
        take(
                OperationKind.BROADCAST,
                root == member.rank ? send : null,
                recv,
                countElements,
                type,
                null,
                root,
                mine);
    }

    @Override
    public final void allGather(
            DeviceBuffer send,
            DeviceBuffer recv,
            long sendCountElements,
            DataType type,
            DeviceStream stream) {
        CpuStream mine = stream(OperationKind.ALL_GATHER, stream);
        checks.allGather(send, recv, sendCountElements, type);
        take(OperationKind.ALL_GATHER, send, recv, sendCountElements, type, null, -1, mine);
    }

    @Override
    public final void allGatherV(
            DeviceBuffer send,
            DeviceBuffer recv,
            BlockLayout layout,
            DataType type,
            DeviceStream stream) {
        CpuStream mine = stream(OperationKind.ALL_GATHER_V, stream);
        checks.allGatherV(send, recv, layout, type);
        take(
                OperationKind.ALL_GATHER_V,
                false,
                layout.countElements(member.rank) == 0 ? null : send,
                layout.totalElements() == 0 ? null : recv,
                0,
                type,
                null,
                -1,
                null,
                layout,
                mine);
    }

    @Override
    public final void reduceScatter(
            DeviceBuffer send,
            DeviceBuffer recv,
            long recvCountElements,
            DataType type,
            ReduceOp op,
            DeviceStream stream) {
        CpuStream mine = stream(OperationKind.REDUCE_SCATTER, stream);
        checks.reduceScatter(send, recv, recvCountElements, type, op);
        take(OperationKind.REDUCE_SCATTER, send, recv, recvCountElements, type, op, -1, mine);
    }

    @Override
    public final void reduceScatterV(
            DeviceBuffer send,
            DeviceBuffer recv,
            BlockLayout layout,
            DataType type,
            ReduceOp op,
            DeviceStream stream) {
        CpuStream mine = stream(OperationKind.REDUCE_SCATTER_V, stream);
        checks.reduceScatterV(send, recv, layout, type, op);
        take(
                OperationKind.REDUCE_SCATTER_V,
                false,
                layout.totalElements() == 0 ? null : send,
                layout.countElements(member.rank) == 0 ? null : recv,
                0,
                type,
                op,
                -1,
                layout,
                null,
                mine);
    }

    @Override
    public final void gather(
            DeviceBuffer send,
            DeviceBuffer recv,
            long sendCountElements,
            DataType type,
            int root,
            DeviceStream stream) {
        CpuStream mine = stream(OperationKind.GATHER, stream);
        checks.gather(send, recv, sendCountElements, type, root);
        take(
                OperationKind.GATHER,
                send,
                root == member.rank ? recv : null,
                sendCountElements,
                type,
                null,
                root,
                mine);
    }

    @Override
    public final void scatter(
            DeviceBuffer send,
            DeviceBuffer recv,
            long recvCountElements,
            DataType type,
            int root,
            DeviceStream stream) {
        CpuStream mine = stream(OperationKind.SCATTER, stream);
        checks.scatter(send, recv, recvCountElements, type, root);
        take(
                OperationKind.SCATTER,
                root == member.rank ? send : null,
                recv,
                recvCountElements,
                type,
                null,
                root,
                mine);
    }

    @Override
    public final void allToAll(
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            DeviceStream stream) {
        CpuStream mine = stream(OperationKind.ALL_TO_ALL, stream);
        checks.allToAll(send, recv, countElements, type);
        take(OperationKind.ALL_TO_ALL, send, recv, countElements, type, null, -1, mine);
    }

    @Override
    public final void allToAllV(
            DeviceBuffer send,
            DeviceBuffer recv,
            AllToAllVPlan plan,
            DataType type,
            DeviceStream stream) {
        CpuStream mine = stream(OperationKind.ALL_TO_ALL_V, stream);
        checks.allToAllV(send, recv, plan, type);
        take(
                OperationKind.ALL_TO_ALL_V,
                false,
                plan.send().totalElements() == 0 ? null : send,
                plan.receive().totalElements() == 0 ? null : recv,
                0,
                type,
                null,
                -1,
                plan.send(),
                plan.receive(),
                mine);
    }

    @Override
    public final void send(
            DeviceBuffer send, long countElements, DataType type, int peer, DeviceStream stream) {
        CpuStream mine = stream("send", stream);
        checks.send(send, countElements, type, peer);
        takeSend(send, countElements, type, peer, mine);
    }

    @Override
    public final void recv(
            DeviceBuffer recv, long countElements, DataType type, int peer, DeviceStream stream) {
        CpuStream mine = stream("recv", stream);
        checks.recv(recv, countElements, type, peer);
        takeRecv(recv, countElements, type, peer, mine);
    }

    @Override
    public final void sendRecv(
            DeviceBuffer send,
            long sendCountElements,
            int destination,
            DeviceBuffer recv,
            long recvCountElements,
            int source,
            DataType type,
            DeviceStream stream) {
        CpuStream mine = stream(OperationKind.SEND_RECV, stream);
        checks.sendRecv(
                send, sendCountElements, destination, recv, recvCountElements, source, type);
        takeSendRecv(
                send, sendCountElements, destination, recv, recvCountElements, source, type, mine);
    }

    @Override
    public final void barrier(DeviceStream stream) {
        CpuStream mine = stream(OperationKind.BARRIER, stream);
        take(OperationKind.BARRIER, null, null, 0, null, null, -1, mine);
    }
}
