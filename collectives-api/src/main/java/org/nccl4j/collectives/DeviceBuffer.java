package org.nccl4j.collectives;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicBoolean;
import org.nccl4j.collectives.spi.BufferOwner;

/**
 * A range of device memory, held as an address that Java cannot dereference, or of host memory.
 * Make slices once and reuse them; operations allocate nothing.
 *
 * <p>A buffer that is written by enqueued work has undefined contents until the work is complete; a
 * buffer that is read must not change until then. Buffers stay reachable while work uses them.
 *
 * <p>Thread safety: immutable but for {@link #close}, which any thread may call once work that uses
 * the buffer has been enqueued.
 */
public final class DeviceBuffer implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger(DeviceBuffer.class.getName());

    private static final AtomicBoolean WARNED_OF_MAPPED = new AtomicBoolean();

    /** Owns no arena, so a segment that it may access is accessible to every thread. */
    private static final Thread ANY_THREAD =
            Thread.ofPlatform().inheritInheritableThreadLocals(false).unstarted(() -> {});

    /** No memory at all, for operations with count 0. Closing it does nothing. */
    public static final DeviceBuffer EMPTY =
            new DeviceBuffer(MemorySegment.NULL, 0, 0, null, false, false, null, null, null);

    private final MemorySegment segment;
    private final long address;
    private final long sizeBytes;
    private final Device device;
    private final boolean host;
    private final boolean mapped;
    private final BufferOwner owner;

    /** Never read: what the memory lives as long as. */
    @SuppressWarnings("UnusedVariable")
    private final Object source;

    private final DeviceBuffer root;
    private volatile boolean closed;

    private DeviceBuffer(
            MemorySegment segment,
            long address,
            long sizeBytes,
            Device device,
            boolean host,
            boolean mapped,
            BufferOwner owner,
            Object source,
            DeviceBuffer root) {
        this.segment = segment;
        this.address = address;
        this.sizeBytes = sizeBytes;
        this.device = device;
        this.host = host;
        this.mapped = mapped;
        this.owner = owner;
        this.source = source;
        this.root = root == null ? this : root;
    }

    /**
     * Host memory that others own. The segment's scope stays in force: closing its arena while work
     * runs fails the communicator, never the JVM.
     *
     * @param memory a native segment of a global, automatic or shared arena
     * @return a buffer whose {@link #close} frees nothing
     * @throws InvalidArgumentException for heap segments, confined and closed arenas, with advice
     */
    public static DeviceBuffer wrap(MemorySegment memory) {
        if (memory == null) {
            throw new InvalidArgumentException(
                    "cannot wrap null; DeviceBuffer.EMPTY stands for no memory");
        }
        if (!memory.isNative()) {
            throw new InvalidArgumentException(
                    "a heap segment cannot be used by asynchronous work: the garbage collector may"
                            + " move it; copy it to a segment of Arena.ofAuto() or"
                            + " Arena.ofShared() and wrap that");
        }
        // It would throw WrongThreadException in the thread that moves the data.
        if (!memory.isAccessibleBy(ANY_THREAD)) {
            throw new InvalidArgumentException(
                    "a segment of a confined arena cannot be used by other threads, and"
                            + " asynchronous work runs on them; allocate it from Arena.ofAuto(),"
                            + " Arena.ofShared() or Arena.global()");
        }
        if (!memory.scope().isAlive()) {
            throw new InvalidArgumentException(
                    "the arena of this segment of " + memory.byteSize() + " bytes is closed");
        }
        MemorySegment uniform = uniform(memory);
        return new DeviceBuffer(
                uniform,
                uniform.address(),
                uniform.byteSize(),
                null,
                true,
                memory.isMapped(),
                null,
                null,
                null);
    }

    /**
     * Host memory of a direct buffer, from its position to its limit.
     *
     * @param memory a direct byte buffer; it stays reachable through the result
     * @return a buffer whose {@link #close} frees nothing
     * @throws InvalidArgumentException for a heap buffer or a view of a confined or closed arena,
     *     with advice
     */
    public static DeviceBuffer wrap(ByteBuffer memory) {
        if (memory == null) {
            throw new InvalidArgumentException(
                    "cannot wrap null; DeviceBuffer.EMPTY stands for no memory");
        }
        if (!memory.isDirect()) {
            throw new InvalidArgumentException(
                    "a heap ByteBuffer cannot be used by asynchronous work; use ByteBuffer.allocateDirect("
                            + memory.remaining()
                            + ")");
        }
        return wrap(MemorySegment.ofBuffer(memory));
    }

    /**
     * Device memory that others own, such as a pointer of JCuda, JavaCPP, TornadoVM or DJL. It must
     * stay allocated until work that uses it is complete; where a garbage collection may free it,
     * use {@link #wrap(Device, long, long, Object)}.
     *
     * @param device the device that holds it
     * @param address the device address
     * @param sizeBytes how much may be used from there
     * @return a buffer whose {@link #close} frees nothing
     * @throws InvalidArgumentException if the size is negative, the address null, or the range
     *     beyond the end of memory
     */
    public static DeviceBuffer wrap(Device device, long address, long sizeBytes) {
        return wrap(device, address, sizeBytes, null);
    }

    /**
     * Device memory that lives as long as a Java object, such as a tensor which frees its memory
     * when it is collected. The buffer and its parts keep that object reachable; keep one of them
     * yourself until work that uses it is complete.
     *
     * @param device the device that holds it
     * @param address the device address
     * @param sizeBytes how much may be used from there
     * @param source what owns the memory, or null if nothing of Java does
     * @return a buffer whose {@link #close} frees nothing
     * @throws InvalidArgumentException if the size is negative, the address null, or the range
     *     beyond the end of memory
     */
    public static DeviceBuffer wrap(Device device, long address, long sizeBytes, Object source) {
        if (device == null) {
            throw new InvalidArgumentException(
                    "an address needs the device that it belongs to, got null; for host memory wrap"
                            + " a MemorySegment");
        }
        if (sizeBytes < 0
                || (address == 0 && sizeBytes > 0)
                || Long.compareUnsigned(address + sizeBytes, address) < 0) {
            throw new InvalidArgumentException(
                    "not a device range: address 0x"
                            + Long.toHexString(address)
                            + ", "
                            + sizeBytes
                            + " bytes");
        }
        return new DeviceBuffer(
                MemorySegment.ofAddress(address),
                address,
                sizeBytes,
                device,
                false,
                false,
                null,
                source,
                null);
    }

    /**
     * For backends: memory that a device has just allocated.
     *
     * @param device the device
     * @param memory host memory as a native segment of its size; a GPU's address as a segment of
     *     size 0
     * @param sizeBytes the size, more than 0
     * @param owner frees it
     * @return the buffer
     */
    public static DeviceBuffer allocated(
            Device device, MemorySegment memory, long sizeBytes, BufferOwner owner) {
        boolean dereferenceable = memory.byteSize() == sizeBytes;
        MemorySegment held = dereferenceable ? uniform(memory) : memory;
        return new DeviceBuffer(
                held, held.address(), sizeBytes, device, dereferenceable, false, owner, null, null);
    }

    /**
     * A part of this buffer. It shares the memory, its owner and its end: it becomes unusable when
     * the whole is closed, and closing the part does nothing.
     *
     * @param offsetBytes where the part starts
     * @param partBytes its size
     * @return the part
     * @throws InvalidArgumentException if the part is not within this buffer or the buffer is
     *     closed
     */
    public DeviceBuffer slice(long offsetBytes, long partBytes) {
        if (isClosed()) {
            throw new InvalidArgumentException(
                    this + " is closed, or its arena is; slice it before");
        }
        if (offsetBytes < 0 || partBytes < 0 || offsetBytes > sizeBytes - partBytes) {
            throw new InvalidArgumentException(
                    "slice ["
                            + offsetBytes
                            + ", +"
                            + partBytes
                            + ") is not within "
                            + this
                            + "; offset and size are bytes");
        }
        MemorySegment part =
                host
                        ? segment.asSlice(offsetBytes, partBytes)
                        : MemorySegment.ofAddress(address + offsetBytes);
        return new DeviceBuffer(
                part, address + offsetBytes, partBytes, device, host, mapped, owner, null, root);
    }

    /**
     * The first byte's address, host or device.
     *
     * @return the address
     */
    public long address() {
        return address;
    }

    /**
     * The size in bytes.
     *
     * @return 0 or more
     */
    public long sizeBytes() {
        return sizeBytes;
    }

    /**
     * The device whose memory this is.
     *
     * @return the device, or null for host memory that no device allocated
     */
    public Device device() {
        return device;
    }

    /**
     * Whether {@link #hostSegment()} works.
     *
     * @return true for host memory and for memory of CPU devices
     */
    public boolean isHostAccessible() {
        return host;
    }

    /**
     * Whether it must not be written.
     *
     * @return true for read-only host segments and buffers
     */
    public boolean isReadOnly() {
        return segment.isReadOnly();
    }

    /**
     * The memory, for reading and writing by Java.
     *
     * @return a native segment of the buffer's size
     * @throws InvalidArgumentException if it is device memory or closed
     */
    public MemorySegment hostSegment() {
        if (!host && sizeBytes > 0) {
            throw new InvalidArgumentException(
                    this
                            + " is device memory, which Java cannot read; copy it to host memory"
                            + " with DeviceStream.copy");
        }
        if (isClosed()) {
            throw new InvalidArgumentException(this + " is closed, or its arena is; use it before");
        }
        return segment;
    }

    /**
     * Whether it has been closed, itself or the whole that it is a part of, or its arena has.
     *
     * @return true if operations refuse it
     */
    public boolean isClosed() {
        return root.closed || !segment.scope().isAlive();
    }

    /**
     * For backends: whether the memory is a file's, so that to touch it may take as long as to read
     * the file.
     *
     * @return true for a mapped segment, and parts of it
     */
    public boolean isMapped() {
        return mapped;
    }

    /**
     * For backends: who frees the memory and counts its use by work in flight.
     *
     * @return the owner of the whole, the same for every part, or null if others own the memory
     */
    public BufferOwner owner() {
        return owner;
    }

    /**
     * Gives the memory back. Never waits and never synchronises a device: memory that unfinished
     * work may use is released when the streams have passed that work. Closing twice, a part or
     * {@link #EMPTY} does nothing.
     */
    @Override
    public void close() {
        if (root != this || this == EMPTY) {
            return;
        }
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
        }
        if (owner != null) {
            owner.release();
        }
    }

    @Override
    public String toString() {
        if (this == EMPTY) {
            return "EMPTY";
        }
        String place = device == null ? "host" : "device " + device.ordinal();
        return "buffer["
                + place
                + ", 0x"
                + Long.toHexString(address)
                + ", "
                + sizeBytes
                + " bytes]";
    }

    /**
     * The same memory and scope as a segment of the one class that kernels shall see: loops that
     * have met mapped and plain native segments run many times slower.
     */
    @SuppressWarnings("restricted")
    private static MemorySegment uniform(MemorySegment memory) {
        if (!memory.isMapped()) {
            return memory;
        }
        if (!DeviceBuffer.class.getModule().isNativeAccessEnabled()) {
            if (WARNED_OF_MAPPED.compareAndSet(false, true)) {
                Module module = DeviceBuffer.class.getModule();
                LOG.log(
                        System.Logger.Level.WARNING,
                        "mapped segments stay mapped, and operations on them and later ones may be"
                                + " slow, because this JVM runs without --enable-native-access={0}",
                        module.isNamed() ? module.getName() : "ALL-UNNAMED");
            }
            return memory;
        }
        return memory.reinterpret(memory.byteSize());
    }
}
