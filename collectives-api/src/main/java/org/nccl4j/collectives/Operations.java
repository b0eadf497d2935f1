package org.nccl4j.collectives;

/**
 * The operations of one rank, enqueued on a stream by a {@link Communicator} or recorded in a
 * {@link Group}. All enqueue only: the call returns at once, and the work is on the stream when it
 * returns. Only where {@link Capabilities#firstUseMayWait} a first use may wait for the others.
 *
 * <p>Notation: n ranks, this rank is r; counts are elements of {@code type}. A buffer starts at a
 * multiple of the element's size; it may be longer than needed, and the rest is not touched.
 * Between enqueue and completion a receive buffer's contents are undefined and a send buffer must
 * not change. Values are those of {@code docs/semantics.md}.
 *
 * <p>A communicator numbers its collectives in the order of the calls; every rank must make the
 * same calls in the same order. {@code send} and {@code recv} are numbered per ordered pair of
 * ranks. An operation of count 0 takes its number, waits for nobody, writes nothing and accepts
 * null buffers; all-gather-v and reduce-scatter-v count as such if all their blocks are empty.
 *
 * <p>When an operation is complete on a stream, its results are there and its send buffer is free.
 * All-reduce, reduce-scatter, all-gather, all-to-all and barrier complete on no rank before every
 * rank's stream has reached them; the others not before the data that this rank needs is there, so
 * that a root or a sender may be done before its peers.
 *
 * <p>In place: exactly the address equalities that each method names. Any other overlap of what
 * this rank reads and writes is refused. What one rank writes, no other rank may read or write in
 * the same operation; a backend that sees all ranks' memory fails the communicator with an {@link
 * InvalidArgumentException}.
 *
 * <p>All methods throw {@link InvalidArgumentException} (count negative, root or peer out of range,
 * buffer too short, misaligned, closed, read-only, overlapping or on another device, stream of
 * another device or closed, communicator or stream in use by an open group), {@link
 * UnsupportedException} (type or reduction not in the backend's {@link Capabilities}), or the
 * communicator's failure; in each case nothing has been enqueued and nothing has changed.
 *
 * <p>Thread safety: none of its own; that of the {@link Communicator} or {@link Group}.
 */
public interface Operations {
    /**
     * Reduces element-wise over all ranks; every rank gets the bitwise same result. In place if
     * {@code send} and {@code recv} start at the same address.
     *
     * @param send {@code countElements} elements
     * @param recv {@code countElements} elements
     * @param countElements the same on every rank
     * @param type element type
     * @param op reduction
     * @param stream a stream of this rank's device
     */
    void allReduce(
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            ReduceOp op,
            DeviceStream stream);

    /**
     * Reduces element-wise over all ranks to the root. Other ranks' {@code recv} is neither read
     * nor written and may be null. In place at the root if both start at the same address.
     *
     * @param send {@code countElements} elements
     * @param recv {@code countElements} elements at the root
     * @param countElements the same on every rank
     * @param type element type
     * @param op reduction
     * @param root the rank that gets the result
     * @param stream a stream of this rank's device
     */
    void reduce(
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            ReduceOp op,
            int root,
            DeviceStream stream);

    /**
     * Copies the root's elements to every rank. {@code send} is used at the root only and may be
     * null elsewhere. In place if both start at the same address.
     *
     * @param send {@code countElements} elements at the root
     * @param recv {@code countElements} elements
     * @param countElements the same on every rank
     * @param type element type
     * @param root the rank whose elements are copied
     * @param stream a stream of this rank's device
     */
    void broadcast(
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            int root,
            DeviceStream stream);

    /**
     * Concatenates every rank's elements in rank order on every rank. In place if {@code send}
     * starts at {@code recv + r * sendCountElements}.
     *
     * @param send {@code sendCountElements} elements
     * @param recv {@code n * sendCountElements} elements
     * @param sendCountElements elements of one rank, the same on every rank
     * @param type element type
     * @param stream a stream of this rank's device
     */
    void allGather(
            DeviceBuffer send,
            DeviceBuffer recv,
            long sendCountElements,
            DataType type,
            DeviceStream stream);

    /**
     * All-gather with a block size per rank. In place if {@code send} starts where this rank's
     * block does in {@code recv}.
     *
     * @param send {@code layout.countElements(r)} elements
     * @param recv {@code layout.extentElements()} elements; gaps are not touched
     * @param layout the blocks of {@code recv}; counts must be the same on every rank, offsets may
     *     differ
     * @param type element type
     * @param stream a stream of this rank's device
     */
    void allGatherV(
            DeviceBuffer send,
            DeviceBuffer recv,
            BlockLayout layout,
            DataType type,
            DeviceStream stream);

    /**
     * Reduces element-wise over all ranks; rank r gets block r. In place if {@code recv} starts at
     * {@code send + r * recvCountElements}. To split a buffer of a given length use {@link
     * Communicator#evenShare}, which refuses a length that n does not divide, or {@link
     * #reduceScatterV}.
     *
     * @param send {@code n * recvCountElements} elements
     * @param recv {@code recvCountElements} elements
     * @param recvCountElements elements of one block, the same on every rank
     * @param type element type
     * @param op reduction
     * @param stream a stream of this rank's device
     */
    void reduceScatter(
            DeviceBuffer send,
            DeviceBuffer recv,
            long recvCountElements,
            DataType type,
            ReduceOp op,
            DeviceStream stream);

    /**
     * Reduce-scatter with a block size per rank. In place if {@code recv} starts where this rank's
     * block does in {@code send}.
     *
     * @param send {@code layout.extentElements()} elements
     * @param recv {@code layout.countElements(r)} elements
     * @param layout the blocks of {@code send}; counts must be the same on every rank, offsets may
     *     differ
     * @param type element type
     * @param op reduction
     * @param stream a stream of this rank's device
     */
    void reduceScatterV(
            DeviceBuffer send,
            DeviceBuffer recv,
            BlockLayout layout,
            DataType type,
            ReduceOp op,
            DeviceStream stream);

    /**
     * Concatenates every rank's elements in rank order at the root. Other ranks' {@code recv} is
     * not touched and may be null. In place at the root if {@code send} starts at {@code recv +
     * root * sendCountElements}.
     *
     * @param send {@code sendCountElements} elements
     * @param recv {@code n * sendCountElements} elements at the root
     * @param sendCountElements elements of one rank, the same on every rank
     * @param type element type
     * @param root the rank that gets all
     * @param stream a stream of this rank's device
     */
    void gather(
            DeviceBuffer send,
            DeviceBuffer recv,
            long sendCountElements,
            DataType type,
            int root,
            DeviceStream stream);

    /**
     * Gives block i of the root's elements to rank i. {@code send} is used at the root only and may
     * be null elsewhere. In place at the root if {@code recv} starts at {@code send + root *
     * recvCountElements}.
     *
     * @param send {@code n * recvCountElements} elements at the root
     * @param recv {@code recvCountElements} elements
     * @param recvCountElements elements of one block, the same on every rank
     * @param type element type
     * @param root the rank whose elements are dealt
     * @param stream a stream of this rank's device
     */
    void scatter(
            DeviceBuffer send,
            DeviceBuffer recv,
            long recvCountElements,
            DataType type,
            int root,
            DeviceStream stream);

    /**
     * Block i of this rank's {@code send} becomes block r of rank i's {@code recv}. No in-place
     * form.
     *
     * @param send {@code n * countElements} elements
     * @param recv {@code n * countElements} elements
     * @param countElements elements of one block, the same on every rank
     * @param type element type
     * @param stream a stream of this rank's device
     */
    void allToAll(
            DeviceBuffer send,
            DeviceBuffer recv,
            long countElements,
            DataType type,
            DeviceStream stream);

    /**
     * All-to-all with a block size per pair. No in-place form; blocks of both buffers may lie
     * between each other. Gaps are not touched, empty blocks are skipped. It is one collective, and
     * a backend may make it wait for every rank, whatever the sizes.
     *
     * @param send {@code plan.send().extentElements()} elements
     * @param recv {@code plan.receive().extentElements()} elements
     * @param plan this rank's blocks
     * @param type element type
     * @param stream a stream of this rank's device
     */
    void allToAllV(
            DeviceBuffer send,
            DeviceBuffer recv,
            AllToAllVPlan plan,
            DataType type,
            DeviceStream stream);

    /**
     * Sends to one rank. Complete when the buffer may be used again; that the peer's matching
     * {@link #recv} has the data follows only where the backend holds nothing in between. Two ranks
     * that both send first and receive later may wait for each other until the deadline: use a
     * group or {@link #sendRecv}.
     *
     * @param send {@code countElements} elements
     * @param countElements the same as the peer's
     * @param type element type
     * @param peer the destination; r itself only within a group that also receives from r
     * @param stream a stream of this rank's device
     */
    void send(DeviceBuffer send, long countElements, DataType type, int peer, DeviceStream stream);

    /**
     * Receives from one rank, in the order in which it sends.
     *
     * @param recv {@code countElements} elements
     * @param countElements the same as the peer's
     * @param type element type
     * @param peer the source; r itself only within a group that also sends to r
     * @param stream a stream of this rank's device
     */
    void recv(DeviceBuffer recv, long countElements, DataType type, int peer, DeviceStream stream);

    /**
     * One send and one receive at the same time, as a group of the two would do. Both may be with
     * the same rank, or with r itself. Buffers must not overlap.
     *
     * @param send {@code sendCountElements} elements
     * @param sendCountElements elements to {@code destination}
     * @param destination the rank to send to
     * @param recv {@code recvCountElements} elements
     * @param recvCountElements elements from {@code source}
     * @param source the rank to receive from
     * @param type element type
     * @param stream a stream of this rank's device
     */
    void sendRecv(
            DeviceBuffer send,
            long sendCountElements,
            int destination,
            DeviceBuffer recv,
            long recvCountElements,
            int source,
            DataType type,
            DeviceStream stream);

    /**
     * Completes on no rank's stream before it heads every rank's stream.
     *
     * @param stream a stream of this rank's device
     */
    void barrier(DeviceStream stream);
}
