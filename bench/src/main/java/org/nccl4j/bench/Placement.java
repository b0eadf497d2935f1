package org.nccl4j.bench;

/** The two cells of a row. */
enum Placement {
    /** From the send buffer to the receive buffer. */
    OUT_OF_PLACE,
    /** Within the receive buffer, where the program has such a form. */
    IN_PLACE
}
