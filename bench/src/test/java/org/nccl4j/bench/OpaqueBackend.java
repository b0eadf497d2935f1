package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.MemorySegment;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;
import java.util.stream.IntStream;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Bootstrap;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Graph;
import org.nccl4j.collectives.Group;
import org.nccl4j.collectives.LoadedLibrary;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.Registration;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.collectives.spi.BufferOwner;

/**
 * The CPU backend in the shape of a GPU's: memory of its devices is an address that Java cannot
 * dereference, and only what {@link Device#allocateHost} gives can be read. It calls itself nccl
 * and says what a test wants it to say about libraries and abilities.
 */
final class OpaqueBackend implements Backend {

    /** What it says of the libraries behind it. */
    List<LoadedLibrary> libraries =
            List.of(
                    new LoadedLibrary("NCCL", "2.30.7", 23007, "/opt/double/libnccl.so.2"),
                    new LoadedLibrary(
                            "CUDA runtime", "13.0", 13000, "/opt/double/libcudart.so.13"));

    /** What is different from the CPU's abilities, besides host buffers. */
    UnaryOperator<Capabilities> abilities = all -> all;

    /** What its devices are called; null for names of their own. */
    String deviceName;

    /** Which native streams were asked for. */
    final List<Long> wrappedStreams = new CopyOnWriteArrayList<>();

    /** How many buffers were registered. */
    final AtomicInteger registered = new AtomicInteger();

    /** Registrations that are open. */
    final AtomicInteger openRegistrations = new AtomicInteger();

    /** With what configuration communicators were made. */
    volatile CommunicatorConfig config;

    /** Bytes of pinned memory that were allocated, and not yet closed. */
    final AtomicLong pinnedBytes = new AtomicLong();

    /** Streams that are open. */
    final AtomicInteger openStreams = new AtomicInteger();

    private final Backend real;
    private final Map<Integer, Device> devices = new ConcurrentHashMap<>();

    /** The real buffers behind addresses. */
    private final ConcurrentSkipListMap<Long, DeviceBuffer> memory = new ConcurrentSkipListMap<>();

    OpaqueBackend(Backend real) {
        this.real = real;
    }

    @Override
    public String name() {
        return "nccl";
    }

    @Override
    public Availability availability() {
        return new Availability.Available("a double of NCCL over the CPU backend");
    }

    @Override
    public Capabilities capabilities() {
        return abilities.apply(real.capabilities().withHostBuffers(false));
    }

    @Override
    public List<LoadedLibrary> libraries() {
        return libraries;
    }

    @Override
    public List<Device> devices() {
        return IntStream.range(0, real.devices().size()).mapToObj(this::device).toList();
    }

    @Override
    public int deviceLimit() {
        return real.deviceLimit();
    }

    @Override
    public Device device(int ordinal) {
        return devices.computeIfAbsent(ordinal, any -> new OpaqueDevice(real.device(ordinal)));
    }

    @Override
    public List<Communicator> createLocal(int ranks, CommunicatorConfig config) {
        this.config = config;
        return real.createLocal(ranks, config).stream().map(this::registering).toList();
    }

    @Override
    public UniqueId newUniqueId() {
        return real.newUniqueId();
    }

    @Override
    public Communicator create(Bootstrap bootstrap, int rank, int size, CommunicatorConfig config) {
        this.config = config;
        return registering(real.create(bootstrap, rank, size, config));
    }

    @Override
    public void group(Consumer<Group> body) {
        real.group(g -> body.accept(communicator -> opened(g.on(behind(communicator)))));
    }

    @Override
    public RecordedGroup record(Consumer<Group> body) {
        return real.record(g -> body.accept(communicator -> opened(g.on(behind(communicator)))));
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
        assertThat(openRegistrations).as("communicators close last").hasValue(0);
        real.closeAll(communicators.stream().map(OpaqueBackend::behind).toList());
    }

    @Override
    public Graph capture(List<DeviceStream> streams, Runnable body) {
        return real.capture(streams.stream().map(OpaqueBackend::opened).toList(), body);
    }

    @Override
    public void synchronizeAll(List<DeviceStream> streams, Duration timeout) {
        real.synchronizeAll(streams.stream().map(OpaqueBackend::opened).toList(), timeout);
    }

    /** The communicator, and one that registers buffers. */
    private Communicator registering(Communicator communicator) {
        return (Communicator)
                Proxy.newProxyInstance(
                        Communicator.class.getClassLoader(),
                        new Class<?>[] {Communicator.class},
                        new Registering(communicator));
    }

    private static Communicator behind(Communicator communicator) {
        return ((Registering) Proxy.getInvocationHandler(communicator)).real();
    }

    private final class Registering implements InvocationHandler {
        private final Communicator real;

        Registering(Communicator real) {
            this.real = real;
        }

        Communicator real() {
            return real;
        }

        @Override
        public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
            if (method.getName().equals("register")) {
                registered.incrementAndGet();
                openRegistrations.incrementAndGet();
                return (Registration) openRegistrations::decrementAndGet;
            }
            try {
                return method.invoke(real, arguments);
            } catch (InvocationTargetException thrown) {
                throw thrown.getCause();
            }
        }
    }

    /** Operations that take this backend's buffers and streams and call the real ones with them. */
    private Operations opened(Operations operations) {
        return (Operations)
                Proxy.newProxyInstance(
                        Operations.class.getClassLoader(),
                        new Class<?>[] {Operations.class},
                        (proxy, method, arguments) -> {
                            Object[] real = arguments.clone();
                            for (int i = 0; i < real.length; i++) {
                                real[i] =
                                        switch (real[i]) {
                                            case DeviceBuffer buffer -> opened(buffer);
                                            case DeviceStream stream -> opened(stream);
                                            case null -> null;
                                            default -> real[i];
                                        };
                            }
                            try {
                                return method.invoke(operations, real);
                            } catch (InvocationTargetException thrown) {
                                throw thrown.getCause();
                            }
                        });
    }

    private static DeviceStream opened(DeviceStream stream) {
        return ((OpaqueStream) stream).real;
    }

    /** The same range of the real memory. */
    private DeviceBuffer opened(DeviceBuffer buffer) {
        if (buffer.isHostAccessible() || buffer.sizeBytes() == 0) {
            return buffer;
        }
        Map.Entry<Long, DeviceBuffer> whole = memory.floorEntry(buffer.address());
        return whole.getValue().slice(buffer.address() - whole.getKey(), buffer.sizeBytes());
    }

    private final class OpaqueDevice implements Device {
        private final Device real;

        OpaqueDevice(Device real) {
            this.real = real;
        }

        @Override
        public int ordinal() {
            return real.ordinal();
        }

        @Override
        public String name() {
            return deviceName == null ? "Double " + real.ordinal() : deviceName;
        }

        @Override
        public String busId() {
            return "0000:%02x:00".formatted(real.ordinal() + 1);
        }

        @Override
        public Memory memory() {
            return real.memory();
        }

        @Override
        public DeviceBuffer allocate(long sizeBytes) {
            if (sizeBytes == 0) {
                return DeviceBuffer.EMPTY;
            }
            DeviceBuffer held = real.allocate(sizeBytes);
            // A GPU's memory holds what was there before.
            held.hostSegment().fill((byte) 0xa5);
            memory.put(held.address(), held);
            return DeviceBuffer.allocated(
                    this,
                    MemorySegment.ofAddress(held.address()),
                    sizeBytes,
                    new BufferOwner() {
                        @Override
                        public void release() {
                            memory.remove(held.address());
                            held.close();
                        }
                    });
        }

        @Override
        public DeviceBuffer allocateHost(long sizeBytes) {
            DeviceBuffer held = real.allocate(sizeBytes);
            pinnedBytes.addAndGet(sizeBytes);
            return DeviceBuffer.allocated(
                    this,
                    held.hostSegment(),
                    sizeBytes,
                    new BufferOwner() {
                        @Override
                        public void release() {
                            pinnedBytes.addAndGet(-sizeBytes);
                            held.close();
                        }
                    });
        }

        @Override
        public DeviceStream createStream() {
            openStreams.incrementAndGet();
            return new OpaqueStream(this, real.createStream());
        }

        @Override
        public DeviceStream wrapStream(long handle) {
            wrappedStreams.add(handle);
            return createStream();
        }

        @Override
        public DeviceEvent createEvent() {
            return real.createEvent();
        }
    }

    private final class OpaqueStream implements DeviceStream {
        private final Device device;
        private final DeviceStream real;

        OpaqueStream(Device device, DeviceStream real) {
            this.device = device;
            this.real = real;
        }

        @Override
        public Device device() {
            return device;
        }

        @Override
        public boolean poll() {
            return real.poll();
        }

        @Override
        public void synchronize(Duration timeout) {
            real.synchronize(timeout);
        }

        @Override
        public void record(DeviceEvent event) {
            real.record(event);
        }

        @Override
        public void waitFor(DeviceEvent event) {
            real.waitFor(event);
        }

        @Override
        public void copy(DeviceBuffer source, DeviceBuffer destination, long sizeBytes) {
            real.copy(opened(source), opened(destination), sizeBytes);
        }

        @Override
        public void fill(DeviceBuffer destination, byte value) {
            real.fill(opened(destination), value);
        }

        @Override
        public CompletionStage<Void> completion() {
            return real.completion();
        }

        @Override
        public void close() {
            openStreams.decrementAndGet();
            real.close();
        }
    }
}
