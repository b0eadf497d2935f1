package org.nccl4j.nccl;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.nccl4j.collectives.DeviceBuffer;

/**
 * Where a rank exchanges counts: a stream of its own, and pinned host memory that NCCL reads and
 * writes directly. A few exchanges may be under way at once.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class CountExchange implements AutoCloseable {
    private static final int SLOTS = 4;

    private final Clique clique;
    private final int size;
    private final NcclStream stream;
    private final DeviceBuffer memory;
    private final Slot[] slots = new Slot[SLOTS];

    /** Memory for one exchange. */
    final class Slot {
        private final MemorySegment sent;
        private final MemorySegment received;
        private NcclEvent event;

        /** Whose it is, null if it is free. */
        private Result user;

        private Slot(MemorySegment sent, MemorySegment received) {
            this.sent = sent;
            this.received = received;
        }

        long sendAddress() {
            return sent.address();
        }

        long recvAddress() {
            return received.address();
        }

        /** The exchange has been enqueued. */
        void enqueued() {
            stream.record(event);
        }
    }

    /** What a rank is told, when the others have told it. */
    final class Result {
        private final Slot slot;
        private long[] counts;

        /** Whether it has been enqueued, so that the slot's event means something. */
        private boolean enqueued;

        private Result(Slot slot) {
            this.slot = slot;
        }

        Slot slot() {
            return slot;
        }

        /** It has not been enqueued and will not be. */
        void release() {
            synchronized (CountExchange.this) {
                slot.user = null;
            }
        }

        void enqueued() {
            synchronized (CountExchange.this) {
                slot.enqueued();
                enqueued = true;
            }
        }

        /** The counts, or null if they are not there yet. */
        long[] counts() {
            synchronized (CountExchange.this) {
                // An event is also passed when the work before it has been given up, but a failure
                // is told before that.
                if (counts == null
                        && enqueued
                        && clique.cause() == null
                        && slot.event.poll()
                        && clique.cause() == null) {
                    counts = slot.received.toArray(ValueLayout.JAVA_LONG);
                    slot.user = null;
                }
                return counts;
            }
        }
    }

    private CountExchange(Member member, NcclStream stream, DeviceBuffer memory) {
        this.clique = member.clique;
        this.size = member.size;
        this.stream = stream;
        this.memory = memory;
        MemorySegment all = memory.hostSegment();
        long halfBytes = (long) size * Long.BYTES;
        for (int i = 0; i < SLOTS; i++) {
            slots[i] =
                    new Slot(
                            all.asSlice(2L * i * halfBytes, halfBytes),
                            all.asSlice((2L * i + 1) * halfBytes, halfBytes));
        }
    }

    /** For a rank, with all that it needs or an exception. */
    static CountExchange open(Member member) {
        NcclStream stream = member.device.createStream();
        CountExchange exchange = null;
        boolean complete = false;
        try {
            DeviceBuffer memory = member.device.allocateHost(2L * SLOTS * member.size * Long.BYTES);
            exchange = new CountExchange(member, stream, memory);
            for (Slot slot : exchange.slots) {
                slot.event = member.device.createEvent();
            }
            complete = true;
            return exchange;
        } finally {
            if (exchange != null && !complete) {
                exchange.close();
            } else if (!complete) {
                stream.close();
            }
        }
    }

    NcclStream stream() {
        return stream;
    }

    /** Takes a slot for these counts; null while all are in use. */
    synchronized Result tryTake(long[] counts) {
        for (Slot slot : slots) {
            if (slot.user != null) {
                slot.user.counts();
            }
            if (slot.user == null) {
                slot.user = new Result(slot);
                MemorySegment.copy(counts, 0, slot.sent, ValueLayout.JAVA_LONG, 0, size);
                return slot.user;
            }
        }
        return null;
    }

    @Override
    public synchronized void close() {
        for (Slot slot : slots) {
            if (slot.event != null) {
                slot.event.close();
            }
        }
        memory.close();
        stream.close();
    }
}
