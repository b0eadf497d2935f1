package org.nccl4j.collectives;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.ServiceConfigurationError;
import java.util.ServiceLoader;
import java.util.stream.Collectors;

/**
 * Finds backends on the module or class path.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
public final class Backends {
    private static final System.Logger LOG = System.getLogger(Backends.class.getName());

    /** In order of preference. */
    private static final List<String> PREFERRED = List.of("nccl", "cpu");

    private Backends() {}

    /**
     * All backends that are installed, usable or not, in no particular order. One that cannot even
     * be constructed is logged and left out.
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
        return named(name, installed());
    }

    /**
     * NCCL when it loads and sees a GPU, else the CPU; one log line says which and why, and at
     * level DEBUG what to do to have the other.
     *
     * @return an available backend
     * @throws LibraryUnavailableException if none is available, with the reasons of each
     */
    public static Backend preferred() {
        return preferred(installed(), LOG);
    }

    static Backend named(String name, List<Backend> backends) {
        for (Backend backend : backends) {
            if (backend.name().equals(name)) {
                if (backend.availability() instanceof Availability.Unavailable no) {
                    throw new LibraryUnavailableException(
                            "backend '"
                                    + name
                                    + "' is not available here:\n  "
                                    + String.join("\n  ", no.reasons()));
                }
                return backend;
            }
        }
        throw new LibraryUnavailableException(
                "no backend '"
                        + name
                        + "' is installed; found "
                        + backends.stream().map(Backend::name).sorted().toList()
                        + "; add its jar to the module or class path");
    }

    static Backend preferred(List<Backend> backends, System.Logger log) {
        List<String> refusals = new ArrayList<>();
        List<String> obstacles = new ArrayList<>();
        for (String name : PREFERRED) {
            for (Backend backend : backends) {
                if (!backend.name().equals(name)) {
                    continue;
                }
                switch (backend.availability()) {
                    case Availability.Available yes -> {
                        log.log(
                                System.Logger.Level.INFO,
                                "nccl4j uses backend {0}: {1}{2}",
                                name,
                                yes.summary(),
                                obstacles.isEmpty()
                                        ? ""
                                        : " (not " + String.join("; not ", obstacles) + ")");
                        for (String refusal : refusals) {
                            log.log(System.Logger.Level.DEBUG, "backend not taken, {0}", refusal);
                        }
                        return backend;
                    }
                    case Availability.Unavailable no -> {
                        refusals.add(name + ": " + String.join("; ", no.reasons()));
                        obstacles.add(name + ": " + withoutRemedies(no.reasons()));
                    }
                }
            }
        }
        throw new LibraryUnavailableException(
                refusals.isEmpty()
                        ? "no backend is installed; add a backend's jar, such as that of"
                                + " nccl4j-cpu-reference-backend, to the module or class path"
                        // The last one needs the least: it lacks only a setting of its own.
                        : "no backend is available: " + String.join("\n  ", refusals.reversed()));
    }

    /** A reason ends with what to do, which is for those who miss the backend. */
    private static String withoutRemedies(List<String> reasons) {
        return reasons.stream()
                .map(reason -> reason.split("; |\\. |\\R", 2)[0])
                .collect(Collectors.joining("; "));
    }

    static List<Backend> load(Iterator<Backend> found, System.Logger log) {
        List<Backend> backends = new ArrayList<>();
        boolean more = true;
        while (more) {
            // One broken jar must not take the others along.
            try {
                more = found.hasNext();
                if (more) {
                    backends.add(found.next());
                }
            } catch (ServiceConfigurationError e) {
                log.log(
                        System.Logger.Level.ERROR,
                        "a backend cannot be constructed and is left out: " + e.getMessage(),
                        e);
            }
        }
        return List.copyOf(backends);
    }

    /** Loaded on first use, so that asking for a data type does not load native libraries. */
    private static final class Installed {
        static final List<Backend> BACKENDS =
                load(
                        ServiceLoader.load(Backend.class, Backend.class.getClassLoader())
                                .iterator(),
                        LOG);
    }
}
