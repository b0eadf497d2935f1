package org.nccl4j.cpu;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.cpu.Engine.Progress;
import org.nccl4j.cpu.schedule.Action;
import org.nccl4j.cpu.schedule.Place;

/**
 * One rank of a schedule being run: goes through its actions, once per pass, as far as the
 * transport lets it, and never waits. Whether the peers are other threads, other processes or other
 * hosts makes no difference to it.
 *
 * <p>Before an action writes, the transport must have released whatever was sent from there; {@link
 * Program} knows which messages that are, and {@code Verification} has proven that nobody waits in
 * a circle. Scratch memory is used again in each pass, so a pass then starts when all that was sent
 * has been released.
 *
 * <p>Where a reduction scales, a pass begins with scaling the rank's own elements into memory of
 * the rank, which from then on is the input.
 *
 * <p>Thread safety: one thread at a time.
 */
final class ScheduleRank {
    private static final long ALIGNMENT_BYTES = 64;

    private final Program program;
    private final int rank;
    private final Transport transport;
    private final ChunkMap map;
    private final Action[] actions;
    private final int[][] sentPerPass;
    private final Kernels kernels = new Kernels();

    /** Scales the own elements; {@link #kernels} then does not. */
    private final Kernels scaler = new Kernels();

    private ScheduleRun run;
    private MemorySegment send;
    private MemorySegment recv;
    private int[][] waits;
    private MemorySegment scratch;
    private MemorySegment scaled;
    private boolean scales;
    private boolean reuses;
    private long slotBytes;
    private long passes;

    private long pass;
    private int scaledChunks;
    private int at;

    /** The chunk of the current action, counted from its first. */
    private int part;

    ScheduleRank(Program program, int rank, Transport transport) {
        this.program = program;
        this.rank = rank;
        this.transport = transport;
        this.map = new ChunkMap(program);
        this.actions = program.actions(rank);
        this.sentPerPass = program.sentPerPass(rank);
    }

    /** Sets up for one operation. */
    void begin(JoinedOperation operation, int participant, ScheduleRun newRun) {
        run = newRun;
        map.begin(operation, participant);
        send = operation.send(participant);
        recv = operation.recv(participant);
        passes = map.passes();
        slotBytes = map.slotBytes();
        pass = 0;
        scaledChunks = 0;
        at = 0;
        part = 0;
        scales = false;
        if (program.collective.reduces()) {
            ReduceOp reduction = operation.reduction(participant);
            scaler.begin(operation.type(), reduction, program.ranks);
            scales = scaler.scales();
            kernels.begin(operation.type(), scales ? ReduceOp.SUM : reduction, program.ranks);
        }
        if (program.scratchSlots > 0) {
            scratch = atLeast(scratch, program.scratchSlots * slotBytes);
        }
        if (scales) {
            scaled = atLeast(scaled, program.chunks * slotBytes);
        }
        waits = program.waits(rank, isInPlace());
        reuses = scales || program.scratchSlots > 0;
    }

    /** Whether the own chunk is read and written at one place; scaled elements are elsewhere. */
    private boolean isInPlace() {
        if (send == null || recv == null || scales || !program.collective.mayBeInPlace()) {
            return false;
        }
        int own =
                switch (program.collective) {
                    case REDUCE_SCATTER, ALL_GATHER -> rank;
                    default -> 0;
                };
        return Algorithm.isSamePlace(send, map.inputOffset(own), recv, map.outputOffset(own));
    }

    /** Memory that is freed by the garbage collector with the run that owns this rank. */
    private static MemorySegment atLeast(MemorySegment present, long sizeBytes) {
        return present != null && present.byteSize() >= sizeBytes
                ? present
                : Arena.ofAuto().allocate(sizeBytes, ALIGNMENT_BYTES);
    }

    void end() {
        run = null;
        map.end();
        send = null;
        recv = null;
    }

    /** Goes on until a piece has been moved, or it cannot. */
    Progress progress() {
        boolean advanced = false;
        while (pass < passes) {
            if (at == actions.length) {
                at = 0;
                scaledChunks = 0;
                pass++;
                advanced = true;
                continue;
            }
            if (at == 0 && part == 0 && reuses && pass > 0 && !isReleased(pass)) {
                return advanced ? Progress.ADVANCED : Progress.BLOCKED;
            }
            if (scales && scaledChunks < program.chunks) {
                scaleNext();
                return Progress.ADVANCED;
            }
            Action action = actions[at];
            boolean moved;
            if (action.kind() == Action.Kind.SEND) {
                if (!post(action)) {
                    return advanced ? Progress.ADVANCED : Progress.BLOCKED;
                }
                moved = false;
                at++;
            } else {
                if (!mayPerform(action)) {
                    return advanced ? Progress.ADVANCED : Progress.BLOCKED;
                }
                moved = perform(action);
                part += isWhole() ? action.chunks() : 1;
                if (part == action.chunks()) {
                    part = 0;
                    at++;
                }
            }
            advanced = true;
            if (moved) {
                return Progress.ADVANCED;
            }
        }
        return isReleased(passes) ? Progress.DONE : advanced ? Progress.ADVANCED : Progress.BLOCKED;
    }

    /** Whether chunks that follow each other go as one range. */
    private boolean isWhole() {
        return passes == 1;
    }

    /** Whether all that was sent in so many passes may be overwritten. */
    private boolean isReleased(long passesSent) {
        for (int peer = 0; peer < sentPerPass.length; peer++) {
            if (sentPerPass[peer] != null
                    && transport.outgoing(rank, peer).released() < passesSent * perPass(peer)) {
                return false;
            }
        }
        return true;
    }

    private long perPass(int peer) {
        return sentPerPass[peer][isWhole() ? 0 : 1];
    }

    private void scaleNext() {
        int chunk = scaledChunks++;
        long bytes = map.pieceBytes(chunk, pass);
        if (bytes > 0) {
            scaler.scale(
                    scaled,
                    scaledOffset(chunk),
                    send,
                    map.inputOffset(chunk) + map.pieceOffset(pass),
                    (int) (bytes / map.elementBytes()));
        }
    }

    private long scaledOffset(int index) {
        return map.isPacked() ? map.chunkOffset(index) : index * slotBytes;
    }

    private boolean post(Action action) {
        Transport.Outgoing out = transport.outgoing(rank, action.peer());
        int ranges = isWhole() ? 1 : action.chunks();
        if (!out.hasRoom(ranges)) {
            return false;
        }
        Place source = action.source();
        for (int i = 0; i < ranges; i++) {
            long bytes = bytes(action, i);
            // Counted first: once it is posted the receiver may finish the operation.
            run.sent(
                    rank,
                    action.peer(),
                    action.step(),
                    action.chunk() + i,
                    map.pieceOffset(pass),
                    bytes);
            out.post(segment(source), offset(source, i), bytes);
        }
        return true;
    }

    /** The size of what an action moves from its i-th chunk on: all the rest, or that chunk. */
    private long bytes(Action action, int i) {
        if (!isWhole()) {
            return map.pieceBytes(sizeIndex(action) + i, pass);
        }
        long bytes = 0;
        for (int c = i; c < action.chunks(); c++) {
            bytes += map.pieceBytes(sizeIndex(action) + c, pass);
        }
        return bytes;
    }

    /** In all-to-all, whose chunks have two numbers, all are of one size. */
    private int sizeIndex(Action action) {
        return action.chunk() % program.chunks;
    }

    private boolean mayPerform(Action action) {
        if (action.kind() == Action.Kind.RECEIVE || action.kind() == Action.Kind.REDUCE) {
            if (!transport.incoming(rank, action.peer()).hasMessage()) {
                return false;
            }
        } else if (isNoMove(action)) {
            return true;
        }
        if (part > 0) {
            return true;
        }
        int[] readers = waits[at];
        for (int i = 0; i < readers.length; i += 3) {
            int peer = readers[i];
            long needed = pass * perPass(peer) + readers[i + (isWhole() ? 1 : 2)];
            if (transport.outgoing(rank, peer).released() < needed) {
                return false;
            }
        }
        return true;
    }

    /** Whether it copies nothing, or something to where it is. */
    private boolean isNoMove(Action action) {
        return action.kind() == Action.Kind.COPY
                && (bytes(action, part) == 0 || isSamePlace(action));
    }

    private boolean isSamePlace(Action action) {
        return Algorithm.isSamePlace(
                segment(action.source()),
                offset(action.source(), 0),
                segment(action.target()),
                offset(action.target(), 0));
    }

    /**
     * Does what an action does with its current part.
     *
     * @return whether data moved
     */
    private boolean perform(Action action) {
        long bytes = bytes(action, part);
        int count = (int) (bytes / map.elementBytes());
        MemorySegment target = segment(action.target());
        long to = offset(action.target(), part);
        switch (action.kind()) {
            case RECEIVE -> {
                Transport.Incoming in = incoming(action, bytes);
                if (bytes > 0) {
                    MemorySegment.copy(in.segment(), in.offsetBytes(), target, to, bytes);
                }
                in.acknowledge();
            }
            case REDUCE -> {
                Transport.Incoming in = incoming(action, bytes);
                kernels.combine(
                        target,
                        to,
                        segment(action.source()),
                        offset(action.source(), part),
                        in.segment(),
                        in.offsetBytes(),
                        count,
                        action.completes());
                in.acknowledge();
            }
            case COPY -> {
                if (isNoMove(action)) {
                    return false;
                }
                MemorySegment.copy(
                        segment(action.source()), offset(action.source(), part), target, to, bytes);
            }
            case COMBINE ->
                    kernels.combine(
                            target,
                            to,
                            segment(action.source()),
                            offset(action.source(), part),
                            target,
                            to,
                            count,
                            action.completes());
            case SEND -> throw new IllegalStateException("a send is posted: " + action);
        }
        return bytes > 0;
    }

    private Transport.Incoming incoming(Action action, long bytes) {
        Transport.Incoming in = transport.incoming(rank, action.peer());
        if (in.sizeBytes() != bytes) {
            throw new IllegalStateException(
                    "rank "
                            + rank
                            + ", "
                            + action
                            + ", pass "
                            + pass
                            + ": expected "
                            + bytes
                            + " bytes, got "
                            + in.sizeBytes()
                            + ": this is a bug of the engine");
        }
        return in;
    }

    private MemorySegment segment(Place place) {
        return switch (place.space()) {
            case INPUT -> scales ? scaled : send;
            case OUTPUT -> recv;
            case SCRATCH -> scratch;
        };
    }

    /** Where the current pass's piece of the i-th chunk from a place on starts. */
    private long offset(Place place, int i) {
        int index = place.index() + i;
        return switch (place.space()) {
            case INPUT ->
                    scales ? scaledOffset(index) : map.inputOffset(index) + map.pieceOffset(pass);
            case OUTPUT -> map.outputOffset(index) + map.pieceOffset(pass);
            case SCRATCH -> index * slotBytes;
        };
    }
}
