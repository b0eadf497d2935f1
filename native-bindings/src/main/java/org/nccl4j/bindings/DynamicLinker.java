package org.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/**
 * The system's dynamic linker. {@link java.lang.foreign.SymbolLookup#libraryLookup} would do if it
 * did not keep {@code dlerror}'s words, and the path that was found, to itself.
 *
 * <p>Nothing is ever closed: NCCL has threads and exit handlers of its own.
 *
 * <p>Thread safety: all methods may be called from any thread, virtual ones too.
 */
final class DynamicLinker {
    private static final int RTLD_LOCAL = 0;
    private static final int RTLD_NOW = 2;
    private static final int RTLD_DI_LINKMAP = 2;

    private final MethodHandle dlopen;
    private final MethodHandle dlerror;
    private final MethodHandle dlsym;
    private final MethodHandle dlinfo;

    /** What became of {@code dlopen}. */
    sealed interface Outcome {}

    /**
     * It is loaded.
     *
     * @param handle what {@code dlsym} takes
     * @param path where the linker has found it
     */
    record Opened(MemorySegment handle, String path) implements Outcome {}

    /**
     * It is not.
     *
     * @param reason what {@code dlerror} says
     */
    record Refused(String reason) implements Outcome {}

    /**
     * Binds the linker's functions.
     *
     * @throws IllegalCallerException naming the missing flag, if native access is denied
     */
    DynamicLinker() {
        dlopen =
                SystemFunctions.handle("dlopen", FunctionDescriptor.of(ADDRESS, ADDRESS, JAVA_INT));
        dlerror = SystemFunctions.handle("dlerror", FunctionDescriptor.of(ADDRESS));
        dlsym = SystemFunctions.handle("dlsym", FunctionDescriptor.of(ADDRESS, ADDRESS, ADDRESS));
        dlinfo =
                SystemFunctions.handle(
                        "dlinfo", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT, ADDRESS));
    }

    /** Loads a library, or says why not. */
    Outcome open(String file) {
        // dlerror is kept per OS thread, and a virtual thread may change its own between two calls.
        return onPlatformThread(() -> {
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment handle =
                        (MemorySegment)
                                dlopen.invokeExact(arena.allocateFrom(file), RTLD_NOW | RTLD_LOCAL);
                return handle.equals(MemorySegment.NULL)
                        ? new Refused(lastError())
                        : new Opened(handle, pathOf(handle, arena));
            } catch (Throwable e) {
                throw NativeLibrary.undeclared(e);
            }
        });
    }

    /** The address of a function in a library or in what it needs. */
    Optional<MemorySegment> find(MemorySegment handle, String function) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment address =
                    (MemorySegment) dlsym.invokeExact(handle, arena.allocateFrom(function));
            return address.equals(MemorySegment.NULL) ? Optional.empty() : Optional.of(address);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    /** The second member of {@code struct link_map}, the name under which the file was opened. */
    private String pathOf(MemorySegment handle, Arena arena) throws Throwable {
        MemorySegment cell = arena.allocate(ADDRESS);
        int code = (int) dlinfo.invokeExact(handle, RTLD_DI_LINKMAP, cell);
        if (code != 0) {
            throw new IllegalStateException("dlinfo cannot name a loaded library: " + lastError());
        }

        MemorySegment map = cell.get(ADDRESS, 0).reinterpret(2 * ADDRESS.byteSize());
        return string(map.get(ADDRESS, ADDRESS.byteSize()));
    }

    private String lastError() throws Throwable {
        MemorySegment text = (MemorySegment) dlerror.invokeExact();
        return text.equals(MemorySegment.NULL) ? "no reason given" : string(text);
    }

    private static String string(MemorySegment characters) {
        return characters.reinterpret(Long.MAX_VALUE).getString(0);
    }

    private static <T> T onPlatformThread(Supplier<T> call) {
        if (!Thread.currentThread().isVirtual()) {
            return call.get();
        }
        // join() goes on waiting when it is interrupted, and leaves the interrupt set.
        return CompletableFuture.supplyAsync(
                        call, task -> Thread.ofPlatform().name("nccl4j-dlopen").start(task))
                .join();
    }
}
