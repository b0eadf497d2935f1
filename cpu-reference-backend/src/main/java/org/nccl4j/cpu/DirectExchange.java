package org.nccl4j.cpu;

import org.nccl4j.cpu.Engine.Progress;

/**
 * Blocks that go straight from owner to receiver: all-to-all, gather, scatter, point-to-point. In
 * step k = 1 ... n - 1 rank r sends to r + k and receives from r - k, so that no two ranks send to
 * one at a time; gather and scatter are the steps in which the root takes part. A rank's own block
 * is copied first.
 *
 * <p>A message is one posted range, which the receiver copies piece by piece; empty blocks are not
 * sent. Each pair has its own edge with at most one message, so a post never waits.
 */
final class DirectExchange extends Algorithm {
    @Override
    long steps(int participants) {
        // Gather and scatter look at every distance too, if only to find nothing to do there.
        return (long) participants * participants;
    }

    @Override
    void prepare(ReferenceRun run) {
        int n = run.participants();
        int root = run.operation().root();
        for (int distance = 1; distance < n; distance++) {
            switch (run.operation().kind()) {
                case GATHER -> run.connect(run.before(root, distance), distance);
                case SCATTER -> run.connect(root, distance);
                case SEND_RECV -> run.connect(0, distance);
                default -> run.connect(distance);
            }
        }
    }

    @Override
    Progress progress(ReferenceRun run, Cursor cursor) {
        JoinedOperation operation = run.operation();
        int n = run.participants();
        int me = cursor.participant;
        if (cursor.step == 0) {
            if (sends(operation, me, me)
                    && !copyPiece(
                            run,
                            cursor,
                            cursor.send,
                            sendOffsetBytes(run, me, me),
                            cursor.recv,
                            recvOffsetBytes(run, me, me),
                            sendBytes(run, me, me))) {
                return Progress.ADVANCED;
            }
            cursor.step = 1;
            return Progress.ADVANCED;
        }
        if (cursor.step < n) {
            return exchange(run, cursor);
        }
        // Steps n, n + 1, ...: wait until the message of step 1, 2, ... has been read.
        while (cursor.step < 2 * n - 1) {
            int distance = cursor.step - n + 1;
            if (sends(operation, me, run.after(me, distance))
                    && !run.outgoing(me, distance).isDrained()) {
                return Progress.BLOCKED;
            }
            cursor.step++;
        }
        return Progress.DONE;
    }

    private static Progress exchange(ReferenceRun run, Cursor cursor) {
        JoinedOperation operation = run.operation();
        int me = cursor.participant;
        int distance = cursor.step;
        boolean moved = false;
        int to = run.after(me, distance);
        if (!cursor.posted) {
            long bytes = sends(operation, me, to) ? sendBytes(run, me, to) : 0;
            if (bytes > 0) {
                run.outgoing(me, distance).post(cursor.send, sendOffsetBytes(run, me, to), bytes);
                run.sent(me, to, distance - 1, blockNumber(operation, me, to), 0, bytes);
            }
            cursor.posted = true;
            moved = true;
        }
        int from = run.before(me, distance);
        long bytes = sends(operation, from, me) ? recvBytes(run, me, from) : 0;
        if (bytes > 0) {
            Edge in = run.incoming(me, distance);
            if (!in.hasMessage()) {
                return moved ? Progress.ADVANCED : Progress.BLOCKED;
            }
            if (!copyPiece(
                    run,
                    cursor,
                    in.segment(),
                    in.offsetBytes(),
                    cursor.recv,
                    recvOffsetBytes(run, me, from),
                    bytes)) {
                return Progress.ADVANCED;
            }
            in.acknowledge();
        }
        cursor.posted = false;
        cursor.step++;
        return Progress.ADVANCED;
    }

    /** Whether the operation has a block from one rank to another, itself included. */
    private static boolean sends(JoinedOperation operation, int from, int to) {
        return switch (operation.kind()) {
            case GATHER -> to == operation.root();
            case SCATTER -> from == operation.root();
            case SEND_RECV -> from == 0 && to == 1;
            default -> true;
        };
    }

    private static long sendBytes(ReferenceRun run, int me, int to) {
        return run.blockBytes(run.operation().sendLayout(me), to);
    }

    private static long recvBytes(ReferenceRun run, int me, int from) {
        return run.blockBytes(run.operation().recvLayout(me), from);
    }

    private static long sendOffsetBytes(ReferenceRun run, int me, int to) {
        boolean oneBlock =
                switch (run.operation().kind()) {
                    case GATHER, SEND_RECV -> true;
                    default -> false;
                };
        return oneBlock ? 0 : run.blockOffsetBytes(run.operation().sendLayout(me), to);
    }

    private static long recvOffsetBytes(ReferenceRun run, int me, int from) {
        boolean oneBlock =
                switch (run.operation().kind()) {
                    case SCATTER, SEND_RECV -> true;
                    default -> false;
                };
        return oneBlock ? 0 : run.blockOffsetBytes(run.operation().recvLayout(me), from);
    }

    /** The number of a block in the buffer that holds several of them. */
    private static int blockNumber(JoinedOperation operation, int from, int to) {
        return switch (operation.kind()) {
            case GATHER -> from;
            case SEND_RECV -> 0;
            default -> to;
        };
    }
}
