package org.nccl4j.bindings;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Collectors;

/** One attempt to load a library: the order of the candidates, and the words when none will do. */
final class LibrarySearch {
    private static final String FOLDER_PROPERTY = "nccl4j.library.path";
    private static final String FOLDER_VARIABLE = "NCCL4J_LIBRARY_PATH";

    private final LibraryKind kind;
    private final Surroundings surroundings;
    private final List<LibraryCandidate> tried = new ArrayList<>();
    private final List<String> notSet = new ArrayList<>();

    private DynamicLinker linker;

    /**
     * A library in this process.
     *
     * @param symbols the address of a function, empty if it has none of that name
     * @param path the file, with links followed
     * @param tried what was tried, it being the last
     */
    record Loaded(
            Function<String, Optional<MemorySegment>> symbols,
            String path,
            List<LibraryCandidate> tried) {}

    /** What somebody has named: it wins or fails, no other copy is tried. */
    private record Choice(String source, String value) {}

    LibrarySearch(LibraryKind kind, Surroundings surroundings) {
        this.kind = kind;
        this.surroundings = surroundings;
    }

    /**
     * Loads the library.
     *
     * @throws LibraryNotLoadedException if there is none that works
     */
    Loaded run() {
        String system = surroundings.property("os.name").orElse("");
        if (!system.equals("Linux")) {
            throw new LibraryNotLoadedException(
                    kind.title
                            + " cannot be loaded: it runs on Linux (x86-64 and arm64) and this is "
                            + system
                            + " "
                            + surroundings.property("os.arch").orElse("")
                            + "; the CPU backend runs here",
                    "",
                    List.of(),
                    null);
        }
        try {
            linker = new DynamicLinker();
        } catch (IllegalCallerException e) {
            throw new LibraryNotLoadedException(
                    kind.title + " cannot be loaded: " + e.getMessage(), "", List.of(), e);
        }
        Optional<Choice> file = choice(kind.property(), kind.variable());
        if (file.isPresent()) {
            return chosenFile(file.get());
        }
        Optional<Choice> folder = choice(FOLDER_PROPERTY, FOLDER_VARIABLE);
        if (folder.isPresent()) {
            return chosenFolder(folder.get());
        }
        return found();
    }

    private Optional<Choice> choice(String property, String variable) {
        Optional<Choice> byProperty =
                surroundings
                        .property(property)
                        .map(value -> new Choice("system property " + property, value));
        if (byProperty.isPresent()) {
            return byProperty;
        }
        notSet.add("-D" + property);
        Optional<Choice> byVariable =
                surroundings
                        .variable(variable)
                        .map(value -> new Choice("environment variable " + variable, value));
        if (byVariable.isEmpty()) {
            notSet.add(variable);
        }
        return byVariable;
    }

    private Loaded chosenFile(Choice choice) {
        Path file = path(choice);
        return tryFile(choice.source(), file.toString())
                .orElseThrow(
                        () -> refusal(choice, "the file " + file, tried.getFirst().outcome(), ""));
    }

    private Loaded chosenFolder(Choice choice) {
        Path folder = path(choice);
        for (String soname : kind.sonames) {
            Optional<Loaded> loaded = tryFile(choice.source(), folder.resolve(soname).toString());
            if (loaded.isPresent()) {
                return loaded.get();
            }
        }
        throw refusal(
                choice,
                "the folder " + folder,
                folderOutcome(folder),
                ", put the library or a link to it into that folder, or name its file with -D"
                        + kind.property()
                        + "=FILE or "
                        + kind.variable()
                        + "=FILE");
    }

    /** The linker says of all of these that there is no such file. */
    private String folderOutcome(Path folder) {
        if (Files.notExists(folder)) {
            return "there is no such folder";
        }
        if (Files.isRegularFile(folder)) {
            return "it is a file and no folder";
        }
        if (kind.sonames.stream()
                .allMatch(soname ->
                        Files.notExists(folder.resolve(soname), LinkOption.NOFOLLOW_LINKS))) {
            return "it has no " + String.join(" or ", kind.sonames);
        }
        return tried.getFirst().outcome();
    }

    /** Absolute, because the linker looks elsewhere for a name without a slash. */
    private Path path(Choice choice) {
        try {
            return Path.of(choice.value()).toAbsolutePath();
        } catch (InvalidPathException e) {
            throw new LibraryNotLoadedException(
                    kind.title
                            + " cannot be loaded: "
                            + choice.source()
                            + " names no path: "
                            + e.getMessage(),
                    "",
                    List.of(),
                    e);
        }
    }

    private Loaded found() {
        for (String soname : kind.sonames) {
            Optional<Loaded> loaded = tryFile("dynamic linker's search", soname);
            if (loaded.isPresent()) {
                return loaded.get();
            }
        }
        for (Map.Entry<Path, String> folder : WellKnownFolders.of(kind, surroundings).entrySet()) {
            for (String soname : kind.sonames) {
                Optional<Loaded> loaded =
                        tryFile(folder.getValue(), folder.getKey().resolve(soname).toString());
                if (loaded.isPresent()) {
                    return loaded.get();
                }
            }
        }
        throw refusal();
    }

    private Optional<Loaded> tryFile(String source, String file) {
        Optional<String> obstacle =
                file.contains("/") ? ElfFile.obstacle(Path.of(file)) : Optional.empty();
        if (obstacle.isPresent()) {
            tried.add(new LibraryCandidate(source, file, obstacle.get()));
            return Optional.empty();
        }
        return switch (linker.open(file)) {
            case DynamicLinker.Refused refused -> {
                tried.add(new LibraryCandidate(source, file, words(file, refused.reason())));
                yield Optional.empty();
            }
            case DynamicLinker.Opened opened -> {
                if (linker.find(opened.handle(), kind.marker).isEmpty()) {
                    tried.add(
                            new LibraryCandidate(
                                    source,
                                    file,
                                    "is not "
                                            + kind.title
                                            + ": it has no function "
                                            + kind.marker));
                    yield Optional.empty();
                }
                tried.add(new LibraryCandidate(source, file, "loaded"));
                yield Optional.of(
                        new Loaded(
                                function -> linker.find(opened.handle(), function),
                                realPath(opened.path()),
                                List.copyOf(tried)));
            }
        };
    }

    /**
     * The linker's reason. It starts with the file that it is about, and when that is another one,
     * it is one that the candidate needs.
     */
    private String words(String file, String reason) {
        int colon = reason.indexOf(": ");
        String about = colon < 0 ? "" : reason.substring(0, colon);
        if (about.equals(file)) {
            return reason.substring(colon + 2) + otherMachine(file, reason);
        }
        String name = file.substring(file.lastIndexOf('/') + 1);
        return about.isEmpty() || about.contains(" ") || about.endsWith("/" + name)
                ? reason
                : "it needs " + reason;
    }

    /** glibc says of a file that is built for another machine that there is no such file. */
    private String otherMachine(String file, String reason) {
        if (!reason.endsWith("No such file or directory") || !file.contains("/")) {
            return "";
        }
        String here = surroundings.property("os.arch").orElse("");
        return ElfFile.machine(Path.of(file))
                .filter(machine -> !machine.equals(here))
                .map(machine -> " (it is there, but built for " + machine + ", not " + here + ")")
                .orElse("");
    }

    private static String realPath(String path) {
        try {
            return Path.of(path).toRealPath().toString();
        } catch (IOException e) {
            // deleted since, or in another mount: the linker's own name is the best there is
            return path;
        }
    }

    private LibraryNotLoadedException refusal(
            Choice choice, String named, String outcome, String more) {
        return new LibraryNotLoadedException(
                kind.title
                        + " cannot be loaded from "
                        + named
                        + ", which "
                        + choice.source()
                        + " names: "
                        + outcome,
                (tried.size() == 1 ? "" : lines(tried))
                        + "No other copy is tried, because this one was asked for. Correct or unset"
                        + " the "
                        + choice.source()
                        + more
                        + ".",
                tried,
                null);
    }

    private LibraryNotLoadedException refusal() {
        List<LibraryCandidate> absent = new ArrayList<>();
        List<LibraryCandidate> broken = new ArrayList<>();
        for (LibraryCandidate candidate : tried) {
            boolean isFile = candidate.file().contains("/");
            (isFile && !Files.exists(Path.of(candidate.file())) ? absent : broken).add(candidate);
        }
        return new LibraryNotLoadedException(
                kind.title
                        + " cannot be loaded: "
                        + String.join(" or ", kind.sonames)
                        + " works in none of "
                        + tried.size()
                        + " places",
                "Not set: "
                        + String.join(", ", notSet)
                        + "\n"
                        + lines(broken)
                        + (absent.isEmpty()
                                ? ""
                                : "No such file:\n"
                                        + absent.stream()
                                                .map(c ->
                                                        "  " + c.file() + " (" + c.source() + ")\n")
                                                .collect(Collectors.joining()))
                        + kind.advice
                        + ", or name a file with -D"
                        + kind.property()
                        + "=FILE or "
                        + kind.variable()
                        + "=FILE, or a folder that has all libraries with -D"
                        + FOLDER_PROPERTY
                        + "=FOLDER or "
                        + FOLDER_VARIABLE
                        + "=FOLDER.",
                tried,
                null);
    }

    private static String lines(List<LibraryCandidate> candidates) {
        return candidates.stream()
                .map(c -> "  " + c.file() + " (" + c.source() + "): " + c.outcome() + "\n")
                .collect(Collectors.joining());
    }
}
