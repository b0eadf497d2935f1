package org.nccl4j.collectives;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.function.DoubleConsumer;
import org.nccl4j.collectives.spi.ArgumentChecks;
import org.nccl4j.collectives.spi.Durations;

/**
 * A way to run collectives: NCCL on GPUs, or the CPU. Found by {@link java.util.ServiceLoader};
 * users go through {@link Backends}.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
public interface Backend {
    /**
     * A short name.
     *
     * @return for example {@code "cpu"} or {@code "nccl"}
     */
    String name();

    /**
     * Whether it can be used here. Every other method but {@link #name} throws {@link
     * LibraryUnavailableException} when not.
     *
     * @return yes, or no with the reasons
     */
    Availability availability();

    /**
     * What it can do.
     *
     * @return the same for the life of the process
     */
    Capabilities capabilities();

    /**
     * The native libraries behind it.
     *
     * @return what has been loaded, the most important one first; empty for pure Java
     */
    default List<LoadedLibrary> libraries() {
        return List.of();
    }

    /**
     * The devices that a program gets by default.
     *
     * @return GPUs; for the CPU max(2, cores) virtual devices
     */
    List<Device> devices();

    /**
     * How many devices there can be.
     *
     * @return the number of GPUs; for the CPU 1024
     */
    int deviceLimit();

    /**
     * A device by number.
     *
     * @param ordinal 0 to {@code deviceLimit() - 1}
     * @return the device
     * @throws InvalidArgumentException if there is no such device
     */
    Device device(int ordinal);

    /**
     * Communicators for n ranks in this process, rank i on device i.
     *
     * @param ranks how many, 1 to {@link #deviceLimit}
     * @param config for all ranks; it names no device
     * @return one communicator per rank, in rank order
     * @throws InvalidArgumentException if there are not so many devices or the configuration names
     *     one
     * @throws UnsupportedException if the configuration asks for what the backend cannot do
     */
    List<Communicator> createLocal(int ranks, CommunicatorConfig config);

    /**
     * A new id for {@link #create}.
     *
     * @return an id that no other communicator has
     */
    UniqueId newUniqueId();

    /**
     * Joins a communicator as one rank; the others do the same, in other threads or processes.
     * Waits for them, at most {@link CommunicatorConfig#operationTimeout}.
     *
     * @param bootstrap where the ranks meet
     * @param rank this rank
     * @param size the number of ranks
     * @param config this rank's configuration
     * @return the communicator
     * @throws InvalidArgumentException if the rank is out of range or taken, or ranks disagree
     *     about the size or about the configuration's name, timeout, {@code abortOnFailure} or
     *     algorithm
     * @throws CollectiveTimeoutException if ranks are missing at the deadline; the message names
     *     them
     * @throws WaitInterruptedException if the thread is or gets interrupted; this rank has not
     *     joined
     * @throws UnsupportedException if the backend cannot connect these ranks, or the configuration
     *     asks for what it cannot do
     */
    Communicator create(Bootstrap bootstrap, int rank, int size, CommunicatorConfig config);

    /**
     * Runs a body that records operations, then issues them all in order: on this thread if it is a
     * platform thread, while a virtual thread may wait for one that does it. A body that throws
     * issues nothing and its exception reaches the caller. Operations of one communicator start
     * when all its streams in the group have reached them, and hold those streams until the last
     * ends. Operations of several communicators are issued in the order of their first appearance.
     *
     * <p>Groups do not nest. Using a communicator or stream that the open group has touched, other
     * than through the group, is refused. One thread that drives several ranks of a communicator
     * must use groups.
     *
     * @param body records the operations
     * @throws InvalidArgumentException if this thread is already in a group's body
     * @throws CollectiveException a communicator's failure; nothing has been enqueued
     */
    void group(Consumer<Group> body);

    /**
     * As {@link #group}, but records for later. Once recorded, the communicators and streams may be
     * used freely, and the numbers of the operations are taken when they are issued.
     *
     * <p>A backend may prepare here what would have to be found out each time, so that to record
     * may take longer than to issue: record before a loop.
     *
     * @param body records the operations
     * @return the group, to be issued any number of times
     * @throws InvalidArgumentException if this thread is already in a group's body
     */
    RecordedGroup record(Consumer<Group> body);

    /**
     * {@link Communicator#split} for all ranks that this thread drives.
     *
     * @param communicators ranks of one communicator
     * @param colors one per communicator
     * @param keys one per communicator
     * @return the new communicators, in the order of {@code communicators}
     * @throws InvalidArgumentException if lengths differ, the ranks are not of one communicator, or
     *     a color is negative and not {@link Communicator#NO_COLOR}
     */
    Pending<List<Optional<Communicator>>> split(
            List<Communicator> communicators, int[] colors, int[] keys);

    /**
     * {@link Communicator#exchangeCounts} for all ranks that this thread drives.
     *
     * @param communicators ranks of one communicator
     * @param sendCountsElements one row per communicator
     * @return one row of receive counts per communicator
     * @throws InvalidArgumentException if lengths differ, the ranks are not of one communicator, or
     *     a count is negative
     */
    Pending<long[][]> exchangeCounts(List<Communicator> communicators, long[][] sendCountsElements);

    /**
     * Closes all ranks that this thread drives, so that none waits for another's close.
     *
     * @param communicators ranks of any communicators
     * @throws WaitInterruptedException if the thread is or gets interrupted while work is left;
     *     none has left its communicator, or while another thread is closing one of them; close
     *     them again
     * @throws CollectiveException the first failure, with the others suppressed; all are closed
     */
    void closeAll(List<Communicator> communicators);

    /**
     * Captures what a body enqueues on streams, which must include the streams of all ranks that
     * this thread drives.
     *
     * @param streams the streams to capture
     * @param body enqueues the work
     * @return the graph, to be closed by the caller before its communicators
     * @throws UnsupportedException if {@link Capabilities#capture} is false
     */
    Graph capture(List<DeviceStream> streams, Runnable body);

    /**
     * Shows an algorithm: who sends what to whom in which step. Runs nothing.
     *
     * @param operation such as {@code "all-reduce"}
     * @param algorithm one of the backend's names; empty for the first that it has
     * @param ranks the number of ranks
     * @param type element type
     * @param sizeBytes of the full buffer: n blocks where each rank has a block of its own
     * @return the picture in words and as SVG
     * @throws InvalidArgumentException with the names there are, if one is not known
     * @throws UnsupportedException if the backend does not know what it will do, which is the
     *     default
     */
    default Explanation explain(
            String operation,
            Optional<String> algorithm,
            int ranks,
            DataType type,
            long sizeBytes) {
        throw new UnsupportedException(
                "backend '"
                        + name()
                        + "' does not show its algorithms; those of the CPU backend are shown by"
                        + " Backends.named(\"cpu\").explain(...)");
    }

    /**
     * Which algorithm an operation will be carried out by. Runs nothing.
     *
     * @param operation such as {@code "all-reduce"} or {@code "send-recv"}
     * @param ranks the number of ranks
     * @param sizeBytes of the full buffer: n blocks where each rank has a block of its own
     * @param config of the communicator
     * @return one of the backend's names
     * @throws InvalidArgumentException with the names there are, if one is not known
     * @throws UnsupportedException if the backend does not know what it will do, which is the
     *     default
     */
    default String algorithm(
            String operation, int ranks, long sizeBytes, CommunicatorConfig config) {
        throw new UnsupportedException(
                "backend '"
                        + name()
                        + "' does not tell which algorithms it takes; the CPU backend does");
    }

    /**
     * Measures this machine, which takes about half a minute, and stores what the backend then
     * chooses algorithms by. Processes that start later use it; this one goes on as it is.
     *
     * @param file where to; empty for where the backend looks for it
     * @param progress told now and then what share is done, 0 to 1
     * @return what was found and where it is, in words
     * @throws UnsupportedException if the file cannot be written, if the machine was so busy that
     *     the times are of no use, when an earlier file is kept, or if the backend needs no such
     *     thing, which is the default
     */
    default String calibrate(Optional<Path> file, DoubleConsumer progress) {
        throw new UnsupportedException(
                "backend '" + name() + "' is not calibrated; the CPU backend is");
    }

    /**
     * Waits until streams are done, under one deadline.
     *
     * @param streams any streams of this backend
     * @param timeout how long at most for all together
     * @throws CollectiveException as {@link DeviceStream#synchronize}, for the first stream that
     *     fails
     */
    default void synchronizeAll(List<DeviceStream> streams, Duration timeout) {
        ArgumentChecks.given("synchronizeAll", "list of streams", streams);
        long start = System.nanoTime();
        long budgetNanos = Durations.saturatedNanos(timeout);
        for (DeviceStream stream : streams) {
            ArgumentChecks.given("synchronizeAll", "stream", stream);
            stream.synchronize(
                    Duration.ofNanos(Math.max(0, budgetNanos - (System.nanoTime() - start))));
        }
    }
}
