package org.nccl4j.collectives;

import java.util.ArrayList;
import java.util.List;
import java.util.ServiceLoader;

/**
 * Finds backends on the module or class path. Thread safety: all methods may be called from any
 * thread.
 */
public final class Backends {
    private static final System.Logger LOG = System.getLogger(Backends.class.getName());

    private Backends() {}

    /**
     * All backends that are installed, usable or not, in no particular order.
     *
     * @return one instance each, the same at every call
     */
    public static List<Backend> installed() {
        return Installed.BACKENDS;
    }

    /**
     * A backend by name.
     *
     * @param name its {@link Backend#name}
     * @return the backend, which is available
     * @throws LibraryUnavailableException if it is not installed or not available, with the reasons
     */
    public static Backend named(String name) {
        List<String> names = new ArrayList<>();
        for (Backend backend : installed()) {
            if (backend.name().equals(name)) {
                if (backend.availability() instanceof Availability.Unavailable no) {
                    throw new LibraryUnavailableException(
                            "backend '"
                                    + name
                                    + "' is not available here: "
                                    + String.join("; ", no.reasons()));
                }
                return backend;
            }
            names.add(backend.name());
        }
        throw new LibraryUnavailableException(
                "no backend '"
                        + name
                        + "' is installed; found "
                        + names
                        + "; add its jar to the module or class path");
    }

    /**
     * NCCL when it loads and sees a GPU, else the CPU; one log line says which and why.
     *
     * @return an available backend
     * @throws LibraryUnavailableException if none is available, with the reasons of each
     */
    public static Backend preferred() {
        List<String> refusals = new ArrayList<>();
        for (String name : List.of("nccl", "cpu")) {
            for (Backend backend : installed()) {
                if (!backend.name().equals(name)) {
                    continue;
                }
                switch (backend.availability()) {
                    case Availability.Available yes -> {
                        LOG.log(
                                System.Logger.Level.INFO,
                                "nccl4j uses backend {0}: {1}{2}",
                                name,
                                yes.summary(),
                                refusals.isEmpty() ? "" : " (" + String.join("; ", refusals) + ")");
                        return backend;
                    }
                    case Availability.Unavailable no ->
                            refusals.add(name + ": " + String.join("; ", no.reasons()));
                }
            }
        }
        throw new LibraryUnavailableException(
                "no backend is available: "
                        + (refusals.isEmpty() ? "none is installed" : String.join("; ", refusals)));
    }

    /** Loaded on first use, so that asking for a data type does not load native libraries. */
    private static final class Installed {
        static final List<Backend> BACKENDS =
                ServiceLoader.load(Backend.class, Backend.class.getClassLoader()).stream()
                        .map(ServiceLoader.Provider::get)
                        .toList();
    }
}
