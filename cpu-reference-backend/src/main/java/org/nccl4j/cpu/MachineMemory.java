package org.nccl4j.cpu;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** How much memory this process can really get. Thread safety: stateless. */
final class MachineMemory {
    private static final Path ROOT = Path.of("/");

    private MachineMemory() {}

    /** Bytes that can still be used, by the kernel's and the container's accounts. */
    static long availableBytes() {
        return availableBytes(ROOT);
    }

    /** As {@link #availableBytes()} with the files below another root. */
    static long availableBytes(Path root) {
        long available = memAvailable(root);
        long limit = number(root, "sys/fs/cgroup/memory.max");
        long usage = number(root, "sys/fs/cgroup/memory.current");
        if (limit < 0 || usage < 0) {
            limit = number(root, "sys/fs/cgroup/memory/memory.limit_in_bytes");
            usage = number(root, "sys/fs/cgroup/memory/memory.usage_in_bytes");
        }
        if (limit >= 0 && usage >= 0) {
            available = Math.min(available, Math.max(0, limit - usage));
        }
        return available;
    }

    private static long memAvailable(Path root) {
        for (String line : lines(root, "proc/meminfo")) {
            if (line.startsWith("MemAvailable:")) {
                String[] words = line.split("\\s+");
                return Long.parseLong(words[1]) << 10;
            }
        }
        // Not Linux: what is free is the least that can be had.
        return ManagementFactory.getOperatingSystemMXBean()
                        instanceof com.sun.management.OperatingSystemMXBean system
                ? system.getFreeMemorySize()
                : Runtime.getRuntime().maxMemory();
    }

    /** A file that holds one number, or -1 if it is absent or says "max". */
    private static long number(Path root, String file) {
        List<String> lines = lines(root, file);
        if (lines.isEmpty() || !lines.getFirst().matches("\\d{1,18}")) {
            return -1;
        }
        return Long.parseLong(lines.getFirst());
    }

    private static List<String> lines(Path root, String file) {
        Path path = root.resolve(file);
        if (!Files.isReadable(path)) {
            return List.of();
        }
        try {
            return Files.readAllLines(path);
        } catch (IOException e) {
            // As good as absent: control files vanish with their group.
            return List.of();
        }
    }

    /** The processor's model, or the architecture where the system does not tell. */
    static String processorModel() {
        for (String line : lines(ROOT, "proc/cpuinfo")) {
            if (line.startsWith("model name")) {
                return line.substring(line.indexOf(':') + 1).strip();
            }
        }
        return System.getProperty("os.arch");
    }
}
