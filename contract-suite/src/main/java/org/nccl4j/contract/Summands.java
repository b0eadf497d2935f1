package org.nccl4j.contract;

import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.ReduceOp;

/**
 * One rank's part in an all-reduce of a few int32: the plainest operation that needs every rank.
 */
final class Summands {
    private final Rank rank;
    private final int count;
    private final DeviceBuffer send;
    private final DeviceBuffer recv;

    Summands(Rank rank, int... values) {
        this.rank = rank;
        this.count = values.length;
        this.send = rank.newBuffer(Elements.int32(values));
        this.recv = rank.newBuffer(Elements.int32(new int[values.length]));
    }

    DeviceBuffer send() {
        return send;
    }

    DeviceBuffer recv() {
        return recv;
    }

    void put(int... values) {
        rank.write(Elements.int32(values), send);
    }

    void enqueue() {
        enqueue(rank.communicator(), rank.stream());
    }

    void enqueue(Operations operations, DeviceStream stream) {
        operations.allReduce(send, recv, count, DataType.INT32, ReduceOp.SUM, stream);
    }

    int[] result() {
        return Elements.toInt32(rank.read(recv));
    }

    /** Enqueues on the rank's stream, waits, and gives the sum. */
    int[] sum() {
        enqueue();
        rank.synchronize();
        return result();
    }
}
