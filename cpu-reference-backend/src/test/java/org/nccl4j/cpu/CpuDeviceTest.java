package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;

/** Virtual devices and their memory. */
final class CpuDeviceTest {
    private final CpuDevices devices = new CpuDevices(new Scheduler(2, new RecordingLog()));

    @Test
    void devicesAreVirtual() {
        Device device = devices.device(1023);
        assertThat(device.ordinal()).isEqualTo(1023);
        assertThat(device.busId()).isEqualTo("0000:00:00");
        assertThat(device.name()).isNotBlank();
        assertThat(devices.device(1023)).isSameAs(device);
        assertThatThrownBy(() -> devices.device(1024))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        "there is no CPU device 1024; devices are virtual and have numbers 0 to"
                                + " 1023");
    }

    @Test
    void devicesInUseShareTheMemoryEvenly() {
        long before = devices.device(0).memory().totalBytes();
        int shares = devices.shares();
        List<CpuDevice> held =
                IntStream.range(shares, 4 * shares).mapToObj(devices::device).toList();
        assertThat(devices.device(0).memory().totalBytes()).isBetween(before / 4 - 1, before / 4);
        assertThat(held).allMatch(each -> each.memory().totalBytes() == before / 4);
    }

    @Test
    @Timeout(60)
    void aDeviceThatWasOnlyLookedAtTakesNoMemoryFromTheOthers() {
        int shares = devices.shares();
        assertThat(devices.device(1000).memory().freeBytes()).isPositive();
        awaitShares(shares);
        DeviceBuffer buffer = devices.device(1000).allocate(1);
        awaitShares(shares + 1);
        assertThat(devices.device(1000)).isSameAs(buffer.device());
        buffer.close();
    }

    /** A list of closed communicators must not cost the next program its memory. */
    @Test
    void aDeviceWhoseStreamsAndCommunicatorsAreClosedTakesNoMemoryFromTheOthers() {
        int shares = devices.shares();
        CpuDevice device = devices.device(1001);
        DeviceStream stream = device.createStream();
        assertThat(devices.shares()).isEqualTo(shares + 1);
        stream.close();
        stream.close();
        assertThat(devices.shares()).isEqualTo(shares);

        CpuBackend backend = new CpuBackend(new ReferenceEngine(), devices);
        List<Communicator> ranks = backend.createLocal(shares + 3, CommunicatorConfig.defaults());
        assertThat(devices.shares()).isEqualTo(shares + 3);
        backend.closeAll(ranks);
        backend.closeAll(ranks);
        assertThat(devices.shares()).isEqualTo(shares);
        assertThat(ranks.getLast().device().allocate(64).sizeBytes()).isEqualTo(64);
        Reference.reachabilityFence(device);
    }

    @Test
    void sharesOfDevicesThatNobodyHoldsServeAnAllocation() {
        lookAtManyDevices();
        long crowdedBytes = devices.device(0).memory().totalBytes();

        try (DeviceBuffer buffer = devices.device(0).allocate(crowdedBytes + 1)) {
            assertThat(buffer.sizeBytes()).isEqualTo(crowdedBytes + 1);
        }
    }

    private void lookAtManyDevices() {
        for (int ordinal = 0; ordinal < CpuDevices.LIMIT; ordinal++) {
            assertThat(devices.device(ordinal).ordinal()).isEqualTo(ordinal);
        }
    }

    private void awaitShares(int shares) {
        Awaitility.await()
                .atMost(Duration.ofSeconds(20))
                .until(() -> {
                    System.gc();
                    return devices.shares() == shares;
                });
    }

    @Test
    void memoryThatIsNeverGivenBackStaysCounted() {
        int shares = devices.shares();
        devices.allocated(1000, 1 << 20);
        System.gc();
        assertThat(devices.shares()).isEqualTo(shares + 1);
        devices.allocated(1000, -(1 << 20));
        assertThat(devices.shares()).isEqualTo(shares);
    }

    /** So often that each place in a page has its turn. */
    @ParameterizedTest
    @ValueSource(longs = {1, 4096, (2 << 20) - 1, 2 << 20, (5 << 20) + 3, (6 << 20) - 1})
    void memoryIsZeroStaggeredAndCounted(long sizeBytes) throws IOException {
        CpuDevice device = devices.device(0);
        int places = 4096 / 256;
        long mappings = hugeMappings();
        List<DeviceBuffer> buffers = new ArrayList<>();
        Set<Long> starts = new HashSet<>();
        for (int i = 0; i < places; i++) {
            DeviceBuffer buffer = device.allocate(sizeBytes);
            buffers.add(buffer);
            assertThat(buffer.sizeBytes()).isEqualTo(sizeBytes);
            assertThat(buffer.address() % 256).isZero();
            starts.add(buffer.address() % 4096);
            assertThat(buffer.device()).isSameAs(device);
            MemorySegment memory = buffer.hostSegment();
            assertThat(memory.byteSize()).isEqualTo(sizeBytes);
            assertThat(memory.mismatch(zeros(sizeBytes))).isEqualTo(-1);
            memory.fill((byte) 1);
        }
        assertThat(starts).hasSize(places);
        assertThat(device.memory().freeBytes())
                .isLessThanOrEqualTo(device.memory().totalBytes() - places * sizeBytes);
        buffers.forEach(DeviceBuffer::close);
        assertThat(hugeMappings()).isEqualTo(mappings);
    }

    private static MemorySegment zeros(long sizeBytes) {
        return MemorySegment.ofArray(new byte[(int) sizeBytes]);
    }

    /** Mappings of this process that ask for huge pages, which only Linux has. */
    private static long hugeMappings() throws IOException {
        Path all = Path.of("/proc/self/smaps");
        if (!Files.exists(all)) {
            return 0;
        }
        try (Stream<String> lines = Files.lines(all)) {
            return lines.filter(line -> line.matches("VmFlags:.* hg( .*)?")).count();
        }
    }

    @Test
    void sizesThatCannotBeAreRefusedWithWhatIsFree() {
        Device device = devices.device(0);
        assertThat(device.allocate(0)).isSameAs(DeviceBuffer.EMPTY);
        assertThatThrownBy(() -> device.allocate(-1))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("cannot allocate -1 bytes; the size must be at least 0");
        assertThatThrownBy(() -> device.allocate(1L << 50))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageMatching(
                        "cannot allocate 1125899906842624 bytes on device 0: \\d+ bytes are free,"
                                + " its share of the machine's memory among \\d+ devices");
    }

    @Test
    void memoryInUseIsFreedWhenItsWorkHasPassed() {
        try (World world = new World(2)) {
            DeviceBuffer[] buffers = {world.ints(0, 1), world.ints(1, 2)};
            MemorySegment memory = buffers[0].hostSegment();
            DeviceBuffer copy = world.zeros(0, 1);
            world.allReduce(0, buffers[0]);
            world.stream(0).copy(buffers[0], copy, 4);
            buffers[0].close();
            assertThatThrownBy(() -> world.allReduce(0, buffers[0]))
                    .isInstanceOf(InvalidArgumentException.class);
            assertThat(memory.scope().isAlive()).isTrue();
            world.allReduce(1, buffers[1]);
            world.synchronize();
            assertThat(World.toArray(copy)).containsExactly(3);
            assertThat(memory.scope().isAlive()).isFalse();
        }
    }

    @Test
    void memoryOfWorkThatIsGivenUpIsFreed() {
        try (World world = new World(2)) {
            DeviceBuffer buffer = world.ints(0, 1);
            MemorySegment memory = buffer.hostSegment();
            world.allReduce(0, buffer);
            buffer.close();
            world.rank(0).abort(World.LONG);
            assertThat(memory.scope().isAlive()).isFalse();
        }
    }

    @Test
    void availableMemoryIsTheLeastOfTheAccounts(@TempDir Path root) throws IOException {
        write(root, "proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   50 kB\n");
        assertThat(MachineMemory.availableBytes(root)).isEqualTo(50 << 10);
        write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "40000\n");
        write(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "10000\n");
        assertThat(MachineMemory.availableBytes(root)).isEqualTo(30_000);
        write(root, "sys/fs/cgroup/memory.max", "max\n");
        write(root, "sys/fs/cgroup/memory.current", "1000\n");
        assertThat(MachineMemory.availableBytes(root)).isEqualTo(30_000);
        write(root, "sys/fs/cgroup/memory.max", "21000\n");
        assertThat(MachineMemory.availableBytes(root)).isEqualTo(20_000);
        write(root, "sys/fs/cgroup/memory.max", "500\n");
        assertThat(MachineMemory.availableBytes(root)).isZero();
    }

    @Test
    void theGroupsAroundAProcessLimitItToo(@TempDir Path root) throws IOException {
        write(root, "proc/meminfo", "MemAvailable:   1000 kB\n");
        write(root, "proc/self/cgroup", "0::/pods/mine\n");
        write(root, "sys/fs/cgroup/pods/mine/memory.max", "max\n");
        write(root, "sys/fs/cgroup/pods/mine/memory.current", "5000\n");
        write(root, "sys/fs/cgroup/pods/memory.max", "90000\n");
        write(root, "sys/fs/cgroup/pods/memory.current", "50000\n");
        assertThat(MachineMemory.availableBytes(root)).isEqualTo(40_000);
        write(root, "sys/fs/cgroup/pods/mine/memory.max", "8000\n");
        assertThat(MachineMemory.availableBytes(root)).isEqualTo(3000);
        // The kernel drops page cache rather than refuse memory.
        write(root, "sys/fs/cgroup/pods/mine/memory.stat", "anon 1\ninactive_file 4000\nfile 2\n");
        assertThat(MachineMemory.availableBytes(root)).isEqualTo(7000);
        // From inside a namespace the name leads out of what is mounted.
        write(root, "proc/self/cgroup", "0::/../../other\n");
        assertThat(MachineMemory.availableBytes(root)).isEqualTo(1000 << 10);
        write(root, "sys/fs/cgroup/memory.max", "600\n");
        write(root, "sys/fs/cgroup/memory.current", "500\n");
        assertThat(MachineMemory.availableBytes(root)).isEqualTo(100);
    }

    @Test
    void theFirstVersionOfGroupsHasAHierarchyForMemory(@TempDir Path root) throws IOException {
        write(root, "proc/meminfo", "MemAvailable:   1000 kB\n");
        write(root, "proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/b\n0::/c\n");
        write(root, "sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes", "9000\n");
        write(root, "sys/fs/cgroup/memory/docker/b/memory.usage_in_bytes", "6000\n");
        write(root, "sys/fs/cgroup/memory/docker/b/memory.stat", "total_inactive_file 1000\n");
        assertThat(MachineMemory.availableBytes(root)).isEqualTo(4000);
        // A container sees its own group at the top, under the name that it has outside.
        write(root, "proc/self/cgroup", "4:memory:/docker/unseen\n");
        write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9000\n");
        write(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "7000\n");
        assertThat(MachineMemory.availableBytes(root)).isEqualTo(2000);
    }

    private static void write(Path root, String file, String text) throws IOException {
        Path path = root.resolve(file);
        Files.createDirectories(path.getParent());
        Files.writeString(path, text);
    }

    @Test
    void memoryThatAChannelIsWritingIsFreedWhenThatIsOver() throws Exception {
        Device device = devices.device(0);
        DeviceBuffer buffer = device.allocate(64 << 20);
        Pipe pipe = Pipe.open();
        MemorySegment memory = buffer.hostSegment();
        ByteBuffer bytes = memory.asByteBuffer();
        Thread writer =
                Thread.ofPlatform()
                        .start(() -> {
                            try {
                                pipe.sink().write(bytes);
                            } catch (IOException e) {
                                // The other end was closed, below.
                                bytes.limit(0);
                            }
                        });
        // Something has come: the rest does not fit into the pipe.
        assertThat(pipe.source().read(ByteBuffer.allocate(1))).isEqualTo(1);
        buffer.close();
        buffer.close();
        assertThat(buffer.isClosed()).isTrue();
        assertThat(memory.scope().isAlive()).isTrue();
        pipe.source().close();
        writer.join(World.LONG);
        assertThat(writer.isAlive()).isFalse();
        pipe.sink().close();
        device.allocate(4).close();
        assertThat(memory.scope().isAlive()).isFalse();
    }
}
