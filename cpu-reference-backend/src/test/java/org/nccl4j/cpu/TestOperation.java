package org.nccl4j.cpu;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * An operation that all have joined, with buffers of its own, guard bytes around each. Ranks are
 * participants.
 */
final class TestOperation implements JoinedOperation {
    private static final int GUARD_BYTES = 64;
    private static final byte GUARD = 0x5a;

    private final OperationKind kind;
    private final int participants;
    private final DataType type;
    private final long count;
    private final int root;
    private final ReduceOp[] reductions;
    private final BlockLayout[] sendLayouts;
    private final BlockLayout[] recvLayouts;
    private final MemorySegment[] sends;
    private final MemorySegment[] recvs;
    private final List<MemorySegment> guarded = new ArrayList<>();
    private final long[][] sentBytes;
    private final int[][] messages;
    private StepTrace trace;

    TestOperation(OperationKind kind, int participants, DataType type, long count, int root) {
        this.kind = kind;
        this.participants = participants;
        this.type = type;
        this.count = count;
        this.root = root;
        this.reductions = new ReduceOp[participants];
        this.sendLayouts = new BlockLayout[participants];
        this.recvLayouts = new BlockLayout[participants];
        this.sends = new MemorySegment[participants];
        this.recvs = new MemorySegment[participants];
        this.sentBytes = new long[participants][participants];
        this.messages = new int[participants][participants];
    }

    /** The same reduction for everyone. */
    TestOperation with(ReduceOp reduction) {
        Arrays.fill(reductions, reduction);
        return this;
    }

    TestOperation with(int participant, ReduceOp reduction) {
        reductions[participant] = reduction;
        return this;
    }

    TestOperation with(StepTrace steps) {
        trace = steps;
        return this;
    }

    TestOperation layouts(int participant, BlockLayout send, BlockLayout recv) {
        sendLayouts[participant] = send;
        recvLayouts[participant] = recv;
        return this;
    }

    /** Gives a participant buffers of these lengths; -1 for none. */
    TestOperation buffers(int participant, long sendElements, long recvElements) {
        sends[participant] = sendElements < 0 ? null : guardedBuffer(sendElements);
        recvs[participant] = recvElements < 0 ? null : guardedBuffer(recvElements);
        return this;
    }

    /** Makes a participant's send buffer a part of its receive buffer. */
    void sendWithinRecv(int participant, long offsetElements, long elements) {
        sends[participant] =
                recvs[participant].asSlice(type.bytes(offsetElements), type.bytes(elements));
    }

    /** Makes a participant's receive buffer a part of its send buffer. */
    void recvWithinSend(int participant, long offsetElements, long elements) {
        recvs[participant] =
                sends[participant].asSlice(type.bytes(offsetElements), type.bytes(elements));
    }

    private MemorySegment guardedBuffer(long elements) {
        long bytes = type.bytes(elements);
        MemorySegment whole = Arena.ofAuto().allocate(bytes + 2 * GUARD_BYTES, 8).fill(GUARD);
        guarded.add(whole);
        return whole.asSlice(GUARD_BYTES, bytes);
    }

    /** Fails if a byte outside of a buffer has changed. */
    void checkGuards() {
        for (MemorySegment whole : guarded) {
            for (int i = 0; i < GUARD_BYTES; i++) {
                if (whole.get(ValueLayout.JAVA_BYTE, i) != GUARD
                        || whole.get(ValueLayout.JAVA_BYTE, whole.byteSize() - 1 - i) != GUARD) {
                    throw new AssertionError("a byte outside of a buffer was overwritten");
                }
            }
        }
    }

    long sentBytes(int participant, int peer) {
        return sentBytes[participant][peer];
    }

    long totalSentBytes(int participant) {
        long total = 0;
        for (long bytes : sentBytes[participant]) {
            total += bytes;
        }
        return total;
    }

    long totalReceivedBytes(int participant) {
        long total = 0;
        for (long[] row : sentBytes) {
            total += row[participant];
        }
        return total;
    }

    int messagesSent(int participant) {
        int total = 0;
        for (int number : messages[participant]) {
            total += number;
        }
        return total;
    }

    @Override
    public OperationKind kind() {
        return kind;
    }

    @Override
    public long sequence() {
        return 7;
    }

    @Override
    public int participants() {
        return participants;
    }

    @Override
    public int rank(int participant) {
        return participant;
    }

    @Override
    public DataType type() {
        return type;
    }

    @Override
    public ReduceOp reduction(int participant) {
        return reductions[participant];
    }

    @Override
    public int root() {
        return root;
    }

    @Override
    public long countElements() {
        return count;
    }

    @Override
    public MemorySegment send(int participant) {
        return sends[participant];
    }

    @Override
    public MemorySegment recv(int participant) {
        return recvs[participant];
    }

    @Override
    public BlockLayout sendLayout(int participant) {
        return sendLayouts[participant];
    }

    @Override
    public BlockLayout recvLayout(int participant) {
        return recvLayouts[participant];
    }

    /** A share of a direct engine counts for others too. */
    @Override
    public synchronized void countSent(int participant, int peer, long bytes) {
        if (bytes <= 0) {
            throw new AssertionError("counted " + bytes + " bytes");
        }
        sentBytes[participant][peer] += bytes;
        messages[participant][peer]++;
    }

    @Override
    public StepTrace trace(int participant) {
        return trace;
    }

    @Override
    public String toString() {
        return kind
                + " n="
                + participants
                + " count="
                + count
                + " "
                + type
                + " root="
                + root
                + " "
                + Arrays.toString(reductions);
    }
}
