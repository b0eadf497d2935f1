package org.nccl4j.bench;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionService;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorCompletionService;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Registration;
import org.nccl4j.collectives.UniqueId;

/**
 * All ranks of this process: connects them, allocates for them, closes them.
 *
 * <p>Thread safety: {@link #communicators} and {@link #memory} may be called from any thread at any
 * time, the rest by one thread.
 */
final class RankSet implements AutoCloseable {

    /** What CUDA calls a device's default stream. */
    private static final long NULL_STREAM = 0;

    private final Backend backend;
    private final List<Device> devices;
    private final FreeMemory freeMemory;
    private final List<Communicator> communicators =
            Collections.synchronizedList(new ArrayList<>());
    private final List<Registration> registrations =
            Collections.synchronizedList(new ArrayList<>());
    private final List<AutoCloseable> others = Collections.synchronizedList(new ArrayList<>());

    /**
     * @param devices one per rank, in rank order
     */
    RankSet(Backend backend, List<Device> devices) {
        this.backend = backend;
        this.devices = List.copyOf(devices);
        this.freeMemory = new FreeMemory(devices);
    }

    /**
     * Connects the ranks.
     *
     * @param oneByOne true to let every rank join from a thread of its own, as -p asks
     */
    void connect(CommunicatorConfig config, boolean oneByOne) throws InterruptedException {
        boolean firstDevices = devices.getFirst().ordinal() == 0;
        if (firstDevices && !oneByOne) {
            communicators.addAll(backend.createLocal(devices.size(), config));
        } else {
            UniqueId id = backend.newUniqueId();
            // Kept as they come, so that those of a failed start are closed as well.
            onOneThreadEach(rank -> {
                int ordinal = devices.get(rank).ordinal();
                return communicators.add(
                        backend.create(id, rank, devices.size(), config.withDevice(ordinal)));
            });
            communicators.sort(Comparator.comparingInt(Communicator::rank));
        }
        freeMemory.connected();
    }

    /**
     * Allocates buffers, streams and events. Every rank does so on a thread of its own, which is
     * then the first to touch its memory.
     *
     * @param bufferBytes of each of the two buffers of a rank
     * @param events how many iterations -I times; 0 for none
     * @param nccl which stream to use, and whether to register the buffers
     */
    List<BenchRank> allocate(long bufferBytes, int events, BenchOptions.Nccl nccl)
            throws InterruptedException {
        List<BenchRank> ranks =
                onOneThreadEach(rank -> {
                    Device device = devices.get(rank);
                    DeviceBuffer send = closing(device.allocate(bufferBytes));
                    DeviceBuffer recv = closing(device.allocate(bufferBytes));
                    DeviceStream stream =
                            closing(
                                    nccl.nullStream()
                                            ? device.wrapStream(NULL_STREAM)
                                            : device.createStream());
                    if (nccl.registersBuffers()) {
                        registrations.add(communicators.get(rank).register(send));
                        registrations.add(communicators.get(rank).register(recv));
                    }
                    return new BenchRank(
                            device,
                            communicators.get(rank),
                            stream,
                            send,
                            recv,
                            events(device, events == 0 ? 0 : events + 1),
                            events(device, events));
                });
        freeMemory.allocated();
        return ranks;
    }

    private List<DeviceEvent> events(Device device, int count) {
        List<DeviceEvent> events = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            events.add(closing(device.createEvent()));
        }
        return events;
    }

    private <T extends AutoCloseable> T closing(T resource) {
        others.add(resource);
        return resource;
    }

    /** The communicators so far. */
    List<Communicator> communicators() {
        synchronized (communicators) {
            return List.copyOf(communicators);
        }
    }

    /** What -M reports. */
    MemoryUsage memory() {
        return freeMemory.usage();
    }

    /**
     * Leaves and frees everything.
     *
     * @throws CollectiveException the first failure, with the others suppressed; all is closed
     */
    @Override
    public void close() {
        List<AutoCloseable> all = new ArrayList<>(registrations);
        // A communicator goes before its streams and buffers, and after its registrations.
        all.add(() -> backend.closeAll(communicators()));
        all.addAll(others.reversed());
        CollectiveException failure = null;
        for (AutoCloseable resource : all) {
            try {
                resource.close();
            } catch (CollectiveException closing) {
                if (failure == null) {
                    failure = closing;
                } else {
                    failure.addSuppressed(closing);
                }
            } catch (Exception unexpected) {
                throw new IllegalStateException(resource + " cannot be closed", unexpected);
            }
        }
        if (failure != null) {
            throw failure;
        }
    }

    @FunctionalInterface
    private interface RankTask<T> {
        T run(int rank);
    }

    /** Runs a task per rank at the same time; the first failure ends the wait for the others. */
    private <T> List<T> onOneThreadEach(RankTask<T> task) throws InterruptedException {
        ExecutorService threads =
                Executors.newThreadPerTaskExecutor(
                        Thread.ofPlatform().daemon().name("nccl4j-bench-rank-", 0).factory());
        try {
            CompletionService<T> completion = new ExecutorCompletionService<>(threads);
            List<Future<T>> futures = new ArrayList<>();
            for (int rank = 0; rank < devices.size(); rank++) {
                int r = rank;
                Callable<T> call = () -> task.run(r);
                futures.add(completion.submit(call));
            }
            for (int done = 0; done < devices.size(); done++) {
                completion.take().get();
            }
            return futures.stream().map(Future::resultNow).toList();
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof CollectiveException cause) {
                throw cause;
            }
            throw new IllegalStateException(
                    "a rank could not be set up: " + failed.getCause(), failed.getCause());
        } finally {
            threads.shutdownNow();
        }
    }
}
