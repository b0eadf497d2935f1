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
        return Math.min(
                memAvailable(root),
                Math.min(
                        leftInGroups(root, "", "sys/fs/cgroup", CgroupFiles.V2),
                        leftInGroups(root, "memory", "sys/fs/cgroup/memory", CgroupFiles.V1)));
    }

    /**
     * Where a version of control groups keeps its accounts.
     *
     * @param inactive the line of memory.stat with the page cache that the kernel would rather drop
     *     than refuse memory; usage includes it
     */
    private record CgroupFiles(String limit, String usage, String inactive) {
        static final CgroupFiles V2 =
                new CgroupFiles("memory.max", "memory.current", "inactive_file");
        static final CgroupFiles V1 =
                new CgroupFiles(
                        "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
    }

    /** The least that this process's control group and those around it leave. */
    private static long leftInGroups(
            Path root, String controller, String mount, CgroupFiles files) {
        Path top = root.resolve(mount);
        Path group = top.resolve(ownGroup(root, controller)).normalize();
        if (!group.startsWith(top)) {
            // In a namespace whose root is not ours; what is mounted is all that can be seen.
            group = top;
        }
        long least = Long.MAX_VALUE;
        // A container may see only the mount's top, and its group's name from outside.
        for (; group.startsWith(top); group = group.getParent()) {
            long limit = number(group, files.limit());
            long usage = number(group, files.usage());
            if (limit >= 0 && usage >= 0) {
                long cache = Math.clamp(statistic(group, files.inactive()), 0, usage);
                least = Math.min(least, Math.max(0, limit - (usage - cache)));
            }
        }
        return least;
    }

    /** This process's group, relative to the mount; empty for its top. */
    private static String ownGroup(Path root, String controller) {
        // hierarchy:controllers:/path, with no controllers in version 2.
        for (String line : lines(root, "proc/self/cgroup")) {
            String[] fields = line.split(":", 3);
            if (fields.length == 3 && List.of(fields[1].split(",")).contains(controller)) {
                return fields[2].replaceFirst("^/+", "");
            }
        }
        return "";
    }

    /** A number of memory.stat, or 0. */
    private static long statistic(Path group, String name) {
        for (String line : lines(group, "memory.stat")) {
            if (line.matches(name + " \\d{1,18}")) {
                return Long.parseLong(line.substring(name.length() + 1));
            }
        }
        return 0;
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
    private static long number(Path folder, String file) {
        List<String> lines = lines(folder, file);
        if (lines.isEmpty() || !lines.getFirst().matches("\\d{1,18}")) {
            return -1;
        }
        return Long.parseLong(lines.getFirst());
    }

    private static List<String> lines(Path folder, String file) {
        Path path = folder.resolve(file);
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
