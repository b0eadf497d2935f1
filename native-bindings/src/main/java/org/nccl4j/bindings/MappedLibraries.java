package org.nccl4j.bindings;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** The libraries that are in this process, whoever loaded them. */
final class MappedLibraries {

    /** address, permissions, offset, device, inode, path */
    private static final Pattern MAPPING =
            Pattern.compile("\\S+ +\\S+ +\\S+ +\\S+ +\\S+ +(/.*?)(?: \\(deleted\\))?");

    private MappedLibraries() {}

    /**
     * The copies of a library beside the one that was loaded.
     *
     * @param maps {@code /proc/self/maps}
     * @param base its file name without a version, for example {@code libnccl.so}; NCCL's plug-ins,
     *     such as {@code libnccl-net.so}, are other libraries
     * @param loaded the copy that was loaded
     * @return their paths, none where the system has no such file
     */
    static List<String> otherCopies(Path maps, String base, String loaded) {
        try (Stream<String> lines = Files.lines(maps)) {
            return lines.map(MAPPING::matcher)
                    .filter(Matcher::matches)
                    .map(mapping -> mapping.group(1))
                    .distinct()
                    .filter(path -> isCopy(path, base) && !isSame(path, loaded))
                    .toList();
        } catch (IOException | java.io.UncheckedIOException e) {
            // Only a warning is lost; there is no /proc in some sandboxes.
            return List.of();
        }
    }

    private static boolean isCopy(String path, String base) {
        String name = path.substring(path.lastIndexOf('/') + 1);
        return name.equals(base) || name.startsWith(base + ".");
    }

    private static boolean isSame(String path, String loaded) {
        if (path.equals(loaded)) {
            return true;
        }
        try {
            return Files.isSameFile(Path.of(path), Path.of(loaded));
        } catch (IOException e) {
            // one of them is deleted or in another mount: then they are two
            return false;
        }
    }
}
