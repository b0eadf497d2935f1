package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.LibraryUnavailableException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.ObjectMapper;

/** What {@code bench info} tells, of this machine and of others that are a folder. */
@Timeout(60)
final class InfoReportTest {

    private static final Duration PATIENCE = Duration.ofSeconds(20);

    @TempDir private Path root;

    private final CapturedConsole captured = new CapturedConsole();

    private String text(List<InfoProbe> probes) throws InterruptedException {
        new InfoReport(probes, PATIENCE).print(captured.console());
        return captured.out();
    }

    private static String on(RunningBench run) {
        assertThat(run.code).as("%s", run).isEqualTo(ExitCode.OK);
        assertThat(run.console.err()).isEmpty();
        return run.console.out();
    }

    @Test
    void thisMachineFitsOnAPage() {
        RunningBench run = RunningBench.info("info", bench -> bench.environment.put("NCCL_X", "1"));
        assertThat(on(run))
                .contains("Backends\n  cpu             available: ")
                .contains("Libraries\n  cpu             needs none\n")
                .contains("Devices\n  cpu             ", " of up to 1024, each ")
                .contains("Java\n  version         " + System.getProperty("java.runtime.version"))
                .contains("\n  flags ", "\n  native access ", "\n  heap ")
                .contains("Machine\n  system          " + System.getProperty("os.name"))
                .contains("\n  NCCL_X          1\n");
        assertThat(run.console.outLines()).hasSizeLessThan(80);
        assertThat(run.console.out()).doesNotContain("cannot be told");
        assertThat(run.console.out().contains(" calibrate measures this machine"))
                .isEqualTo(run.console.out().contains("(not calibrated)"));
    }

    @Test
    void jsonHasTheSame() {
        RunningBench run = RunningBench.info("info --json", bench -> {});
        JsonNode json = new ObjectMapper().readTree(on(run));
        assertThat(run.console.outLines()).hasSize(1);
        assertThat(json.get("Backends").get("cpu").get(0).asString()).startsWith("available: ");
        assertThat(json.get("Java").get("version").isArray()).isTrue();
        assertThat(json.get("Machine").has("/dev/shm")).isTrue();
    }

    @Test
    void anAvailableBackendTellsItsLibrariesAndDevices() throws InterruptedException {
        Backend opaque = new OpaqueBackend(Backends.named("cpu"));
        assertThat(text(new BackendProbes(List.of(opaque)).all()))
                .contains("  nccl            available: a double of NCCL")
                .contains("  nccl            NCCL 2.30.7 (23007) /opt/double/libnccl.so.2\n")
                .contains(
                        "                  CUDA runtime 13.0 (13000) /opt/double/libcudart.so.13\n")
                .contains("  nccl            0 [0000:01:00] Double 0, ")
                .contains("                  1 [0000:02:00] Double 1, ");
    }

    @Test
    void anAbsentBackendTellsWhyAndWhatWasTried() throws InterruptedException {
        Backend absent =
                new AbsentBackend(
                        List.of("NCCL cannot be loaded: no such file", "no GPU is visible"),
                        new LibraryUnavailableException(
                                "NCCL cannot be loaded: no such file",
                                new IllegalStateException(
                                        "NCCL cannot be loaded: no such file\n"
                                                + "  /usr/lib/libnccl.so.2: cannot open\n"
                                                + "  /opt/libnccl.so.2: wrong ELF class\n")));
        assertThat(text(new BackendProbes(List.of(absent)).all()))
                .contains("  nccl            not available: NCCL cannot be loaded: no such file\n")
                .contains("                  not available: no GPU is visible\n")
                .contains("  nccl            /usr/lib/libnccl.so.2: cannot open\n")
                .contains("                  /opt/libnccl.so.2: wrong ELF class\n")
                .contains("Devices\n  nccl            none, for the reasons above\n");
    }

    @Test
    void aProbeThatFailsIsALine() throws InterruptedException {
        List<InfoProbe> probes =
                List.of(
                        new InfoProbe(
                                "First",
                                () -> {
                                    throw new IOException("the disk is on fire");
                                }),
                        new InfoProbe(
                                "First",
                                () -> {
                                    throw new NoClassDefFoundError("org/nccl4j/Gone");
                                }),
                        new InfoProbe("Second", () -> List.of(new InfoEntry("name", "text"))));
        assertThat(text(probes))
                .isEqualTo(
                        """
                        First
                          ?               cannot be told: java.io.IOException: the disk is on fire
                          ?               cannot be told: java.lang.NoClassDefFoundError: org/nccl4j/Gone
                        Second
                          name            text
                        """);
    }

    @Test
    void aProbeThatHangsIsALine() throws InterruptedException {
        CountDownLatch never = new CountDownLatch(1);
        InfoProbe hanging =
                new InfoProbe(
                        "Driver",
                        () -> {
                            never.await();
                            return List.of();
                        });
        InfoProbe next = new InfoProbe("Next", () -> List.of(new InfoEntry("name", "text")));
        new InfoReport(List.of(hanging, next), Duration.ofMillis(20)).print(captured.console());
        assertThat(captured.out())
                .contains("no answer within 0 s; a library or driver may hang")
                .endsWith("Next\n  name            text\n");
    }

    @Test
    void whatIsTooLongIsCutAndCountedButNotInJson() throws Exception {
        List<InfoEntry> entries = new ArrayList<>();
        IntStream.range(0, 40).forEach(i -> entries.add(new InfoEntry("", "line " + i)));
        entries.set(0, new InfoEntry("many", "x".repeat(1000)));
        List<InfoProbe> probes = List.of(new InfoProbe("Section", () -> entries));
        assertThat(text(probes))
                .contains("x".repeat(600) + "...\n")
                .contains("... 16 more lines; --json has all\n")
                .doesNotContain("x".repeat(601), "line 24");
        CapturedConsole json = new CapturedConsole();
        new InfoReport(probes, PATIENCE).printJson(json.console());
        JsonNode many = new ObjectMapper().readTree(json.out()).get("Section").get("many");
        assertThat(many.size()).isEqualTo(40);
        assertThat(many.get(0).asString()).hasSize(1000);
    }

    private void plant(String file, String text) throws IOException {
        Path path = root.resolve(file);
        Files.createDirectories(path.getParent());
        Files.writeString(path, text);
    }

    private String machine(Map<String, String> variables) throws InterruptedException {
        Map<String, String> properties =
                Map.of("os.name", "Linux", "user.home", root.resolve("home").toString());
        return text(new MachineProbes(variables, properties::get, root).all());
    }

    @Test
    void aGpuNodeIsTold() throws Exception {
        plant(
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06\nGCC version: gcc 12\n");
        plant("dev/nvidia0", "");
        plant("dev/nvidiactl", "");
        plant("dev/shm/any", "");
        plant("dev/null0", "");
        plant("etc/os-release", "NAME=x\nPRETTY_NAME=\"Rocky Linux 9\"\n");
        plant(
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: EPYC 9\n\nprocessor\t: 1\nmodel name\t: EPYC 9\n");
        plant("sys/devices/system/node/node0/cpulist", "0");
        plant("sys/devices/system/node/node1/cpulist", "1");
        plant("proc/loadavg", "0.50 0.40 0.30 1/100 5\n");
        plant(
                "proc/meminfo",
                "MemTotal:  1073741824 kB\nMemAvailable: 536870912 kB\nHugePages_Total: 7\n");
        plant("sys/fs/cgroup/memory.max", "max\n");
        plant(
                "proc/self/limits",
                "Limit   Soft Limit  Hard Limit  Units\n"
                        + "Max open files            1024     4096     files\n"
                        + "Max locked memory         65536    65536    bytes\n");
        for (String[] file :
                new String[][] {
                    {"state", "4: ACTIVE"}, {"rate", "400 Gb/sec"}, {"link_layer", "InfiniBand"}
                }) {
            plant("sys/class/infiniband/mlx5_0/ports/1/" + file[0], file[1] + "\n");
        }
        plant("etc/nccl.conf", "# ours\nNCCL_IB_HCA=mlx5\n\nNCCL_DEBUG=WARN\n");
        assertThat(machine(Map.of()))
                .contains("  version         NVRM version: NVIDIA UNIX x86_64 Kernel Module  580")
                .contains("  /dev            nvidia0 nvidiactl\n")
                .contains("  system          Linux ", ", Rocky Linux 9\n")
                .contains("  processor       2 x EPYC 9, 2 NUMA nodes, load 0.50 0.40 0.30")
                .contains("512.0 GiB of 1024.0 GiB available, cgroup limit max, huge pages 7\n")
                .contains(
                        "  limits          open files 1024 (hard 4096), locked memory 65536 (hard")
                .contains("  mlx5_0/1        4: ACTIVE, 400 Gb/sec, InfiniBand\n")
                .contains("/etc/nccl.conf ", " NCCL_IB_HCA=mlx5; NCCL_DEBUG=WARN\n")
                .contains(".nccl.conf is not there\n")
                .contains("  variables       no NCCL*, CUDA* or NCCL4J* is set\n")
                .doesNotContain("cannot be told");
    }

    @Test
    void aMachineThatTellsNothingStillHasAReport() throws Exception {
        assertThat(machine(Map.of("CUDA_VISIBLE_DEVICES", "0,1")))
                .contains("no /proc/driver/nvidia/version: the kernel module is not loaded")
                .contains("  ?               cannot be told: java.nio.file.NoSuchFileException: ")
                .contains("  /dev/shm        is not there\n")
                .contains("  devices         none in /sys/class/infiniband\n")
                .contains("  CUDA_VISIBLE_DEVICES 0,1\n");
    }

    @ParameterizedTest
    @CsvSource({
        "NCCL_DEBUG, INFO, INFO",
        "NCCL_IB_PKEY, 0x8001, 0x8001",
        "NCCL_COMM_ID, 10.0.0.1:4000, 10.0.0.1:4000",
        "CUDA_VISIBLE_DEVICES, 'GPU-8932f937-d72c,1', 'GPU-8932f937-d72c,1'",
        "NCCL4J_UNIQUE_ID, abc, '(masked, 3 characters)'",
        "NCCL4J_TOKEN, abcd, '(masked, 4 characters)'",
        "NCCL_my_secret_file, abcd, '(masked, 4 characters)'",
        "CUDA_REPO, https://me:word@host/x, '(masked, 22 characters)'"
    })
    void secretsAreMasked(String name, String value, String shown) {
        assertThat(MachineProbes.masked(name, value)).isEqualTo(shown);
    }

    @Test
    void aUniqueIdIsMaskedWhateverItsName() {
        assertThat(MachineProbes.masked("NCCL_X", "0f".repeat(128)))
                .isEqualTo("(masked, 256 characters)");
        BenchEnvironment environment =
                new BenchEnvironment(Map.of("NCCL_X", "0f".repeat(128), "NCCL_DEBUG", "INFO"));
        assertThat(environment.reported())
                .containsExactly("NCCL_DEBUG=INFO", "NCCL_X=(masked, 256 characters)");
    }
}
