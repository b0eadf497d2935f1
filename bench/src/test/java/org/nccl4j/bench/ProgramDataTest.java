package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** What must be received is what the definition of the operation makes of what is sent. */
final class ProgramDataTest {

    private static final ElementType TYPE = ElementType.INT64;

    static Stream<Arguments> cases() {
        List<Arguments> cases = new ArrayList<>();
        for (Program program : Program.values()) {
            for (int ranks : new int[] {1, 2, 3, 4}) {
                for (int root = 0; root < (program.hasRoot() ? ranks : 1); root++) {
                    for (Placement placement : Placement.values()) {
                        if (placement == Placement.OUT_OF_PLACE || program.checksInPlace()) {
                            cases.add(Arguments.of(program, ranks, root, placement));
                        }
                    }
                }
            }
        }
        return cases.stream();
    }

    @ParameterizedTest
    @MethodSource("cases")
    void receivedIsWhatTheOperationMakesOfSent(
            Program program, int ranks, int root, Placement placement) {
        long[][] blocks = new long[ranks][ranks];
        for (int from = 0; from < ranks; from++) {
            for (int to = 0; to < ranks; to++) {
                blocks[from][to] = 2L * ((from + 2 * to) % 4);
            }
        }
        long largest = 0;
        for (int rank = 0; rank < ranks; rank++) {
            int r = rank;
            largest = Math.max(largest, Arrays.stream(blocks[r]).sum());
            largest = Math.max(largest, Arrays.stream(blocks).mapToLong(b -> b[r]).sum());
        }
        Shape shape =
                program == Program.ALLTOALLV
                        ? new Shape(TYPE, largest, largest, 0, 0, 0)
                        : program.shape(ranks * 6L * 8, TYPE, ranks);
        Series series = program.series(List.of(TYPE), List.of(RedOp.SUM), root, ranks).getFirst();
        ProgramData data = new ProgramData(program, series, shape, ranks, blocks, 3);
        long[][] sent = new long[ranks][];
        long[][] received = new long[ranks][];
        for (int rank = 0; rank < ranks; rank++) {
            sent[rank] = render(data.sent(rank), shape.sendCount());
            received[rank] = new long[(int) shape.recvCount()];
            if (placement == Placement.IN_PLACE) {
                // The receive buffer as it is before the operation.
                int start = (int) (shape.inPlaceSendOffset(rank));
                int room = received[rank].length - start;
                if (room > 0) {
                    System.arraycopy(
                            sent[rank],
                            0,
                            received[rank],
                            start,
                            Math.min(room, sent[rank].length));
                }
            }
        }
        perform(program, ranks, root, (int) shape.paramCount(), blocks, sent, received);
        for (int rank = 0; rank < ranks; rank++) {
            List<Span> spans = data.received(rank, placement);
            assertThat(spans.stream().mapToLong(Span::count).sum())
                    .as("every received element is checked")
                    .isEqualTo(shape.recvCount());
            assertThat(render(spans, shape.recvCount()))
                    .as("rank %d", rank)
                    .isEqualTo(received[rank]);
        }
    }

    private static long[] render(List<Span> spans, long length) {
        long[] elements = new long[(int) length];
        for (Span span : spans) {
            long[] bits = new long[(int) span.count()];
            span.content().generate(span.firstIndex(), bits, bits.length);
            System.arraycopy(bits, 0, elements, (int) span.offset(), bits.length);
        }
        return elements;
    }

    private static void perform(
            Program program,
            int ranks,
            int root,
            int chunk,
            long[][] blocks,
            long[][] sent,
            long[][] received) {
        for (int to = 0; to < ranks; to++) {
            long[] out = received[to];
            switch (program) {
                case ALL_REDUCE -> sum(sent, 0, out, chunk);
                case REDUCE -> sum(sent, 0, to == root ? out : new long[chunk], chunk);
                case REDUCE_SCATTER -> sum(sent, to * chunk, out, chunk);
                case ALL_GATHER, HYPERCUBE -> concatenate(sent, out, chunk);
                case GATHER -> concatenate(sent, to == root ? out : new long[ranks * chunk], chunk);
                case BROADCAST -> System.arraycopy(sent[root], 0, out, 0, chunk);
                case SCATTER -> System.arraycopy(sent[root], to * chunk, out, 0, chunk);
                case ALLTOALL -> {
                    for (int from = 0; from < ranks; from++) {
                        System.arraycopy(sent[from], to * chunk, out, from * chunk, chunk);
                    }
                }
                case ALLTOALLV -> {
                    int at = 0;
                    for (int from = 0; from < ranks; from++) {
                        int start = 0;
                        for (int before = 0; before < to; before++) {
                            start += (int) blocks[from][before];
                        }
                        System.arraycopy(sent[from], start, out, at, (int) blocks[from][to]);
                        at += (int) blocks[from][to];
                    }
                }
                case SENDRECV -> System.arraycopy(sent[(to + ranks - 1) % ranks], 0, out, 0, chunk);
            }
        }
    }

    private static void sum(long[][] sent, int start, long[] out, int chunk) {
        for (int i = 0; i < chunk; i++) {
            long sum = 0;
            for (long[] each : sent) {
                sum += each[start + i];
            }
            out[i] = sum;
        }
    }

    private static void concatenate(long[][] sent, long[] out, int chunk) {
        for (int from = 0; from < sent.length; from++) {
            System.arraycopy(sent[from], 0, out, from * chunk, chunk);
        }
    }
}
