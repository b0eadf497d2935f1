package org.nccl4j.bench;

import java.util.Optional;
import java.util.OptionalLong;

/**
 * One placement (out of place or in place) of a row.
 *
 * @param micros the time column: reduced wall time per operation, or with -C the time to issue it
 * @param bandwidth from the wall time, even with -C
 * @param wrongElements wrong elements of all ranks; empty (N/A) where nothing is compared
 * @param iterations the samples of -I, if it is on
 */
record Cell(
        double micros,
        Bandwidth bandwidth,
        OptionalLong wrongElements,
        Optional<IterationTimes> iterations) {}
