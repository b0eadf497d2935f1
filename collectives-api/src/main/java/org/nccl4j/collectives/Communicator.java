package org.nccl4j.collectives;

import java.time.Duration;
import java.util.Optional;

/**
 * One rank's membership in a group of ranks that communicate.
 *
 * <p>Thread safety: a communicator belongs to one thread at a time: its operations, {@link #split}
 * and {@link #exchangeCounts} need the caller's own order. {@link #status}, {@link #abort}, {@link
 * #close} and {@link #traffic} may be called from any thread. One thread that drives several ranks
 * must put operations that wait for each other in one {@link Group}.
 *
 * <p>A communicator that is dropped without {@link #close} is a leak: it is logged with the place
 * where it was made, and nothing is done to it.
 */
public interface Communicator extends Operations, AutoCloseable {
    /** The color of a rank that joins no group of a split, as NCCL's {@code NCCL_SPLIT_NOCOLOR}. */
    int NO_COLOR = -1;

    /**
     * This rank's number.
     *
     * @return 0 to {@code size() - 1}
     */
    int rank();

    /**
     * The number of ranks.
     *
     * @return at least 1
     */
    int size();

    /**
     * This rank's device.
     *
     * @return the device whose streams and buffers operations take
     */
    Device device();

    /**
     * The configuration that this rank was made with.
     *
     * @return the configuration
     */
    CommunicatorConfig config();

    /**
     * Where it stands.
     *
     * @return a snapshot
     */
    CommunicatorStatus status();

    /**
     * Splits the communicator. A collective host-side call: every rank makes it, in the same order
     * as its operations, and no rank waits in it. The parent stays usable; its next operation waits
     * for the split, at most {@link CommunicatorConfig#operationTimeout}. The new communicators
     * have, rank by rank, the parent's configuration and a life of their own: closing one does not
     * close the other.
     *
     * @param color ranks with the same color form a new communicator; {@link #NO_COLOR} joins none
     * @param key orders the new ranks, ties by rank in the parent
     * @return the new communicator, to be closed by the caller, or empty for {@link #NO_COLOR}
     * @throws InvalidArgumentException if the color is negative and not {@link #NO_COLOR}
     * @throws CollectiveException the communicator's failure
     */
    Pending<Optional<Communicator>> split(int color, int key);

    /**
     * Tells each rank what the others will send it. A collective host-side call as {@link #split}.
     *
     * @param sendCountsElements what this rank will send to each rank, at least 0 each
     * @return what each rank will send to this one, elements by rank
     * @throws InvalidArgumentException if there is not one count per rank or one is negative
     * @throws CollectiveException the communicator's failure
     */
    Pending<long[]> exchangeCounts(long[] sendCountsElements);

    /**
     * One rank's part of a buffer that is to be split evenly.
     *
     * @param totalElements elements of the whole buffer
     * @return {@code totalElements / size()}
     * @throws InvalidArgumentException if it is negative or size() does not divide it; never rounds
     */
    default long evenShare(long totalElements) {
        if (totalElements < 0) {
            throw new InvalidArgumentException(
                    "a total of " + totalElements + " elements must be at least 0");
        }
        if (totalElements % size() != 0) {
            throw new InvalidArgumentException(
                    totalElements
                            + " elements cannot be split evenly over "
                            + size()
                            + " ranks; pad the buffer or use BlockLayout.even("
                            + totalElements
                            + ", "
                            + size()
                            + ") with a V operation");
        }
        return totalElements / size();
    }

    /**
     * Registers a buffer, so that operations on it may be faster. Local, and never needed for right
     * results.
     *
     * @param buffer memory of this rank's device, open until the registration is closed
     * @return the registration, to be closed by the caller
     * @throws InvalidArgumentException if the buffer is closed, empty or on another device
     * @throws UnsupportedException if {@link Capabilities#registration} is false
     */
    default Registration register(DeviceBuffer buffer) {
        throw new UnsupportedException(
                "communicator '"
                        + config().name()
                        + "' on rank "
                        + rank()
                        + "/"
                        + size()
                        + " cannot register "
                        + buffer
                        + ": this backend has no use for it; ask Capabilities.registration first");
    }

    /**
     * Payload bytes sent and received by this rank so far, by peer.
     *
     * @return a snapshot, exact once the streams are synchronized
     * @throws UnsupportedException if {@link Capabilities#trafficCounters} is false
     */
    Traffic traffic();

    /**
     * Gives up all work of this communicator. Returns when none of it runs any more: then its
     * buffers are free and its streams usable. Where the backend can tell them ({@link
     * Capabilities#peerFailureDetection}), the other ranks fail with {@link
     * CommunicatorAbortedException}, naming this rank. Aborting twice, or after {@link #close},
     * does nothing.
     *
     * @param timeout how long at most
     * @throws CollectiveTimeoutException if work still runs then; calling again goes on waiting
     * @throws WaitInterruptedException if the thread is or gets interrupted; the abort goes on
     */
    void abort(Duration timeout);

    /**
     * Waits for the work that was enqueued, at most {@link CommunicatorConfig#operationTimeout},
     * then leaves; if work cannot end, aborts, which may take a second more. Closing a closed
     * communicator does nothing; one that another thread is closing returns when that is done. A
     * peer that still needs this rank afterwards gets a {@link RankFailedException}. One thread
     * that drives several ranks uses {@link Backend#closeAll}.
     *
     * @throws WaitInterruptedException if the thread is or gets interrupted while work is left; the
     *     communicator is still open, close it again
     * @throws CollectiveException the failure of work that was still waiting; the communicator is
     *     closed all the same
     */
    @Override
    void close();
}
