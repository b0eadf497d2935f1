package org.nccl4j.nccl;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.UnsupportedException;

/**
 * A GPU, with what its streams share: events, pinned memory for staging, a pool for stream-ordered
 * memory. These are made at the first need and given back when the device's last stream is closed,
 * so that a program that closes everything leaves nothing behind.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class NcclDevice implements Device {
    /** An allocation takes microseconds, or milliseconds when the pool must grow. */
    private static final long MEMORY_NANOS = TimeUnit.SECONDS.toNanos(20);

    private final int ordinal;
    private final int count;
    private final String name;
    private final String busId;
    private final int computeCapability;
    private final boolean hasPools;
    private final boolean takesRegisteredPointers;
    private final EventPool events = new EventPool(this);
    private final Staging staging = new Staging(this);
    private final Reaper reaper = new Reaper(this);

    /** Those that are open or have work. */
    private final Set<NcclStream> streams = ConcurrentHashMap.newKeySet();

    // ---- guarded by this

    /** Open streams, and those who use for a moment what streams share. */
    private int retained;

    private long sideStream;
    private long memoryStream;
    private volatile long pool;

    // ----

    /** Its primary context once it has been needed; made under a lock of its own. */
    private volatile long context;

    private final Object contextLock = new Object();

    private NcclDevice(int ordinal, int count) {
        this.ordinal = ordinal;
        this.count = count;
        this.computeCapability =
                10 * CudaRuntime.deviceAttribute(CudaRuntime.COMPUTE_CAPABILITY_MAJOR, ordinal)
                        + CudaRuntime.deviceAttribute(
                                CudaRuntime.COMPUTE_CAPABILITY_MINOR, ordinal);
        this.hasPools =
                CudaRuntime.deviceAttribute(CudaRuntime.MEMORY_POOLS_SUPPORTED, ordinal) != 0;
        this.takesRegisteredPointers =
                CudaRuntime.deviceAttribute(
                                CudaRuntime.TAKES_POINTERS_OF_REGISTERED_MEMORY, ordinal)
                        != 0;
        String product = DriverContext.deviceName(ordinal);
        this.name =
                product == null
                        ? "GPU of compute capability "
                                + computeCapability / 10
                                + "."
                                + computeCapability % 10
                        : product;
        this.busId = busId(CudaRuntime.pciBusId(ordinal));
    }

    /** The devices of this process, in CUDA's order. */
    static List<NcclDevice> all(int count) {
        List<NcclDevice> devices = new ArrayList<>();
        for (int ordinal = 0; ordinal < count; ordinal++) {
            devices.add(new NcclDevice(ordinal, count));
        }
        return List.copyOf(devices);
    }

    /** CUDA's PCI address without the function: {@code 00000000:3B:00.0} is 0000:3b:00. */
    static String busId(String cudaBusId) {
        String address = cudaBusId.toLowerCase(Locale.ROOT);
        int function = address.indexOf('.');
        if (function >= 0) {
            address = address.substring(0, function);
        }
        int domainDigits = address.indexOf(':');
        return domainDigits > 4 ? address.substring(domainDigits - 4) : address;
    }

    // ---- for the rest of the backend

    /** Ten times the major number, plus the minor one. */
    int computeCapability() {
        return computeCapability;
    }

    EventPool events() {
        return events;
    }

    Staging staging() {
        return staging;
    }

    Reaper reaper() {
        return reaper;
    }

    /**
     * Its primary context, where the driver's library is known. It is kept from the first need to
     * the end of the process, as the runtime keeps it.
     */
    long context() {
        long known = context;
        if (known != 0) {
            return known;
        }
        synchronized (contextLock) {
            if (context == 0) {
                context = DriverContext.retainPrimary(ordinal);
            }
            return context;
        }
    }

    /** Calls something with this device as the current one, on a platform thread. */
    <T> T call(Supplier<T> body) {
        return PlatformThread.call(() -> {
            long before = CurrentDevice.enter(this);
            try {
                return body.get();
            } finally {
                CurrentDevice.leave(before);
            }
        });
    }

    /** As {@link #call}. */
    void run(Runnable body) {
        Object nothing =
                call(() -> {
                    body.run();
                    return null;
                });
        assert nothing == null;
    }

    /**
     * Makes a call that gives something back. Who closes something cannot help it if that fails,
     * and where a context is lost all of it is.
     */
    void giveBack(Runnable call) {
        PlatformThread.run(() ->
                CudaRuntime.giveBack(() -> {
                    long before = CurrentDevice.visit(this);
                    try {
                        call.run();
                    } finally {
                        CurrentDevice.leave(before);
                    }
                }));
    }

    private void keep(NcclStream stream) {
        streams.add(stream);
    }

    /** A stream is closed and has no work any more. */
    void drop(NcclStream stream) {
        streams.remove(stream);
    }

    /**
     * Whether nothing of ours is under way: -1 if something is, else a number that is another one
     * after more has been. On a device whose context is lost nothing is.
     */
    long quiet() {
        long tickets = 0;
        for (NcclStream stream : streams) {
            if (!stream.isIdle()) {
                return -1;
            }
            tickets += stream.issued();
        }
        return tickets;
    }

    /** What streams and memory share is needed from now on; {@link #release} must follow. */
    synchronized void retain() {
        retained++;
    }

    synchronized boolean isRetained() {
        return retained > 0;
    }

    /** Gives back what is shared if nobody needs it any more. */
    synchronized void release() {
        retained--;
        if (retained > 0) {
            return;
        }
        String doing = "giving back what the streams of " + this + " shared";
        events.drain();
        staging.drain();
        long side = sideStream;
        long ofMemory = memoryStream;
        long unused = pool;
        sideStream = 0;
        memoryStream = 0;
        pool = 0;
        if (side != 0) {
            // CUDA does what is left in it first.
            giveBack(() -> CudaRuntime.destroyStream(side, doing));
        }
        if (ofMemory != 0) {
            giveBack(() -> CudaRuntime.destroyStream(ofMemory, doing));
        }
        if (unused != 0) {
            giveBack(() -> CudaRuntime.destroyPool(unused, doing));
        }
    }

    /** A stream of our own, for what another device's streams do here; while retained. */
    synchronized long sideStream() {
        if (sideStream == 0) {
            sideStream = call(() -> CudaRuntime.createStream("making a stream of " + this));
        }
        return sideStream;
    }

    /** A stream of our own, of allocations alone, so that it never waits; while retained. */
    private synchronized long memoryStream() {
        if (memoryStream == 0) {
            memoryStream = call(() -> CudaRuntime.createStream("making a stream of " + this));
        }
        return memoryStream;
    }

    /** The pool of stream-ordered memory; while retained. */
    private synchronized long pool() {
        if (pool == 0) {
            int[] peers = new int[count];
            int reaching = 0;
            for (int peer = 0; peer < count; peer++) {
                if (peer != ordinal && CudaRuntime.canAccessPeer(peer, ordinal)) {
                    peers[reaching++] = peer;
                }
            }
            int[] devices = Arrays.copyOf(peers, reaching);
            pool = call(() -> CudaRuntime.createPool(ordinal, devices));
        }
        return pool;
    }

    /** Whether memory can be had without waiting for the device. */
    boolean hasPools() {
        return hasPools;
    }

    /** Whether it knows registered host memory by the same address as the host. */
    boolean takesRegisteredPointers() {
        return takesRegisteredPointers;
    }

    /**
     * Memory of the pool in a stream's order; while retained, and current.
     *
     * @return 0 if there is not so much
     */
    long allocateFromPool(long sizeBytes, long stream, String doing) {
        long memoryPool = pool();
        long address = CudaRuntime.mallocFromPool(sizeBytes, memoryPool, stream, doing);
        if (address == 0) {
            reaper.hurry();
            CudaRuntime.trimPool(memoryPool, doing);
            address = CudaRuntime.mallocFromPool(sizeBytes, memoryPool, stream, doing);
        }
        return address;
    }

    /** Gives memory back to the pool that no stream needs any more; while retained. */
    void freeToPool(long address, String doing) {
        // Its lock comes first: nothing may wait while the device is entered.
        long stream = memoryStream();
        long before = CurrentDevice.visit(this);
        try {
            CudaRuntime.freeAsync(address, stream, doing);
        } catch (CollectiveException e) {
            if (!CudaRuntime.isLoss(e)) {
                throw e;
            }
            // No stream of a lost device takes anything; this may.
            CudaRuntime.giveBack(() -> CudaRuntime.free(address, doing));
        } finally {
            CurrentDevice.leave(before);
        }
    }

    InvalidArgumentException outOfMemory(String what, long sizeBytes) {
        Memory memory = memory();
        long waitingBytes = reaper.waitingBytes();
        return new InvalidArgumentException(
                "cannot allocate "
                        + sizeBytes
                        + " bytes of "
                        + what
                        + " on "
                        + this
                        + ": "
                        + memory.freeBytes()
                        + " of "
                        + memory.totalBytes()
                        + " bytes of device memory are free"
                        + (waitingBytes == 0
                                ? ""
                                : ", and "
                                        + waitingBytes
                                        + " bytes of closed buffers wait for the device to finish"
                                        + " its work")
                        + "; nothing has changed, close buffers or use smaller ones");
    }

    static void requireSize(long sizeBytes) {
        if (sizeBytes < 0) {
            throw new InvalidArgumentException(
                    "cannot allocate " + sizeBytes + " bytes; the size must be at least 0");
        }
    }

    // ---- Device

    @Override
    public int ordinal() {
        return ordinal;
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public String busId() {
        return busId;
    }

    /** What the pool holds in reserve counts as free. */
    @Override
    public Memory memory() {
        String doing = "asking for the memory of " + this;
        return call(() -> {
            Memory memory = CudaRuntime.memory(doing);
            long memoryPool = pool;
            long reserveBytes = memoryPool == 0 ? 0 : CudaRuntime.poolReserve(memoryPool, doing);
            return new Memory(
                    Math.min(memory.totalBytes(), memory.freeBytes() + reserveBytes),
                    memory.totalBytes());
        });
    }

    /**
     * Memory of the pool, because {@code cudaMalloc} waits for the device, on which an operation
     * may wait for the caller. Where there are no pools there is no choice.
     */
    @Override
    public DeviceBuffer allocate(long sizeBytes) {
        requireSize(sizeBytes);
        if (sizeBytes == 0) {
            return DeviceBuffer.EMPTY;
        }
        String doing = "allocating " + sizeBytes + " bytes on " + this;
        return hasPools ? allocateFromPool(sizeBytes, doing) : allocateDirectly(sizeBytes, doing);
    }

    private DeviceBuffer allocateFromPool(long sizeBytes, String doing) {
        retain();
        long address = 0;
        boolean usable = false;
        try {
            long stream = memoryStream();
            address = call(() -> allocateFromPool(sizeBytes, stream, doing));
            if (address == 0) {
                throw outOfMemory("device memory", sizeBytes);
            }
            // From here on every stream may use it.
            awaitMemory(stream, doing);
            usable = true;
        } finally {
            if (!usable) {
                long unused = address;
                if (unused != 0) {
                    CudaRuntime.giveBack(() -> freeToPool(unused, doing));
                }
                release();
            }
        }
        return NcclMemory.pooled(this, address, sizeBytes, null);
    }

    /**
     * Until the stream of allocations has come to the last one. Nothing holds it up: the pool does
     * not order an allocation behind work of other streams.
     */
    private void awaitMemory(long stream, String doing) {
        Waiting.Outcome outcome =
                Waiting.untilUninterruptibly(
                        () -> isPassed(stream, doing), System.nanoTime(), MEMORY_NANOS);
        if (outcome != Waiting.Outcome.OVER) {
            throw new CollectiveTimeoutException(
                    doing
                            + ": "
                            + this
                            + " has not come to it within "
                            + TimeUnit.NANOSECONDS.toSeconds(MEMORY_NANOS)
                            + " s, on a stream that has allocations only: the driver holds it up;"
                            + " look at nvidia-smi and dmesg (Xid); nothing was allocated",
                    false);
        }
    }

    private boolean isPassed(long stream, String doing) {
        long before = CurrentDevice.visit(this);
        try {
            return CudaRuntime.streamQuery(stream, doing);
        } finally {
            CurrentDevice.leave(before);
        }
    }

    private DeviceBuffer allocateDirectly(long sizeBytes, String doing) {
        long address = call(() -> CudaRuntime.malloc(sizeBytes, doing));
        if (address == 0) {
            reaper.hurry();
            address = call(() -> CudaRuntime.malloc(sizeBytes, doing));
        }
        if (address == 0) {
            throw outOfMemory("device memory", sizeBytes);
        }
        return NcclMemory.direct(this, address, sizeBytes);
    }

    @Override
    public DeviceBuffer allocateHost(long sizeBytes) {
        requireSize(sizeBytes);
        if (sizeBytes == 0) {
            return DeviceBuffer.EMPTY;
        }
        PinnedMemory memory = PinnedMemory.allocate(this, sizeBytes);
        if (memory == null) {
            reaper.hurry();
            memory = PinnedMemory.allocate(this, sizeBytes);
        }
        if (memory == null) {
            throw outOfMemory("pinned memory", sizeBytes);
        }
        return NcclMemory.pinned(this, memory, sizeBytes);
    }

    @Override
    public NcclStream createStream() {
        retain();
        long address = 0;
        NcclStream stream = null;
        try {
            // Later, when the device has work, it might wait for that.
            staging.prepare();
            address = call(() -> CudaRuntime.createStream("making a stream of " + this));
            stream = new NcclStream(this, address, false);
        } finally {
            if (stream == null) {
                long unused = address;
                if (unused != 0) {
                    giveBack(() ->
                            CudaRuntime.destroyStream(unused, "giving back a stream of " + this));
                }
                release();
            }
        }
        keep(stream);
        return stream;
    }

    @Override
    public NcclStream wrapStream(long handle) {
        if (handle == CudaRuntime.PER_THREAD_STREAM) {
            throw new UnsupportedException(
                    "cudaStreamPerThread (2) cannot be wrapped: it is another stream on each OS"
                            + " thread, and work of a communicator is issued and watched by several;"
                            + " make a stream with createStream() or cudaStreamCreate");
        }
        if (handle != 0 && handle != CudaRuntime.LEGACY_STREAM) {
            DriverContext.requireStreamOf(handle, ordinal, count);
            requireStreamOfThis(handle);
        }
        retain();
        NcclStream stream = null;
        try {
            stream = new NcclStream(this, handle, true);
        } finally {
            if (stream == null) {
                release();
            }
        }
        keep(stream);
        return stream;
    }

    /** For where the driver's library is missing. */
    private void requireStreamOfThis(long handle) {
        int device =
                DriverContext.isKnown()
                        ? ordinal
                        : CudaRuntime.deviceOfStream(handle, "wrapping a stream of " + this);
        if (device >= 0 && device != ordinal) {
            throw new InvalidArgumentException(
                    "0x"
                            + Long.toHexString(handle)
                            + " cannot be wrapped as a stream of device "
                            + ordinal
                            + ": it is a stream of device "
                            + device
                            + "; wrap it with that device; nothing has changed");
        }
    }

    @Override
    public NcclEvent createEvent() {
        return new NcclEvent();
    }

    @Override
    public String toString() {
        return "device " + ordinal + " (" + name + ")";
    }
}
