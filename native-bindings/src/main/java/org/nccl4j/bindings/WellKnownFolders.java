package org.nccl4j.bindings;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Where installers put the libraries, for when the dynamic linker does not find them by name.
 * Folders need not exist.
 */
final class WellKnownFolders {

    /** "3.9" before "3.13" is how text would sort them. */
    private static final Pattern PYTHON = Pattern.compile("python3(?:\\.(\\d+))?");

    private final Surroundings surroundings;
    private final Map<Path, String> folders = new LinkedHashMap<>();

    private WellKnownFolders(Surroundings surroundings) {
        this.surroundings = surroundings;
    }

    /**
     * The folders for a library, in the order in which they are tried.
     *
     * @return each folder with the word for whose it is
     */
    static Map<Path, String> of(LibraryKind kind, Surroundings surroundings) {
        WellKnownFolders known = new WellKnownFolders(surroundings);
        switch (kind) {
            case NCCL, CUDA_RUNTIME -> {
                known.toolkits();
                known.distribution();
                known.python(
                        kind == LibraryKind.NCCL
                                ? List.of("nccl")
                                : List.of("cu13", "cuda_runtime"));
            }
            // The toolkit has a stub of the driver and the compatibility packages another version:
            // neither may be found by chance. The driver is no pip package.
            case CUDA_DRIVER -> known.distribution();
        }
        return known.folders;
    }

    private void toolkits() {
        for (String name : List.of("CUDA_HOME", "CUDA_PATH")) {
            surroundings.variable(name).ifPresent(home -> toolkit(Path.of(home), "$" + name));
        }
        toolkit(surroundings.folder("/usr/local/cuda"), "CUDA toolkit");
    }

    private void toolkit(Path home, String source) {
        add(home.resolve("lib64"), source);
        add(home.resolve("lib"), source);
        for (String target : targets()) {
            add(home.resolve("targets", target, "lib"), source);
        }
    }

    private void distribution() {
        String multiarch = isArm() ? "aarch64-linux-gnu" : "x86_64-linux-gnu";
        for (String folder :
                List.of("/usr/lib/" + multiarch, "/lib/" + multiarch, "/usr/lib64", "/lib64")) {
            add(surroundings.folder(folder), "distribution");
        }
        add(surroundings.folder("/usr/lib"), "distribution");
        add(surroundings.folder("/usr/local/lib"), "distribution");
        // the driver that Windows lends to Linux
        add(surroundings.folder("/usr/lib/wsl/lib"), "WSL");
    }

    private void python(List<String> wheels) {
        surroundings
                .variable("VIRTUAL_ENV")
                .ifPresent(home -> packages(Path.of(home, "lib"), wheels, "pip, $VIRTUAL_ENV"));
        surroundings
                .variable("CONDA_PREFIX")
                .ifPresent(home -> {
                    add(Path.of(home, "lib"), "conda, $CONDA_PREFIX");
                    packages(Path.of(home, "lib"), wheels, "pip, $CONDA_PREFIX");
                });
        surroundings
                .variable("HOME")
                .ifPresent(
                        home -> packages(Path.of(home, ".local", "lib"), wheels, "pip, ~/.local"));
        packages(surroundings.folder("/usr/local/lib"), wheels, "pip");
        packages(surroundings.folder("/usr/lib"), wheels, "pip");
    }

    /** The wheels' folders below each Python of a library folder, the newest Python first. */
    private void packages(Path lib, List<String> wheels, String source) {
        for (Path python : pythons(lib)) {
            for (String packages : List.of("site-packages", "dist-packages")) {
                Path nvidia = python.resolve(packages, "nvidia");
                if (Files.isDirectory(nvidia)) {
                    for (String wheel : wheels) {
                        add(nvidia.resolve(wheel, "lib"), source);
                    }
                }
            }
        }
    }

    private static List<Path> pythons(Path lib) {
        List<Path> found = new ArrayList<>();
        try (DirectoryStream<Path> entries = Files.newDirectoryStream(lib, "python3*")) {
            for (Path entry : entries) {
                if (minor(entry).isPresent()) {
                    found.add(entry);
                }
            }
        } catch (IOException e) {
            // Not there, or not ours to read: the other folders remain, and a failure lists which.
            return List.of();
        }
        found.sort(Comparator.comparing((Path python) -> minor(python).orElseThrow()).reversed());
        return found;
    }

    /** A Python 3 folder's minor version; 0 for the versionless one of Debian's packages. */
    private static Optional<Integer> minor(Path python) {
        Matcher matcher = PYTHON.matcher(python.getFileName().toString());
        if (!matcher.matches()) {
            return Optional.empty();
        }
        return Optional.of(matcher.group(1) == null ? 0 : Integer.parseInt(matcher.group(1)));
    }

    private List<String> targets() {
        return isArm() ? List.of("sbsa-linux", "aarch64-linux") : List.of("x86_64-linux");
    }

    private boolean isArm() {
        return "aarch64".equals(surroundings.property("os.arch").orElse(""));
    }

    private void add(Path folder, String source) {
        folders.putIfAbsent(folder, source);
    }
}
