package org.nccl4j.bench;

import java.io.File;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The command in a JVM of its own, with what is on this JVM's paths. */
final class BenchProcess {

    private BenchProcess() {}

    /**
     * A process that is to be started.
     *
     * @param prefix what runs the JVM; empty if nothing does
     * @param arguments the command's
     */
    static ProcessBuilder of(List<String> prefix, List<String> arguments) {
        List<String> command = new ArrayList<>(prefix);
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(
                List.of(
                        "--enable-native-access=ALL-UNNAMED",
                        "-XX:-UsePerfData",
                        "-cp",
                        classPath(),
                        Bench.class.getName()));
        command.addAll(arguments);
        return new ProcessBuilder(command);
    }

    /** Everything on the class path, whatever is on the module path of this JVM. */
    private static String classPath() {
        return Stream.of("jdk.module.path", "java.class.path")
                .map(System::getProperty)
                .filter(path -> path != null && !path.isEmpty())
                .collect(Collectors.joining(File.pathSeparator));
    }
}
