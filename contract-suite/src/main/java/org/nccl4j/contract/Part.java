package org.nccl4j.contract;

/**
 * Consecutive elements of a buffer and where their values come from.
 *
 * @param place elements before them in the buffer
 * @param source the rank whose input they are, or {@link #REDUCED}
 * @param index the first one's index in that input or in the reduced vector
 * @param count how many
 */
record Part(int place, int source, int index, int count) {
    static final int REDUCED = -1;

    int end() {
        return place + count;
    }
}
