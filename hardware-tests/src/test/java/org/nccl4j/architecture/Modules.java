package org.nccl4j.architecture;

import static java.util.stream.Collectors.joining;

import java.io.IOException;
import java.io.InputStream;
import java.lang.module.ModuleDescriptor;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;

/** The built modules of this tree, and the arrows that their descriptors may draw. */
final class Modules {

    private static final String PREFIX = "org.nccl4j.";

    /** The modules of nccl4j that each one may require; a new module is entered here first. */
    static final Map<String, Set<String>> ARROWS =
            Map.of(
                    "org.nccl4j.collectives", Set.of(),
                    "org.nccl4j.contract", Set.of("org.nccl4j.collectives"),
                    "org.nccl4j.cpu", Set.of("org.nccl4j.collectives"),
                    "org.nccl4j.bindings", Set.of(),
                    "org.nccl4j.nccl", Set.of("org.nccl4j.bindings", "org.nccl4j.collectives"),
                    // Of a backend, what takes other libraries' memory.
                    "org.nccl4j.examples", Set.of("org.nccl4j.collectives", "org.nccl4j.nccl"),
                    "org.nccl4j.bench", Set.of("org.nccl4j.collectives"));

    private Modules() {}

    /** The folders of this tree that hold a module. */
    static List<Path> folders() throws IOException {
        Path root = Path.of("..").toAbsolutePath().normalize();
        try (Stream<Path> children = Files.list(root)) {
            return children.filter(child -> Files.isRegularFile(child.resolve("pom.xml")))
                    .sorted()
                    .toList();
        }
    }

    /** Of the modules that have main sources; hardware-tests has none. */
    static List<Path> mainClasses() throws IOException {
        return folders().stream()
                .filter(folder -> Files.isDirectory(folder.resolve("src/main/java")))
                .map(folder -> folder.resolve("target/classes"))
                .toList();
    }

    static List<Path> testClasses() throws IOException {
        return folders().stream()
                .map(folder -> folder.resolve("target/test-classes"))
                .filter(Files::isDirectory)
                .toList();
    }

    static List<ModuleDescriptor> descriptors() throws IOException {
        List<ModuleDescriptor> descriptors = new ArrayList<>();
        for (Path classes : mainClasses()) {
            Path descriptor = classes.resolve("module-info.class");
            if (!Files.isRegularFile(descriptor)) {
                throw new AssertionError(
                        descriptor
                                + " does not exist: each module has a module-info, and this test"
                                + " needs all modules compiled (./mvnw verify in the root folder)");
            }
            try (InputStream in = Files.newInputStream(descriptor)) {
                descriptors.add(ModuleDescriptor.read(in));
            }
        }
        return descriptors;
    }

    /** One line for each arrow that {@link #ARROWS} does not allow. */
    static List<String> forbiddenArrows(ModuleDescriptor module) {
        Set<String> allowed = ARROWS.get(module.name());
        if (allowed == null) {
            return List.of(module.name() + " has no entry in the table of arrows");
        }
        return module.requires().stream()
                .map(ModuleDescriptor.Requires::name)
                .filter(required -> required.startsWith(PREFIX))
                .filter(required -> !allowed.contains(required))
                .sorted()
                .map(required ->
                        module.name()
                                + " requires "
                                + required
                                + " and may require only "
                                + new TreeSet<>(allowed))
                .toList();
    }

    /** One line for each export of a package that has "internal" in its name. */
    static List<String> exportedInternals(ModuleDescriptor module) {
        return module.exports().stream()
                .filter(export -> export.source().contains("internal"))
                .map(export ->
                        module.name()
                                + " exports "
                                + export.source()
                                + export.targets().stream()
                                        .sorted()
                                        .collect(joining(", ", " to [", "]")))
                .toList();
    }
}
