package org.nccl4j.bench;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.DoubleConsumer;
import java.util.function.Predicate;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Bootstrap;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Graph;
import org.nccl4j.collectives.Group;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.UniqueId;

/** A backend that notes what is issued, and can be made slow, forgetful or able to capture. */
final class WatchedBackend implements Backend {

    /**
     * An operation that was issued.
     *
     * @param sendAddress where it reads; 0 if it takes no buffer
     */
    record Call(String operation, int rank, long sendAddress) {}

    final List<Call> calls = Collections.synchronizedList(new ArrayList<>());

    /** How many operations each issued group held, for one rank of them. */
    final List<Integer> groupSizes = Collections.synchronizedList(new ArrayList<>());

    final AtomicInteger waits = new AtomicInteger();
    final AtomicInteger launches = new AtomicInteger();

    /** Operations of these ranks are never issued. */
    Predicate<Communicator> absent = communicator -> false;

    /** Every wait for completion takes this much longer. */
    Duration slowness = Duration.ZERO;

    boolean captures;

    private final Backend real;

    WatchedBackend(Backend real) {
        this.real = real;
    }

    @Override
    public RecordedGroup record(Consumer<Group> body) {
        List<Call> recorded = new ArrayList<>();
        RecordedGroup group =
                real.record(g ->
                        body.accept(communicator ->
                                watched(communicator, g.on(communicator), recorded)));
        return () -> {
            calls.addAll(recorded);
            groupSizes.add(recorded.size());
            group.issue();
        };
    }

    private Operations watched(
            Communicator communicator, Operations operations, List<Call> recorded) {
        return (Operations)
                Proxy.newProxyInstance(
                        Operations.class.getClassLoader(),
                        new Class<?>[] {Operations.class},
                        (proxy, method, arguments) -> {
                            long address =
                                    arguments[0] instanceof DeviceBuffer buffer
                                            ? buffer.address()
                                            : 0;
                            recorded.add(new Call(method.getName(), communicator.rank(), address));
                            if (absent.test(communicator)) {
                                return null;
                            }
                            try {
                                return method.invoke(operations, arguments);
                            } catch (InvocationTargetException thrown) {
                                throw thrown.getCause();
                            }
                        });
    }

    @Override
    public void synchronizeAll(List<DeviceStream> streams, Duration timeout) {
        waits.incrementAndGet();
        long until = System.nanoTime() + slowness.toNanos();
        while (System.nanoTime() < until) {
            LockSupport.parkNanos(until - System.nanoTime());
        }
        real.synchronizeAll(streams, timeout);
    }

    @Override
    public Capabilities capabilities() {
        Capabilities all = real.capabilities();
        return all.withCapture(captures || all.capture());
    }

    @Override
    public Graph capture(List<DeviceStream> streams, Runnable body) {
        return new Graph() {
            @Override
            public void launch() {
                launches.incrementAndGet();
                body.run();
            }

            @Override
            public void close() {}
        };
    }

    @Override
    public String name() {
        return real.name();
    }

    @Override
    public Availability availability() {
        return real.availability();
    }

    @Override
    public List<Device> devices() {
        return real.devices();
    }

    @Override
    public int deviceLimit() {
        return real.deviceLimit();
    }

    @Override
    public Device device(int ordinal) {
        return real.device(ordinal);
    }

    @Override
    public List<Communicator> createLocal(int ranks, CommunicatorConfig config) {
        return real.createLocal(ranks, config);
    }

    @Override
    public String algorithm(
            String operation, int ranks, long sizeBytes, CommunicatorConfig config) {
        return real.algorithm(operation, ranks, sizeBytes, config);
    }

    @Override
    public String calibrate(Optional<Path> file, DoubleConsumer progress) {
        return real.calibrate(file, progress);
    }

    @Override
    public UniqueId newUniqueId() {
        return real.newUniqueId();
    }

    @Override
    public Communicator create(Bootstrap bootstrap, int rank, int size, CommunicatorConfig config) {
        return real.create(bootstrap, rank, size, config);
    }

    @Override
    public void group(Consumer<Group> body) {
        real.group(body);
    }

    @Override
    public Pending<List<Optional<Communicator>>> split(
            List<Communicator> communicators, int[] colors, int[] keys) {
        return real.split(communicators, colors, keys);
    }

    @Override
    public Pending<long[][]> exchangeCounts(
            List<Communicator> communicators, long[][] sendCountsElements) {
        return real.exchangeCounts(communicators, sendCountsElements);
    }

    @Override
    public void closeAll(List<Communicator> communicators) {
        real.closeAll(communicators);
    }
}
