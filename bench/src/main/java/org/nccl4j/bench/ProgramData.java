package org.nccl4j.bench;

import java.util.ArrayList;
import java.util.List;

/**
 * What each rank's buffers hold before an operation and must hold after it.
 *
 * @param program the operation
 * @param series type, reduction and root
 * @param shape the row's counts
 * @param ranks the number of ranks
 * @param blockCounts alltoallv: elements {@code [from][to]}; otherwise not used
 * @param repetition chooses the data, so that no operation can pass by what an earlier one left
 */
record ProgramData(
        Program program,
        Series series,
        Shape shape,
        int ranks,
        long[][] blockCounts,
        long repetition) {

    /** What rank r sends, from the start of what it sends. */
    List<Span> sent(int rank) {
        long chunk = shape.paramCount();
        return switch (program) {
            case ALL_REDUCE, REDUCE, REDUCE_SCATTER ->
                    List.of(new Span(0, shape.sendCount(), reduction().input(rank), 0));
            case ALL_GATHER, HYPERCUBE -> List.of(new Span(0, chunk, own(rank), 0));
            case BROADCAST, SCATTER ->
                    rank == series.root()
                            ? List.of(new Span(0, shape.sendCount(), common(), 0))
                            : List.of();
            case GATHER, SENDRECV -> List.of(new Span(0, chunk, common(), rank * chunk));
            case ALLTOALL -> List.of(new Span(0, shape.sendCount(), own(rank), 0));
            case ALLTOALLV -> {
                long total = 0;
                for (long count : blockCounts[rank]) {
                    total += count;
                }
                yield List.of(new Span(0, total, own(rank), 0));
            }
        };
    }

    /** What rank r must find, from the start of where it receives; {@code recvCount} elements. */
    List<Span> received(int rank, Placement placement) {
        long chunk = shape.paramCount();
        boolean atRoot = rank == series.root();
        return switch (program) {
            case ALL_REDUCE -> List.of(new Span(0, shape.recvCount(), reduction().result(), 0));
            case REDUCE ->
                    atRoot
                            ? List.of(new Span(0, shape.recvCount(), reduction().result(), 0))
                            : untouched(rank, placement);
            case REDUCE_SCATTER -> List.of(new Span(0, chunk, reduction().result(), rank * chunk));
            case ALL_GATHER, HYPERCUBE -> {
                List<Span> spans = new ArrayList<>(ranks);
                for (int from = 0; from < ranks; from++) {
                    spans.add(new Span(from * chunk, chunk, own(from), 0));
                }
                yield spans;
            }
            case BROADCAST -> List.of(new Span(0, shape.recvCount(), common(), 0));
            case GATHER ->
                    atRoot
                            ? List.of(new Span(0, shape.recvCount(), common(), 0))
                            : untouched(rank, placement);
            case SCATTER -> List.of(new Span(0, chunk, common(), rank * chunk));
            case ALLTOALL -> {
                List<Span> spans = new ArrayList<>(ranks);
                for (int from = 0; from < ranks; from++) {
                    spans.add(new Span(from * chunk, chunk, own(from), rank * chunk));
                }
                yield spans;
            }
            case ALLTOALLV -> {
                List<Span> spans = new ArrayList<>(ranks + 1);
                long offset = 0;
                for (int from = 0; from < ranks; from++) {
                    long before = 0;
                    for (int to = 0; to < rank; to++) {
                        before += blockCounts[from][to];
                    }
                    long count = blockCounts[from][rank];
                    spans.add(new Span(offset, count, own(from), before));
                    offset += count;
                }
                spans.add(new Span(offset, shape.recvCount() - offset, Content.ZEROS, 0));
                yield spans;
            }
            case SENDRECV -> {
                int from = (rank + ranks - 1) % ranks;
                yield List.of(new Span(0, shape.recvCount(), common(), from * chunk));
            }
        };
    }

    /** How many units in the last place a received element may be off. */
    long toleranceUnits() {
        return ReductionData.toleranceUnits(series.type().dataType(), series.op());
    }

    /** A receive buffer that the operation must leave alone: zeros, in place but for its input. */
    private List<Span> untouched(int rank, Placement placement) {
        long ownStart = shape.inPlaceSendOffset(rank);
        long ownEnd = ownStart + shape.sendCount();
        if (placement == Placement.OUT_OF_PLACE) {
            return List.of(new Span(0, shape.recvCount(), Content.ZEROS, 0));
        }
        List<Span> spans = new ArrayList<>(3);
        spans.add(new Span(0, ownStart, Content.ZEROS, 0));
        for (Span span : sent(rank)) {
            spans.add(
                    new Span(
                            ownStart + span.offset(),
                            span.count(),
                            span.content(),
                            span.firstIndex()));
        }
        spans.add(new Span(ownEnd, shape.recvCount() - ownEnd, Content.ZEROS, 0));
        return spans;
    }

    private ReductionData reduction() {
        return ReductionData.of(series.type().dataType(), series.op(), ranks, repetition);
    }

    /** The pattern that all ranks share. */
    private Content common() {
        return Content.copyPattern(series.type().dataType(), repetition);
    }

    /** The pattern of one rank. */
    private Content own(int rank) {
        return Content.copyPattern(series.type().dataType(), 33 * repetition + rank);
    }
}
