package org.nccl4j.bindings;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.util.List;

/**
 * A native library, loaded at the first need and never unloaded. Which file that is: the one that a
 * system property names, else the one that an environment variable names, else the one in the
 * folder that a property or a variable names for all libraries, else what the dynamic linker finds
 * by name, else one in a well-known folder. What somebody has named is taken or refused; no other
 * copy is tried instead.
 *
 * <p>Ask {@link #path} or {@link #has} before the generated functions: these look themselves up in
 * a static initialiser, and when that throws, their class is lost for the life of the JVM ({@link
 * ExceptionInInitializerError} with our exception as the cause, then {@link NoClassDefFoundError}).
 * The loader itself may be asked again: as long as there is no library, each call makes a new
 * attempt, so that a property set in between counts. Once loaded, a library stays.
 *
 * <p>Thread safety: all methods may be called from any thread, virtual ones too.
 */
public final class NativeLibrary {
    private static final System.Logger LOG = System.getLogger(NativeLibrary.class.getName());

    /** NCCL, 2.18 or newer. */
    public static final NativeLibrary NCCL = new NativeLibrary(LibraryKind.NCCL, Surroundings.REAL);

    /** The CUDA runtime, 12 or 13. */
    public static final NativeLibrary CUDA_RUNTIME =
            new NativeLibrary(LibraryKind.CUDA_RUNTIME, Surroundings.REAL);

    /** The CUDA driver's library; only its few functions that the runtime does not offer. */
    public static final NativeLibrary CUDA_DRIVER =
            new NativeLibrary(LibraryKind.CUDA_DRIVER, Surroundings.REAL);

    private final LibraryKind kind;
    private final Surroundings surroundings;
    private final Object loading = new Object();

    private volatile LibrarySearch.Loaded loaded;

    NativeLibrary(LibraryKind kind, Surroundings surroundings) {
        this.kind = kind;
        this.surroundings = surroundings;
    }

    /**
     * Its functions. Nothing is loaded before the first look-up.
     *
     * @return a look-up that throws {@link MissingFunctionException} for a function that the
     *     library lacks, and {@link LibraryNotLoadedException} if there is no library
     */
    public SymbolLookup symbols() {
        return function -> {
            LibrarySearch.Loaded library = load();
            return library.symbols()
                    .apply(function)
                    .or(() -> {
                        throw new MissingFunctionException(function, library.path());
                    });
        };
    }

    /**
     * Whether it has a function.
     *
     * @param function its name
     * @return false if the library is older than the function
     * @throws LibraryNotLoadedException if there is no library
     */
    public boolean has(String function) {
        return load().symbols().apply(function).isPresent();
    }

    /**
     * The file that was really loaded, with links followed.
     *
     * @return its path
     * @throws LibraryNotLoadedException if there is no library
     */
    public String path() {
        return load().path();
    }

    /**
     * Whether it is loaded. Loads nothing.
     *
     * @return false before the first look-up, and as long as none succeeded
     */
    public boolean isLoaded() {
        return loaded != null;
    }

    /**
     * The files that were tried before one was loaded, and that one.
     *
     * @return in the order of the attempts
     * @throws LibraryNotLoadedException if there is no library; it has the candidates
     */
    public List<LibraryCandidate> candidates() {
        return load().tried();
    }

    /**
     * The other copies of this library that are in the process at this moment, loaded by somebody
     * else. Two copies of NCCL do not know of each other's communicators and groups.
     *
     * @return their paths
     * @throws LibraryNotLoadedException if there is no library
     */
    public List<String> otherCopies() {
        String soname = kind.sonames.getFirst();
        return MappedLibraries.otherCopies(
                surroundings.folder("/proc/self/maps"),
                soname.substring(0, soname.lastIndexOf('.')),
                load().path());
    }

    /**
     * A function's handle, for classes that are written by hand.
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
     * Throws what a handle threw: a C function throws nothing, so it is unchecked, from the look-up
     * or from the check of an argument.
     *
     * @param thrown what the handle threw
     * @return never; for a {@code throw} that tells the compiler so
     */
    public static AssertionError undeclared(Throwable thrown) {
        switch (thrown) {
            case RuntimeException e -> throw e;
            case Error e -> throw e;
            default -> throw new AssertionError("a C function throws nothing", thrown);
        }
    }

    private LibrarySearch.Loaded load() {
        LibrarySearch.Loaded library = loaded;
        if (library != null) {
            return library;
        }
        synchronized (loading) {
            if (loaded != null) {
                return loaded;
            }
            library = new LibrarySearch(kind, surroundings).run();
            loaded = library;
        }
        LOG.log(System.Logger.Level.DEBUG, "loaded {0} from {1}", kind.title, library.path());
        if (kind == LibraryKind.NCCL) {
            warnOfOtherCopies(library);
        }
        return library;
    }

    /** Once, because a library is loaded once. */
    private void warnOfOtherCopies(LibrarySearch.Loaded library) {
        List<String> others = otherCopies();
        if (!others.isEmpty()) {
            LOG.log(
                    System.Logger.Level.WARNING,
                    "two copies of NCCL are in this process: nccl4j uses {0}, and somebody else has"
                            + " loaded {1}. A communicator of one is an invalid argument to the"
                            + " other. To use one copy, name it with -D{2}=FILE.",
                    library.path(),
                    String.join(", ", others),
                    kind.property());
        }
    }
}
