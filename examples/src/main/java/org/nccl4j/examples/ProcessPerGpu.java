package org.nccl4j.examples;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.UniqueId;

/**
 * The training of {@link GradientAveraging} with a process per GPU, on one machine or several: rank
 * 0 makes the job's unique id, the others get it through a file that all of them see. Start it once
 * per rank, for example on two GPUs of one machine:
 *
 * <pre>{@code
 * examples/run ProcessPerGpu 0 2 /tmp/job-42.id &
 * examples/run ProcessPerGpu 1 2 /tmp/job-42.id
 * }</pre>
 *
 * <p>The CPU backend joins ranks of one process only.
 */
public final class ProcessPerGpu {
    private static final Duration DEADLINE = Duration.ofSeconds(60);

    private ProcessPerGpu() {}

    /**
     * Trains as one rank and prints what came out.
     *
     * @param arguments this rank, the number of ranks, and a file of this job alone
     */
    public static void main(String[] arguments) throws IOException, InterruptedException {
        if (!understood(arguments)) {
            System.err.println(
                    "usage: ProcessPerGpu RANK RANKS FILE, once per rank from 0, with a file that is not there"
                            + " yet: ProcessPerGpu 0 2 /tmp/job-42.id");
            System.exit(2);
        }
        int rank = Integer.parseInt(arguments[0]);
        int size = Integer.parseInt(arguments[1]);
        Path idFile = Path.of(arguments[2]);
        Backend backend = Backends.named("nccl");
        // The ranks of a machine are neighbours, as launchers number them.
        int device = rank % backend.devices().size();
        System.out.println("rank " + rank + ": " + join(backend, device, rank, size, idFile));
    }

    private static boolean understood(String[] arguments) {
        return arguments.length == 3
                && arguments[0].matches("\\d{1,9}")
                && arguments[1].matches("\\d{1,9}")
                && Integer.parseInt(arguments[0]) < Integer.parseInt(arguments[1]);
    }

    /**
     * Joins the others, trains and leaves.
     *
     * @param backend where
     * @param device this rank's device
     * @param rank this rank
     * @param size the number of ranks
     * @param idFile does not exist yet; rank 0 makes it, and deletes it when all have come or the
     *     time is up
     * @return the model
     */
    public static GradientAveraging.Model join(
            Backend backend, int device, int rank, int size, Path idFile)
            throws IOException, InterruptedException {
        CommunicatorConfig config =
                CommunicatorConfig.defaults().withDevice(device).withOperationTimeout(DEADLINE);
        try (Communicator communicator =
                rank == 0
                        ? createFirst(backend, size, config, idFile)
                        : backend.create(await(idFile), rank, size, config)) {
            return GradientAveraging.train(communicator);
        }
    }

    /** The file goes even if somebody did not come: a later job must not find an old id. */
    private static Communicator createFirst(
            Backend backend, int size, CommunicatorConfig config, Path idFile) throws IOException {
        UniqueId id = publish(backend.newUniqueId(), idFile);
        try {
            return backend.create(id, 0, size, config);
        } finally {
            Files.deleteIfExists(idFile);
        }
    }

    /** At once and whole, readable by its owner alone: whoever has the id can join the job. */
    private static UniqueId publish(UniqueId id, Path file) throws IOException {
        Path unfinished =
                Files.createTempFile(file.toAbsolutePath().getParent(), "unfinished", ".id");
        Files.write(unfinished, id.toBytes());
        Files.move(unfinished, file, StandardCopyOption.ATOMIC_MOVE);
        return id;
    }

    private static UniqueId await(Path file) throws IOException, InterruptedException {
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (true) {
            try {
                return new UniqueId(Files.readAllBytes(file));
            } catch (NoSuchFileException e) {
                if (System.nanoTime() - deadline > 0) {
                    throw new IOException(
                            "rank 0 did not write " + file + " within " + DEADLINE, e);
                }
                Thread.sleep(50);
            }
        }
    }
}
