package org.nccl4j.hardware;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * What tests order from the emulator, and what it tells them: faults, misuse, what lives, who was
 * called. The interface is at the end of {@code emulator/machine.h}.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
@SuppressWarnings("restricted")
final class EmulatorControls {
    /** What is counted as it is made and released. */
    static final List<String> LIVE_KINDS =
            List.of(
                    "device bytes",
                    "device allocations",
                    "pinned allocations",
                    "streams",
                    "events",
                    "communicators",
                    "graphs",
                    "reduction operators");

    private static final int MISUSE_TEXT_BYTES = 1 << 16;

    private final MethodHandle inject;
    private final MethodHandle misuse;
    private final MethodHandle live;
    private final MethodHandle calls;
    private final MethodHandle forget;

    /** Of the libraries that the bindings of this JVM load. */
    EmulatorControls(EmulatorLibraries libraries) {
        // The functions are in a library that the CUDA runtime depends on; a second look at the
        // runtime's file is the same library to the system's loader.
        SymbolLookup symbols = SymbolLookup.libraryLookup(libraries.cudaRuntime(), Arena.global());
        inject = function(symbols, "inject", FunctionDescriptor.of(JAVA_INT, ADDRESS));
        misuse = function(symbols, "misuse", FunctionDescriptor.of(JAVA_INT, ADDRESS, JAVA_INT));
        live = function(symbols, "live", FunctionDescriptor.of(JAVA_LONG, ADDRESS));
        calls = function(symbols, "calls", FunctionDescriptor.of(JAVA_LONG, ADDRESS));
        forget = function(symbols, "forget", FunctionDescriptor.ofVoid());
    }

    private static MethodHandle function(
            SymbolLookup symbols, String name, FunctionDescriptor type) {
        return Linker.nativeLinker()
                .downcallHandle(symbols.findOrThrow("nccl4j_emulator_" + name), type);
    }

    private interface NativeCall<T> {
        T call(Arena arena) throws Throwable;
    }

    private static <T> T call(NativeCall<T> call) {
        try (Arena arena = Arena.ofConfined()) {
            return call.call(arena);
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("a downcall throws nothing of its own", e);
        }
    }

    /**
     * Orders faults.
     *
     * @param faults such as {@code "ncclAllReduce:2=code:3;cudaMalloc=delay:100"}
     */
    void inject(String faults) {
        int position = call(arena -> (int) inject.invokeExact(arena.allocateFrom(faults)));
        if (position != 0) {
            throw new IllegalArgumentException(
                    "the emulator does not understand '"
                            + faults
                            + "' from position "
                            + position
                            + " on; see nccl4j_emulator_inject in machine.h");
        }
    }

    /** What has been done wrong since {@link #forget}, in the emulator's words. */
    List<String> misuse() {
        return call(arena -> {
            MemorySegment text = arena.allocate(MISUSE_TEXT_BYTES);
            int lines = (int) misuse.invokeExact(text, MISUSE_TEXT_BYTES);
            if (lines == 0) {
                return List.of();
            }
            text.set(JAVA_BYTE, MISUSE_TEXT_BYTES - 1L, (byte) 0);
            return text.getString(0).lines().toList();
        });
    }

    /** How many of a kind live; a kind that the emulator does not know is an error of the test. */
    long live(String kind) {
        long count = call(arena -> (long) live.invokeExact(arena.allocateFrom(kind)));
        if (count < 0) {
            throw new IllegalArgumentException("the emulator does not count '" + kind + "'");
        }
        return count;
    }

    /** All that lives, by kind. */
    Map<String, Long> live() {
        Map<String, Long> counts = new TreeMap<>();
        LIVE_KINDS.forEach(kind -> counts.put(kind, live(kind)));
        return counts;
    }

    /** How often a function has been called since {@link #forget}. */
    long calls(String function) {
        return call(arena -> (long) calls.invokeExact(arena.allocateFrom(function)));
    }

    /** Forgets misuse, faults and counts of calls. */
    void forget() {
        call(arena -> {
            forget.invokeExact();
            return null;
        });
    }
}
