package org.nccl4j.hardware;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.nccl.NcclBackend;

/**
 * One rank as a process of its own. What ranks have to tell each other and the test goes through
 * files of one folder: ids, results and failures.
 */
final class RankProcess {
    private static final int COUNT = 1000;

    private final Path folder;
    private final Backend backend = new NcclBackend();

    private RankProcess(Path folder) {
        this.folder = folder;
    }

    /** Arguments: folder, {@code sum} or {@code loop}, rank, size, operation timeout in ms. */
    public static void main(String[] args) throws IOException {
        RankProcess process = new RankProcess(Path.of(args[0]));
        int rank = Integer.parseInt(args[2]);
        int size = Integer.parseInt(args[3]);
        Duration timeout = Duration.ofMillis(Long.parseLong(args[4]));
        switch (args[1]) {
            case "sum" -> process.sumOnce("world", rank, size, timeout);
            case "loop" -> process.loop(rank, size, timeout);
            default -> throw new IllegalArgumentException(args[1]);
        }
    }

    /** Meets, sums, closes and leaves the sum in a file. */
    private void sumOnce(String name, int rank, int size, Duration timeout) throws IOException {
        try (Communicator communicator = join(name, rank, size, timeout)) {
            leave(name + "-sum-" + rank, Integer.toString(new Summing(communicator).sum()));
        }
    }

    /**
     * Sums until that fails, leaves how, and then sums with those that are left over, which are the
     * first and the last rank.
     */
    private void loop(int rank, int size, Duration timeout) throws IOException {
        try (Communicator communicator = join("world", rank, size, timeout)) {
            Summing summing = new Summing(communicator);
            summing.sum();
            leave("loops-" + rank, "");
            while (true) {
                long start = System.nanoTime();
                try {
                    summing.sum();
                } catch (CollectiveException e) {
                    long tookMillis = (System.nanoTime() - start) / 1_000_000;
                    communicator.abort(timeout);
                    leave(
                            "failure-" + rank,
                            tookMillis
                                    + "\n"
                                    + e.getClass().getSimpleName()
                                    + "\n"
                                    + e.getMessage());
                    break;
                }
            }
        }
        sumOnce("survivors", rank == 0 ? 0 : 1, size - 1, timeout);
    }

    private Communicator join(String name, int rank, int size, Duration timeout)
            throws IOException {
        UniqueId id;
        if (rank == 0) {
            id = backend.newUniqueId();
            leave(name + "-id", id.toBytes());
        } else {
            id = new UniqueId(await(name + "-id"));
        }
        return backend.create(
                id,
                rank,
                size,
                CommunicatorConfig.defaults()
                        .withName(name)
                        .withDevice(rank)
                        .withOperationTimeout(timeout));
    }

    /** Sums of one rank, whose elements are its number plus one. */
    private static final class Summing {
        private final Communicator communicator;
        private final DeviceStream stream;
        private final DeviceBuffer ones;
        private final DeviceBuffer sums;
        private final DeviceBuffer host;

        Summing(Communicator communicator) {
            this.communicator = communicator;
            stream = communicator.device().createStream();
            ones = communicator.device().allocate(COUNT);
            sums = communicator.device().allocate(COUNT);
            host = communicator.device().allocateHost(COUNT);
            stream.fill(ones, (byte) (communicator.rank() + 1));
        }

        /** The last of the sums, all of which must be equal. */
        int sum() {
            communicator.allReduce(ones, sums, COUNT, DataType.INT8, ReduceOp.SUM, stream);
            stream.copy(sums, host, COUNT);
            stream.synchronize(communicator.config().operationTimeout().multipliedBy(3));
            byte[] bytes = host.hostSegment().toArray(java.lang.foreign.ValueLayout.JAVA_BYTE);
            for (byte one : bytes) {
                if (one != bytes[0]) {
                    throw new AssertionError("not one sum: " + List.of(bytes[0], one));
                }
            }
            return bytes[0];
        }
    }

    private void leave(String name, String text) throws IOException {
        leave(name, text.getBytes(java.nio.charset.StandardCharsets.UTF_8));
    }

    /** Whole or not at all. */
    private void leave(String name, byte[] contents) throws IOException {
        Path part = folder.resolve(name + ".part");
        Files.write(part, contents);
        Files.move(part, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE);
    }

    private byte[] await(String name) throws IOException {
        long end = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        while (System.nanoTime() < end) {
            try {
                return Files.readAllBytes(folder.resolve(name));
            } catch (NoSuchFileException e) {
                LockSupport.parkNanos(MILLISECONDS.toNanos(2));
            }
        }
        throw new AssertionError("nobody has left '" + name + "'");
    }
}
