package org.nccl4j.bindings;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * A native library, loaded at the first need and never unloaded.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
public final class NativeLibrary {
    /** NCCL, 2.18 or newer. */
    public static final NativeLibrary NCCL = new NativeLibrary("libnccl.so.2");

    /** The CUDA runtime, 12 or 13. */
    public static final NativeLibrary CUDA_RUNTIME =
            new NativeLibrary("libcudart.so.13", "libcudart.so.12");

    /** The CUDA driver's library; only its few functions that the runtime does not offer. */
    public static final NativeLibrary CUDA_DRIVER = new NativeLibrary("libcuda.so.1");

    private final List<String> names;
    private volatile Loaded loaded;

    private record Loaded(String path, SymbolLookup symbols) {}

    private NativeLibrary(String... names) {
        this.names = List.of(names);
    }

    /**
     * Its functions. Nothing is loaded before the first look-up.
     *
     * @return a look-up that throws {@link MissingFunctionException} for a function that the
     *     library lacks, and {@link LibraryNotLoadedException} if there is no library
     */
    public SymbolLookup symbols() {
        return name ->
                load().symbols()
                        .find(name)
                        .or(() -> {
                            throw new MissingFunctionException(
                                    name + " is not in " + load().path());
                        });
    }

    /**
     * Whether it has a function.
     *
     * @param function its name
     * @return false if the library is older than the function
     * @throws LibraryNotLoadedException if there is no library
     */
    public boolean has(String function) {
        return load().symbols().find(function).isPresent();
    }

    /**
     * The file that was really loaded.
     *
     * @return its path
     * @throws LibraryNotLoadedException if there is no library
     */
    public String path() {
        return load().path();
    }

    /**
     * The handle of a function, for the classes that are written by hand.
     *
     * @param function its name
     * @param descriptor its parameters and result
     * @return its handle
     * @throws MissingFunctionException if the library does not have it
     * @throws LibraryNotLoadedException if there is no library
     */
    public MethodHandle function(String function, FunctionDescriptor descriptor) {
        return Linker.nativeLinker().downcallHandle(symbols().findOrThrow(function), descriptor);
    }

    /**
     * What to throw when a handle threw. A C function throws nothing; the loader and the checks of
     * arguments throw unchecked exceptions only.
     *
     * @param thrown what the handle threw
     * @return never
     */
    public static AssertionError undeclared(Throwable thrown) {
        switch (thrown) {
            case RuntimeException e -> throw e;
            case Error e -> throw e;
            default -> throw new AssertionError("a C function throws nothing", thrown);
        }
    }

    private synchronized Loaded load() {
        if (loaded == null) {
            String folder =
                    System.getProperty("nccl4j.library.path", System.getenv("NCCL4J_LIBRARY_PATH"));
            for (String name : names) {
                Path file = Path.of(folder == null ? "" : folder, name);
                try {
                    loaded =
                            new Loaded(
                                    file.toString(),
                                    Files.exists(file)
                                            ? SymbolLookup.libraryLookup(file, Arena.global())
                                            : SymbolLookup.libraryLookup(name, Arena.global()));
                    return loaded;
                } catch (IllegalArgumentException e) {
                    // the next name
                    continue;
                }
            }
            throw new LibraryNotLoadedException("none of " + names + " can be loaded");
        }
        return loaded;
    }
}
