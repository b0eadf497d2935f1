package org.nccl4j.bench;

import java.io.IOException;
import java.lang.module.ModuleDescriptor;
import java.net.InterfaceAddress;
import java.net.NetworkInterface;
import java.net.SocketException;
import java.nio.file.FileStore;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * What {@code bench info} tells of the machine and the JVM.
 *
 * @param variables the environment
 * @param properties system properties by name; null where one is not set
 * @param root the root of the file system
 */
record MachineProbes(
        Map<String, String> variables, Function<String, String> properties, Path root) {

    private static final List<String> REPORTED_PREFIXES = List.of("NCCL", "CUDA");

    private static final List<String> REPORTED_NAMES =
            List.of(
                    "JAVA_HOME",
                    "JAVA_TOOL_OPTIONS",
                    "JDK_JAVA_OPTIONS",
                    "LD_LIBRARY_PATH",
                    "LD_PRELOAD",
                    "NVIDIA_DRIVER_CAPABILITIES",
                    "NVIDIA_VISIBLE_DEVICES",
                    "SLURM_JOB_ID",
                    "WORLD_SIZE");

    /** Names of what nobody should paste. */
    private static final Pattern SECRET_NAME =
            Pattern.compile(
                    "(^|[_.])(TOKEN|SECRET|PASS|PASSWD|PASSWORD|KEY|APIKEY|CREDENTIALS?|AUTH|COOKIE)($|[_.])"
                            + "|UNIQUE[_.]?ID");

    /** An NCCL unique id or the like, or a user's password in an address. */
    private static final Pattern SECRET_VALUE = Pattern.compile("^[0-9A-Fa-f]{64,}$|//[^/\\s]+@");

    /** What a container of a cluster has plenty of, and no collective uses. */
    private static final int MOST_INTERFACES = 10;

    /** The limits that NCCL runs into, as /proc/self/limits names them. */
    private static final List<String> LIMITS =
            List.of("Max locked memory", "Max open files", "Max processes");

    private static final String INFINIBAND = "/sys/class/infiniband";

    List<InfoProbe> all() {
        return List.of(
                new InfoProbe("NVIDIA driver", this::driver),
                new InfoProbe("Java", this::java),
                new InfoProbe("Java", this::nativeAccess),
                new InfoProbe("Machine", this::system),
                new InfoProbe("Machine", this::processor),
                new InfoProbe("Machine", this::memory),
                new InfoProbe("Machine", this::sharedMemory),
                new InfoProbe("Machine", this::limits),
                new InfoProbe("Network", this::interfaces),
                new InfoProbe("InfiniBand", this::infiniband),
                new InfoProbe("NCCL's files", this::configurationFiles),
                new InfoProbe("Environment", this::environment));
    }

    // ---- driver

    private List<InfoEntry> driver() throws IOException {
        List<InfoEntry> entries = new ArrayList<>();
        Path version = file("/proc/driver/nvidia/version");
        if (Files.exists(version)) {
            for (String line : Files.readAllLines(version)) {
                entries.add(new InfoEntry(entries.isEmpty() ? "version" : "", line.strip()));
            }
        } else {
            entries.add(
                    new InfoEntry(
                            "version",
                            "no /proc/driver/nvidia/version: the kernel module is not loaded, or"
                                    + " this container does not see it"));
        }
        List<String> nodes = names("/dev").filter(name -> name.startsWith("nvidia")).toList();
        entries.add(
                new InfoEntry("/dev", nodes.isEmpty() ? "no nvidia*" : String.join(" ", nodes)));
        return entries;
    }

    // ---- Java

    private List<InfoEntry> java() {
        Runtime runtime = Runtime.getRuntime();
        return List.of(
                new InfoEntry(
                        "version",
                        property("java.runtime.version")
                                + ", "
                                + property("java.vendor")
                                + ", "
                                + property("java.vm.name")
                                + " ("
                                + property("java.vm.info")
                                + ")"),
                new InfoEntry("home", property("java.home")),
                new InfoEntry("flags", flags()),
                new InfoEntry(
                        "heap",
                        gib(runtime.maxMemory())
                                + " at most; "
                                + runtime.availableProcessors()
                                + " processors"));
    }

    /** The options of this JVM: what stands before the main class. */
    private static String flags() {
        Optional<String[]> arguments = ProcessHandle.current().info().arguments();
        if (arguments.isEmpty()) {
            return "cannot be told: the system does not give this process' arguments";
        }
        List<String> flags = new ArrayList<>();
        String[] words = arguments.get();
        for (int i = 0; i < words.length && !words[i].matches("--module|-m|-jar"); i++) {
            // The folder of the image, or half a screen of a class path.
            if (words[i].matches("--module-path|-p|-cp|-classpath|--class-path")) {
                i++;
            } else {
                flags.add(maskedFlag(words[i]));
            }
        }
        return String.join(" ", flags);
    }

    private static String maskedFlag(String flag) {
        int equals = flag.indexOf('=');
        return flag.startsWith("-D") && equals > 0
                ? flag.substring(0, equals + 1)
                        + masked(flag.substring(2, equals), flag.substring(equals + 1))
                : flag;
    }

    private List<InfoEntry> nativeAccess() {
        List<Module> ours =
                ModuleLayer.boot().modules().stream()
                        .filter(module -> module.getName().startsWith("org.nccl4j."))
                        .sorted(Comparator.comparing(Module::getName))
                        .toList();
        if (ours.isEmpty()) {
            return List.of(
                    new InfoEntry(
                            "native access",
                            "on the class path: "
                                    + (MachineProbes.class.getModule().isNativeAccessEnabled()
                                            ? "enabled"
                                            : "not enabled, give"
                                                    + " --enable-native-access=ALL-UNNAMED")));
        }
        return List.of(
                new InfoEntry("native access", named(ours, true)),
                new InfoEntry("without it", named(ours, false)));
    }

    private static String named(List<Module> modules, boolean enabled) {
        String names =
                modules.stream()
                        .filter(module -> module.isNativeAccessEnabled() == enabled)
                        .map(MachineProbes::named)
                        .collect(Collectors.joining(" "));
        return names.isEmpty() ? "none" : names;
    }

    private static String named(Module module) {
        Optional<String> version =
                Optional.ofNullable(module.getDescriptor()).flatMap(ModuleDescriptor::rawVersion);
        return module.getName() + version.map(known -> "@" + known).orElse("");
    }

    // ---- the machine

    private List<InfoEntry> system() throws IOException {
        String release =
                values(file("/etc/os-release"), '=')
                        .getOrDefault("PRETTY_NAME", "")
                        .replace("\"", "");
        return List.of(
                new InfoEntry(
                        "system",
                        property("os.name")
                                + " "
                                + property("os.version")
                                + " "
                                + property("os.arch")
                                + (release.isEmpty() ? "" : ", " + release)));
    }

    private List<InfoEntry> processor() throws IOException {
        List<String> lines = Files.readAllLines(file("/proc/cpuinfo"));
        long count = lines.stream().filter(line -> line.startsWith("processor")).count();
        String model =
                lines.stream()
                        .filter(line -> line.startsWith("model name"))
                        .map(line -> line.substring(line.indexOf(':') + 1).strip())
                        .findFirst()
                        .orElse("unknown model");
        long nodes =
                names("/sys/devices/system/node").filter(name -> name.matches("node\\d+")).count();
        return List.of(
                new InfoEntry(
                        "processor",
                        count
                                + " x "
                                + model
                                + (nodes > 0 ? ", " + nodes + " NUMA nodes" : "")
                                + ", load "
                                + line(file("/proc/loadavg")).orElse("unknown")));
    }

    private List<InfoEntry> memory() throws IOException {
        Map<String, String> values = values(file("/proc/meminfo"), ':');
        String limit =
                line(file("/sys/fs/cgroup/memory.max"))
                        .map(text -> text.matches("\\d{1,18}") ? gib(Long.parseLong(text)) : text)
                        .orElse("unknown");
        return List.of(
                new InfoEntry(
                        "memory",
                        kib(values.get("MemAvailable"))
                                + " of "
                                + kib(values.get("MemTotal"))
                                + " available, cgroup limit "
                                + limit
                                + ", huge pages "
                                + values.getOrDefault("HugePages_Total", "unknown")));
    }

    private static String kib(String value) {
        Matcher number = Pattern.compile("(\\d{1,15}) kB").matcher(value == null ? "" : value);
        return number.matches() ? gib(Long.parseLong(number.group(1)) << 10) : "unknown";
    }

    private List<InfoEntry> sharedMemory() throws IOException {
        Path folder = file("/dev/shm");
        if (!Files.isDirectory(folder)) {
            return List.of(new InfoEntry("/dev/shm", "is not there"));
        }
        FileStore store = Files.getFileStore(folder);
        return List.of(
                new InfoEntry(
                        "/dev/shm",
                        gib(store.getUsableSpace())
                                + " of "
                                + gib(store.getTotalSpace())
                                + " free"));
    }

    private List<InfoEntry> limits() throws IOException {
        List<String> texts = new ArrayList<>();
        for (String line : Files.readAllLines(file("/proc/self/limits"))) {
            for (String limit : LIMITS) {
                if (line.startsWith(limit + " ")) {
                    String[] values = line.substring(limit.length()).strip().split(" +");
                    texts.add(
                            limit.substring("Max ".length())
                                    + " "
                                    + values[0]
                                    + " (hard "
                                    + values[1]
                                    + ")");
                }
            }
        }
        return List.of(new InfoEntry("limits", String.join(", ", texts)));
    }

    // ---- network

    private List<InfoEntry> interfaces() throws IOException {
        List<NetworkInterface> found = Collections.list(NetworkInterface.getNetworkInterfaces());
        // Those that are hardware first: a container host has hundreds of others.
        found.sort(
                Comparator.comparing(each ->
                        !Files.exists(file("/sys/class/net/" + each.getName() + "/device"))));
        List<InfoEntry> entries = new ArrayList<>();
        for (NetworkInterface each : found) {
            if (each.isUp() && entries.size() < MOST_INTERFACES) {
                entries.add(new InfoEntry(each.getName(), describe(each)));
            }
        }
        int left = found.size() - entries.size();
        if (left > 0) {
            entries.add(new InfoEntry("more", left + " that are down, or beyond this list"));
        }
        return entries;
    }

    private String describe(NetworkInterface each) throws SocketException {
        String addresses =
                each.getInterfaceAddresses().stream()
                        .map(InterfaceAddress::toString)
                        .map(text -> text.replaceFirst("^/", "").replaceFirst(" \\[.*", ""))
                        .collect(Collectors.joining(" "));
        String speed;
        try {
            speed =
                    line(file("/sys/class/net/" + each.getName() + "/speed"))
                            .filter(text -> text.matches("\\d+"))
                            .map(text -> text + " Mb/s")
                            .orElse("speed unknown");
        } catch (IOException unreadable) {
            // The kernel refuses to tell it of interfaces that have none.
            speed = "no speed";
        }
        return (addresses.isEmpty() ? "no address" : addresses)
                + ", MTU "
                + each.getMTU()
                + ", "
                + speed;
    }

    private List<InfoEntry> infiniband() throws IOException {
        List<InfoEntry> entries = new ArrayList<>();
        for (String device : names(INFINIBAND).toList()) {
            Path ports = file(INFINIBAND).resolve(device).resolve("ports");
            for (String port : names(ports).toList()) {
                Path folder = ports.resolve(port);
                entries.add(
                        new InfoEntry(
                                device + "/" + port,
                                line(folder.resolve("state")).orElse("state unknown")
                                        + ", "
                                        + line(folder.resolve("rate")).orElse("rate unknown")
                                        + ", "
                                        + line(folder.resolve("link_layer"))
                                                .orElse("link unknown")));
            }
        }
        return entries.isEmpty()
                ? List.of(new InfoEntry("devices", "none in " + INFINIBAND))
                : entries;
    }

    // ---- settings

    private List<InfoEntry> configurationFiles() throws IOException {
        List<InfoEntry> entries = new ArrayList<>();
        String home = property("user.home");
        for (Path path : List.of(file("/etc/nccl.conf"), Path.of(home, ".nccl.conf"))) {
            String text = "is not there";
            if (Files.isReadable(path)) {
                text =
                        Files.readAllLines(path).stream()
                                .map(String::strip)
                                .filter(line -> !line.isEmpty() && !line.startsWith("#"))
                                .collect(Collectors.joining("; "));
                text = text.isEmpty() ? "sets nothing" : text;
            }
            entries.add(new InfoEntry(path.toString(), text));
        }
        return entries;
    }

    private List<InfoEntry> environment() {
        List<InfoEntry> entries =
                new TreeMap<>(variables)
                        .entrySet().stream()
                                .filter(variable -> isReported(variable.getKey()))
                                .map(variable ->
                                        new InfoEntry(
                                                variable.getKey(),
                                                masked(variable.getKey(), variable.getValue())))
                                .toList();
        return entries.isEmpty()
                ? List.of(new InfoEntry("variables", "no NCCL*, CUDA* or NCCL4J* is set"))
                : entries;
    }

    private static boolean isReported(String name) {
        return REPORTED_NAMES.contains(name)
                || REPORTED_PREFIXES.stream().anyMatch(name::startsWith);
    }

    /** A value as one may show it. */
    static String masked(String name, String value) {
        boolean secret =
                SECRET_NAME.matcher(name.toUpperCase(Locale.ROOT)).find()
                        || SECRET_VALUE.matcher(value).find();
        return secret ? "(masked, " + value.length() + " characters)" : value;
    }

    // ---- files

    private String property(String name) {
        String value = properties.apply(name);
        return value == null ? "unknown" : value;
    }

    private Path file(String path) {
        return root.resolve(path.substring(1));
    }

    /** The names in a folder, sorted; none if it is not there. */
    private Stream<String> names(String folder) throws IOException {
        return names(file(folder));
    }

    private static Stream<String> names(Path folder) throws IOException {
        try (Stream<Path> files = Files.list(folder)) {
            return Arrays.stream(
                    files.map(each -> each.getFileName().toString())
                            .sorted()
                            .toArray(String[]::new));
        } catch (NoSuchFileException none) {
            return Stream.empty();
        }
    }

    /** The first line of a file, if it is there and not empty. */
    private static Optional<String> line(Path file) throws IOException {
        if (!Files.exists(file)) {
            return Optional.empty();
        }
        return Files.readAllLines(file).stream().map(String::strip).findFirst();
    }

    /** Lines of the form name, separator, value; none if the file is not there. */
    private static Map<String, String> values(Path file, char separator) throws IOException {
        if (!Files.exists(file)) {
            return Map.of();
        }
        return Files.readAllLines(file).stream()
                .filter(line -> line.indexOf(separator) > 0)
                .collect(
                        Collectors.toMap(
                                line -> line.substring(0, line.indexOf(separator)).strip(),
                                line -> line.substring(line.indexOf(separator) + 1).strip(),
                                (first, second) -> first));
    }

    private static String gib(long bytes) {
        return String.format(Locale.ROOT, "%.1f GiB", bytes / (double) (1L << 30));
    }
}
