package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import org.nccl4j.collectives.DataType;

/**
 * Runs an operation in lockstep, one call per participant in rank order, and records every message
 * with the float32 elements in it.
 */
final class RecordingTrace implements StepTrace {
    /**
     * A message.
     *
     * @param values what was sent, read before the receiver could see it; empty if not float32
     */
    record Message(
            int step, int rank, int peer, int chunk, long offset, long bytes, float[] values) {}

    private final List<Message> messages = new ArrayList<>();
    private ReferenceRun run;

    /** Runs and records. */
    static RecordingTrace of(Engine engine, TestOperation operation) {
        RecordingTrace trace = new RecordingTrace();
        operation.with(trace);
        trace.run = (ReferenceRun) engine.start(operation);
        boolean[] done = new boolean[operation.participants()];
        int left = done.length;
        while (left > 0) {
            boolean moved = false;
            for (int p = 0; p < done.length; p++) {
                if (!done[p]) {
                    Engine.Progress progress = trace.run.progress(p);
                    moved |= progress != Engine.Progress.BLOCKED;
                    done[p] = progress == Engine.Progress.DONE;
                    left -= done[p] ? 1 : 0;
                }
            }
            if (!moved) {
                throw new AssertionError(operation + ": all blocked");
            }
        }
        trace.run.finish(true);
        operation.checkGuards();
        return trace;
    }

    List<Message> messages() {
        return messages;
    }

    /** What a rank sent in a step. */
    Message message(int rank, int step) {
        return messages.stream()
                .filter(message -> message.rank == rank && message.step == step)
                .findFirst()
                .orElseThrow();
    }

    /** 1 + the highest step. */
    int steps() {
        return messages.stream().mapToInt(message -> message.step + 1).max().orElse(0);
    }

    /** Bytes that a rank sent in steps [from, to). */
    long bytes(int rank, int from, int to) {
        return messages.stream()
                .filter(message -> message.rank == rank)
                .filter(message -> message.step >= from && message.step < to)
                .mapToLong(Message::bytes)
                .sum();
    }

    @Override
    public void sent(
            JoinedOperation operation,
            int step,
            int participant,
            int peer,
            int chunk,
            long offsetBytes,
            long bytes) {
        float[] values = new float[0];
        if (operation.type() == DataType.FLOAT32 && bytes > 0) {
            int n = operation.participants();
            Edge edge = run.outgoing(participant, Math.floorMod(peer - participant, n));
            // In lockstep the receiver has taken all that was posted before.
            MemorySegment segment = edge.segment();
            values = new float[(int) (bytes / Float.BYTES)];
            for (int i = 0; i < values.length; i++) {
                values[i] =
                        segment.get(ValueLayout.JAVA_FLOAT_UNALIGNED, edge.offsetBytes() + 4L * i);
            }
        }
        messages.add(new Message(step, participant, peer, chunk, offsetBytes, bytes, values));
    }
}
