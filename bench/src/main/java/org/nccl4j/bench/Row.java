package org.nccl4j.bench;

import java.time.LocalDateTime;
import java.util.Optional;

/**
 * One row of the table and of the JSON file.
 *
 * @param series type, reduction and root
 * @param shape size and count
 * @param outOfPlace the first cell
 * @param inPlace the second cell
 * @param finishedAt local time at which the row was complete; shown with -S
 * @param algorithm what carried out the operation, if --show-algo asks for it
 */
record Row(
        Series series,
        Shape shape,
        Cell outOfPlace,
        Cell inPlace,
        LocalDateTime finishedAt,
        Optional<String> algorithm) {}
