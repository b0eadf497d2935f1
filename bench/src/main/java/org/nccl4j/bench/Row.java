package org.nccl4j.bench;

import java.time.LocalDateTime;

/**
 * One row of the table and of the JSON file.
 *
 * @param series type, reduction and root
 * @param shape size and count
 * @param outOfPlace the first cell
 * @param inPlace the second cell
 * @param finishedAt local time at which the row was complete; shown with -S
 */
record Row(Series series, Shape shape, Cell outOfPlace, Cell inPlace, LocalDateTime finishedAt) {}
