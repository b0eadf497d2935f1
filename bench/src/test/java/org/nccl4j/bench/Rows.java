package org.nccl4j.bench;

import java.time.LocalDateTime;
import java.util.Optional;
import java.util.OptionalLong;

/** Made-up rows. */
final class Rows {

    static final LocalDateTime TIME = LocalDateTime.of(2026, 1, 31, 9, 5, 7);

    private Rows() {}

    /** A row whose bandwidths follow from its times. */
    static Row row(
            Program program,
            Series series,
            long sizeBytes,
            int ranks,
            double outOfPlaceMicros,
            OptionalLong outOfPlaceWrong,
            double inPlaceMicros,
            OptionalLong inPlaceWrong) {
        Shape shape = program.shape(sizeBytes, series.type(), ranks);
        return new Row(
                series,
                shape,
                cell(program, shape, ranks, outOfPlaceMicros, outOfPlaceWrong),
                cell(program, shape, ranks, inPlaceMicros, inPlaceWrong),
                TIME,
                Optional.empty());
    }

    private static Cell cell(
            Program program, Shape shape, int ranks, double micros, OptionalLong wrong) {
        return new Cell(
                micros, program.bandwidth(shape, ranks, micros * 1e-6), wrong, Optional.empty());
    }

    static Series floatSum() {
        return new Series(ElementType.FLOAT, RedOp.SUM, -1, "sum");
    }

    /** A row of all_reduce over 8 ranks. */
    static Row allReduce(
            long sizeBytes, double outMicros, double inMicros, long outWrong, long inWrong) {
        return row(
                Program.ALL_REDUCE,
                floatSum(),
                sizeBytes,
                8,
                outMicros,
                OptionalLong.of(outWrong),
                inMicros,
                OptionalLong.of(inWrong));
    }

    /** The same row with the samples of -I in both cells. */
    static Row with(Row row, IterationTimes outOfPlace, IterationTimes inPlace) {
        return new Row(
                row.series(),
                row.shape(),
                with(row.outOfPlace(), outOfPlace),
                with(row.inPlace(), inPlace),
                row.finishedAt(),
                row.algorithm());
    }

    private static Cell with(Cell cell, IterationTimes times) {
        return new Cell(cell.micros(), cell.bandwidth(), cell.wrongElements(), Optional.of(times));
    }
}
