package org.nccl4j.cpu;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;

/**
 * The few calls of the operating system that there are: some give huge pages, which make large
 * memory cheap to touch, others say and choose on which core a thread runs. Where they cannot be
 * made (another system, no native access) memory comes from the arena itself, and threads run where
 * they do.
 *
 * <p>Thread safety: stateless.
 */
final class PosixCalls {
    private static final System.Logger LOG = System.getLogger(PosixCalls.class.getName());

    /** Linux on x86-64 and arm64. */
    private static final int PROT_READ_WRITE = 0x1 | 0x2;

    private static final int MAP_PRIVATE_ANONYMOUS = 0x02 | 0x20;
    private static final int MADV_HUGEPAGE = 14;
    private static final int MADV_POPULATE_WRITE = 23;
    private static final long HUGE_PAGE_BYTES = 2 << 20;
    static final long PAGE_BYTES = 4 << 10;

    /** The largest that Linux has as its plain one on any processor. Whole ones are unmapped. */
    private static final long LARGEST_PAGE_BYTES = 64 << 10;

    private PosixCalls() {}

    /** The functions, looked up on first use. */
    private static final class MemoryFunctions {
        static final MethodHandle MMAP;
        static final MethodHandle MUNMAP;
        static final MethodHandle MADVISE;
        static final boolean AVAILABLE;

        static {
            MethodHandle mmap = null;
            MethodHandle munmap = null;
            MethodHandle madvise = null;
            String reason = whyNone();
            if (reason == null) {
                mmap =
                        function(
                                "mmap",
                                FunctionDescriptor.of(
                                        ADDRESS, ADDRESS, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_INT,
                                        JAVA_LONG));
                munmap = function("munmap", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG));
                madvise =
                        function(
                                "madvise",
                                FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT));
            }
            MMAP = mmap;
            MUNMAP = munmap;
            MADVISE = madvise;
            AVAILABLE = mmap != null && munmap != null && madvise != null;
            if (!AVAILABLE) {
                LOG.log(
                        System.Logger.Level.DEBUG,
                        "large buffers do without huge pages: {0}",
                        reason == null ? "the C library lacks mmap, munmap or madvise" : reason);
            }
        }
    }

    /** Those about threads; of use only where the system does not wake threads on idle cores. */
    private static final class ThreadFunctions {
        private static final Path CACHES = Path.of("/sys/devices/system/cpu/cpu0/cache/index0");

        static final MethodHandle GETTID;
        static final MethodHandle GETCPU;
        static final MethodHandle GETAFFINITY;
        static final MethodHandle SETAFFINITY;
        static final boolean AVAILABLE;

        static {
            MethodHandle gettid = null;
            MethodHandle getcpu = null;
            MethodHandle getaffinity = null;
            MethodHandle setaffinity = null;
            String reason = whyNone();
            if (reason == null && Files.exists(CACHES)) {
                reason = "it knows which cores share a cache and wakes them well by itself";
            }
            if (reason == null) {
                FunctionDescriptor get = FunctionDescriptor.of(JAVA_INT);
                FunctionDescriptor affinity =
                        FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_LONG, ADDRESS);
                try {
                    gettid = function("gettid", get);
                    getcpu = function("sched_getcpu", get);
                    getaffinity = function("sched_getaffinity", affinity);
                    setaffinity = function("sched_setaffinity", affinity);
                } catch (RuntimeException | LinkageError | OutOfMemoryError e) {
                    // It must not be for this that there are no workers.
                    reason = e.toString();
                }
            }
            GETTID = gettid;
            GETCPU = getcpu;
            GETAFFINITY = getaffinity;
            SETAFFINITY = setaffinity;
            AVAILABLE =
                    gettid != null && getcpu != null && getaffinity != null && setaffinity != null;
            if (!AVAILABLE) {
                LOG.log(
                        System.Logger.Level.DEBUG,
                        "workers wake where the system lets them: {0}",
                        reason == null ? "the C library lacks a function for it" : reason);
            }
        }
    }

    @SuppressWarnings("restricted")
    private static MethodHandle function(String name, FunctionDescriptor descriptor) {
        Linker linker = Linker.nativeLinker();
        return linker.defaultLookup()
                .find(name)
                .map(address -> linker.downcallHandle(address, descriptor))
                .orElse(null);
    }

    /** Why no function can be called here; null if they can. */
    private static String whyNone() {
        if (!PosixCalls.class.getModule().isNativeAccessEnabled()) {
            return "native access is not enabled for module org.nccl4j.cpu";
        }
        String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        String machine = System.getProperty("os.arch");
        boolean isLinux64 =
                system.equals("linux") && (machine.equals("amd64") || machine.equals("aarch64"));
        return isLinux64 ? null : "this is not a 64-bit Linux";
    }

    /** The system's number of the calling thread; -1 if it is of no use. */
    static int currentThread() {
        return ThreadFunctions.AVAILABLE ? number(ThreadFunctions.GETTID) : -1;
    }

    /** The number of the core that the calling thread runs on; -1 if it is of no use. */
    static int currentCore() {
        return ThreadFunctions.AVAILABLE ? number(ThreadFunctions.GETCPU) : -1;
    }

    private static int number(MethodHandle get) {
        try {
            return (int) get.invokeExact();
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    /**
     * Asks which cores a thread may use.
     *
     * @param thread its number
     * @param cores what to fill, a bit for each core
     * @return false if it is not known
     */
    static boolean allowedCores(int thread, MemorySegment cores) {
        return ThreadFunctions.AVAILABLE && call(ThreadFunctions.GETAFFINITY, thread, cores) >= 0;
    }

    /**
     * Chooses which cores a thread may use. If it runs on another it is moved at once.
     *
     * @return false if the system refuses
     */
    static boolean allowCores(int thread, MemorySegment cores) {
        return ThreadFunctions.AVAILABLE && call(ThreadFunctions.SETAFFINITY, thread, cores) >= 0;
    }

    private static int call(MethodHandle affinity, int thread, MemorySegment cores) {
        try {
            return (int) affinity.invokeExact(thread, cores.byteSize(), cores);
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    /** For what the compiler believes may be thrown, and what may really be. */
    private static IllegalStateException unexpected(Throwable thrown) {
        switch (thrown) {
            case RuntimeException e -> throw e;
            case Error e -> throw e;
            default ->
                    throw new IllegalStateException("functions of C declare no exceptions", thrown);
        }
    }

    /**
     * Zeroed memory that lives as long as an arena, touched by this thread.
     *
     * @param startBytes where it begins, counted from the start of a page
     * @throws OutOfMemoryError if there is not enough
     */
    static MemorySegment allocate(Arena arena, long startBytes, long sizeBytes) {
        if (sizeBytes < HUGE_PAGE_BYTES || !MemoryFunctions.AVAILABLE) {
            return arena.allocate(startBytes + sizeBytes, PAGE_BYTES).asSlice(startBytes);
        }
        try {
            return map(arena, startBytes, sizeBytes);
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    @SuppressWarnings("restricted")
    private static MemorySegment map(Arena arena, long startBytes, long sizeBytes)
            throws Throwable {
        // What reaches beyond the last huge page is not worth another one.
        long keptBytes =
                Math.max(
                        roundUp(sizeBytes, HUGE_PAGE_BYTES),
                        roundUp(startBytes + sizeBytes, LARGEST_PAGE_BYTES));
        // A huge page more, so that there is a place within where one can start.
        long mappedBytes = keptBytes + HUGE_PAGE_BYTES;
        MemorySegment mapped =
                (MemorySegment)
                        MemoryFunctions.MMAP.invokeExact(
                                MemorySegment.NULL,
                                mappedBytes,
                                PROT_READ_WRITE,
                                MAP_PRIVATE_ANONYMOUS,
                                -1,
                                0L);
        if (mapped.address() == -1) {
            throw new OutOfMemoryError(
                    "mmap of " + mappedBytes + " bytes failed; ask for less or free memory first");
        }
        long start = roundUp(mapped.address(), HUGE_PAGE_BYTES);
        unmap(mapped.address(), start - mapped.address());
        unmap(start + keptBytes, mapped.address() + mappedBytes - start - keptBytes);
        MemorySegment kept =
                MemorySegment.ofAddress(start)
                        .reinterpret(keptBytes, arena, ignored -> unmapAll(start, keptBytes));
        // A refusal costs speed only, and so does every answer of a kernel that does not know it.
        int huge = (int) MemoryFunctions.MADVISE.invokeExact(kept, keptBytes, MADV_HUGEPAGE);
        int touched =
                (int) MemoryFunctions.MADVISE.invokeExact(kept, keptBytes, MADV_POPULATE_WRITE);
        if (touched != 0) {
            kept.fill((byte) 0);
        }
        if (huge != 0) {
            LOG.log(System.Logger.Level.DEBUG, "this kernel gives no huge pages");
        }
        return kept.asSlice(startBytes, sizeBytes);
    }

    private static void unmapAll(long address, long sizeBytes) {
        try {
            unmap(address, sizeBytes);
        } catch (Throwable e) {
            throw unexpected(e);
        }
    }

    private static void unmap(long address, long sizeBytes) throws Throwable {
        if (sizeBytes == 0) {
            return;
        }
        int answer =
                (int)
                        MemoryFunctions.MUNMAP.invokeExact(
                                MemorySegment.ofAddress(address), sizeBytes);
        if (answer != 0) {
            throw new IllegalStateException(
                    "munmap of "
                            + sizeBytes
                            + " bytes at 0x"
                            + Long.toHexString(address)
                            + " failed");
        }
    }

    private static long roundUp(long value, long multiple) {
        return (value + multiple - 1) / multiple * multiple;
    }
}
