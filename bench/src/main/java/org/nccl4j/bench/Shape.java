package org.nccl4j.bench;

/**
 * What one row moves, per rank, in elements. Made by {@link Program#shape}.
 *
 * @param type the element type
 * @param sendCount elements in a rank's send buffer (alltoallv: the largest total that a rank
 *     sends)
 * @param recvCount elements in a rank's receive buffer (alltoallv: the largest total received)
 * @param paramCount the count column: the count argument of the collective
 * @param inPlaceSendStride in place, rank r sends from element {@code r * inPlaceSendStride} of its
 *     receive buffer
 * @param inPlaceRecvStride in place, rank r receives at element {@code r * inPlaceRecvStride} of
 *     its receive buffer
 */
record Shape(
        ElementType type,
        long sendCount,
        long recvCount,
        long paramCount,
        long inPlaceSendStride,
        long inPlaceRecvStride) {

    long sendBytes() {
        return sendCount * type.widthBytes();
    }

    long recvBytes() {
        return recvCount * type.widthBytes();
    }

    /** The size column: the larger of the two buffers after rounding, not what was asked for. */
    long sizeBytes() {
        return Math.max(sendBytes(), recvBytes());
    }

    /** Element of the receive buffer from which {@code rank} sends in place. */
    long inPlaceSendOffset(int rank) {
        return rank * inPlaceSendStride;
    }

    /** Element of the receive buffer at which {@code rank} receives in place. */
    long inPlaceRecvOffset(int rank) {
        return rank * inPlaceRecvStride;
    }

    /**
     * Byte offset in both buffers of operation number {@code operation}: successive operations walk
     * through buffers of {@code maxBytes} so that no row runs out of a warm cache. The number is
     * that of the warm-up operation, or iteration * aggregation + j in the timed loop; the untimed
     * first operation of a cell and its check rounds use 0.
     */
    long rotationOffsetBytes(long operation, long maxBytes) {
        long sizeBytes = sizeBytes();
        long places = sizeBytes == 0 ? 0 : maxBytes / sizeBytes;
        return places == 0 ? 0 : sizeBytes * (operation % places);
    }
}
