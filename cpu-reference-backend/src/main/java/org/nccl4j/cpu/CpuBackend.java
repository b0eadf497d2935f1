package org.nccl4j.cpu;

import java.io.IOException;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.time.LocalDate;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.function.DoubleConsumer;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Bootstrap;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Explanation;
import org.nccl4j.collectives.Graph;
import org.nccl4j.collectives.Group;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.RankInfo;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.Rendezvous;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.collectives.spi.ArgumentChecks;
import org.nccl4j.collectives.spi.Roster;
import org.nccl4j.cpu.schedule.Collective;
import org.nccl4j.cpu.schedule.Schedule;
import org.nccl4j.cpu.schedule.ScheduleAlgorithm;
import org.nccl4j.cpu.schedule.SchedulePicture;

/**
 * The contract in pure Java: ranks of this process, on virtual devices.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
public final class CpuBackend implements Backend {
    static final Capabilities CAPABILITIES =
            Capabilities.none()
                    .withTypes(EnumSet.allOf(DataType.class))
                    .withReductions(EnumSet.allOf(ReduceOp.Predefined.class))
                    .withPreMulSum(true)
                    .withMismatchDetection(true)
                    .withTrafficCounters(true)
                    .withHostBuffers(true)
                    .withPeerFailureDetection(true);

    private static final SecureRandom RANDOM = new SecureRandom();

    private final EngineSetting setting;
    private final CpuDevices devices;
    private final Scheduler scheduler;

    /** For {@link java.util.ServiceLoader}; programs use {@code Backends}. */
    public CpuBackend() {
        this(EngineSetting.of(System::getProperty, System::getenv), CpuDevices.SHARED);
    }

    CpuBackend(Engine engine, CpuDevices devices) {
        this(EngineSetting.of(engine), devices);
    }

    CpuBackend(EngineSetting setting, CpuDevices devices) {
        this.setting = setting;
        this.devices = devices;
        this.scheduler = devices.scheduler();
    }

    @Override
    public String name() {
        return "cpu";
    }

    @Override
    public Availability availability() {
        if (setting.refusal().isPresent()) {
            return new Availability.Unavailable(List.of(setting.refusal().get()));
        }
        return new Availability.Available(
                "pure Java, engine "
                        + setting.engine().description()
                        + (setting.reproducible().isPresent() ? ", reproducible" : "")
                        + ", "
                        + CpuDevices.processorModel()
                        + ", "
                        + Runtime.getRuntime().availableProcessors()
                        + " processors");
    }

    @Override
    public Capabilities capabilities() {
        return CAPABILITIES;
    }

    @Override
    public List<Device> devices() {
        List<Device> defaults = new ArrayList<>();
        for (int ordinal = 0; ordinal < CpuDevices.defaultCount(); ordinal++) {
            defaults.add(devices.device(ordinal));
        }
        return List.copyOf(defaults);
    }

    @Override
    public int deviceLimit() {
        return CpuDevices.LIMIT;
    }

    @Override
    public Device device(int ordinal) {
        return devices.device(ordinal);
    }

    @Override
    public List<Communicator> createLocal(int ranks, CommunicatorConfig config) {
        ArgumentChecks.given("createLocal", "configuration", config);
        if (ranks < 1 || ranks > CpuDevices.LIMIT) {
            throw new InvalidArgumentException(
                    "createLocal: " + ranks + " ranks, must be 1 to " + CpuDevices.LIMIT);
        }
        if (config.deviceOrdinal().isPresent()) {
            throw new InvalidArgumentException(
                    "createLocal: rank i is on device i, so the configuration cannot name device "
                            + config.deviceOrdinal().getAsInt()
                            + "; leave it out, or use create() per rank");
        }
        Engine engine = setting.engine(config.algorithm());
        List<Seat> seats = new ArrayList<>(ranks);
        for (int rank = 0; rank < ranks; rank++) {
            // They share one trace file: only the first can be refused, with nothing to undo.
            seats.add(Seat.of(devices.device(rank), config));
        }
        Clique clique = new Clique(scheduler, engine, config.name(), seats);
        List<CpuCommunicator> communicators;
        Chore chores;
        synchronized (scheduler) {
            communicators = CpuCommunicator.open(clique);
            chores = scheduler.takeChores(0);
        }
        scheduler.workers().perform(chores);
        return List.copyOf(communicators);
    }

    @Override
    public UniqueId newUniqueId() {
        byte[] bytes = new byte[UniqueId.SIZE_BYTES];
        RANDOM.nextBytes(bytes);
        return new UniqueId(bytes);
    }

    @Override
    public Communicator create(Bootstrap bootstrap, int rank, int size, CommunicatorConfig config) {
        ArgumentChecks.given("create", "bootstrap", bootstrap);
        ArgumentChecks.given("create", "configuration", config);
        if (size < 1 || size > CpuDevices.LIMIT || rank < 0 || rank >= size) {
            throw new InvalidArgumentException(
                    "create of communicator '"
                            + config.name()
                            + "': rank "
                            + rank
                            + " of "
                            + size
                            + "; the size must be 1 to "
                            + CpuDevices.LIMIT
                            + " and the rank 0 to size - 1");
        }
        Engine engine = setting.engine(config.algorithm());
        long startNanos = System.nanoTime();
        UniqueId id =
                switch (bootstrap) {
                    case UniqueId given -> given;
                    case Rendezvous rendezvous -> meet(rendezvous, rank, size, config);
                };
        CpuDevice device = devices.device(config.deviceOrdinal().orElse(rank));
        Seat seat = Seat.of(device, config);
        return Meeting.join(scheduler, engine, id, rank, size, seat, startNanos);
    }

    private UniqueId meet(Rendezvous rendezvous, int rank, int size, CommunicatorConfig config) {
        RankInfo self =
                RankInfo.ofThisProcess(
                        rank, size, config.deviceOrdinal().orElse(rank), "nccl4j cpu");
        Roster roster = Roster.meet(rendezvous, self, config);
        for (RankInfo other : roster.ranks()) {
            if (other.processId() != self.processId() || !other.host().equals(self.host())) {
                throw new UnsupportedException(
                        roster.refusal(
                                "the CPU backend so far connects ranks of one process only; run"
                                        + " them as threads"));
            }
        }
        return roster.id(this::newUniqueId);
    }

    @Override
    public void group(Consumer<Group> body) {
        new CpuRecordedGroup(OpenGroup.record(body), null).issue();
    }

    @Override
    public RecordedGroup record(Consumer<Group> body) {
        List<CpuRecordedGroup.Call> calls = OpenGroup.record(body);
        return new CpuRecordedGroup(calls, PersistentGroup.of(calls));
    }

    @Override
    public Pending<List<Optional<Communicator>>> split(
            List<Communicator> communicators, int[] colors, int[] keys) {
        List<CpuCommunicator> ranks = ranksOfOne("split", communicators);
        ArgumentChecks.given("split", "array of colors", colors);
        ArgumentChecks.given("split", "array of keys", keys);
        if (colors.length != ranks.size() || keys.length != ranks.size()) {
            throw new InvalidArgumentException(
                    "split: "
                            + ranks.size()
                            + " communicators need as many colors and keys, got "
                            + colors.length
                            + " and "
                            + keys.length
                            + "; nothing has changed");
        }
        List<long[]> given = new ArrayList<>();
        for (int i = 0; i < colors.length; i++) {
            CpuCommunicator.requireColor(colors[i]);
            given.add(new long[] {colors[i], keys[i]});
        }
        HostCall call = CpuCommunicator.post(ranks, OperationKind.SPLIT, given);
        List<Integer> numbers = numbers(ranks);
        return new HostPending<>(
                call,
                () -> {
                    List<Optional<Communicator>> children = new ArrayList<>();
                    for (int rank : numbers) {
                        children.add(Optional.ofNullable(call.child(rank)));
                    }
                    return List.copyOf(children);
                });
    }

    @Override
    public Pending<long[][]> exchangeCounts(
            List<Communicator> communicators, long[][] sendCountsElements) {
        List<CpuCommunicator> ranks = ranksOfOne("exchangeCounts", communicators);
        ArgumentChecks.given("exchangeCounts", "array of counts", sendCountsElements);
        if (sendCountsElements.length != ranks.size()) {
            throw new InvalidArgumentException(
                    "exchangeCounts: "
                            + ranks.size()
                            + " communicators need as many rows of counts, got "
                            + sendCountsElements.length
                            + "; nothing has changed");
        }
        List<long[]> given = new ArrayList<>();
        for (int i = 0; i < ranks.size(); i++) {
            ranks.get(i).requireCounts(sendCountsElements[i]);
            given.add(sendCountsElements[i].clone());
        }
        HostCall call = CpuCommunicator.post(ranks, OperationKind.EXCHANGE_COUNTS, given);
        List<Integer> numbers = numbers(ranks);
        return new HostPending<>(
                call,
                () -> {
                    long[][] rows = new long[numbers.size()][];
                    for (int i = 0; i < rows.length; i++) {
                        rows[i] = call.countsFor(numbers.get(i));
                    }
                    return rows;
                });
    }

    private static List<Integer> numbers(List<CpuCommunicator> ranks) {
        return ranks.stream().map(CpuCommunicator::rank).toList();
    }

    /** Different ranks of one communicator, or a refusal. */
    private static List<CpuCommunicator> ranksOfOne(
            String operation, List<Communicator> communicators) {
        ArgumentChecks.given(operation, "list of communicators", communicators);
        List<CpuCommunicator> ranks = new ArrayList<>();
        for (Communicator communicator : communicators) {
            CpuCommunicator mine = CpuCommunicator.of(operation, communicator);
            OpenGroup.refuseIfTouched(mine.member());
            if (!ranks.isEmpty() && ranks.getFirst().member().clique != mine.member().clique) {
                throw new InvalidArgumentException(
                        operation
                                + ": "
                                + ranks.getFirst()
                                + " and "
                                + mine
                                + " are not ranks of one communicator; nothing has changed");
            }
            if (ranks.contains(mine)) {
                throw new InvalidArgumentException(
                        operation + ": " + mine + " is given twice; nothing has changed");
            }
            ranks.add(mine);
        }
        if (ranks.isEmpty()) {
            throw new InvalidArgumentException(operation + ": no communicators given");
        }
        return ranks;
    }

    @Override
    public void closeAll(List<Communicator> communicators) {
        ArgumentChecks.given("closeAll", "list of communicators", communicators);
        List<CpuCommunicator> mine = new ArrayList<>();
        for (Communicator communicator : communicators) {
            CpuCommunicator each = CpuCommunicator.of("closeAll", communicator);
            OpenGroup.refuseIfTouched(each.member());
            mine.add(each);
        }
        CpuCommunicator.closeAll(mine);
    }

    @Override
    public Explanation explain(
            String operation,
            Optional<String> algorithm,
            int ranks,
            DataType type,
            long sizeBytes) {
        ArgumentChecks.given("explain", "operation", operation);
        ArgumentChecks.given("explain", "algorithm", algorithm);
        ArgumentChecks.given("explain", "type", type);
        Collective collective = EngineSetting.collective(operation);
        ScheduleAlgorithm chosen = EngineSetting.algorithm(collective, algorithm);
        if (ranks < 1 || ranks > ScheduleEngine.MOST_RANKS) {
            throw new InvalidArgumentException(
                    "explain: "
                            + ranks
                            + " ranks, must be 1 to "
                            + ScheduleEngine.MOST_RANKS
                            + ", for which schedules are run");
        }
        if (sizeBytes < 0 || sizeBytes % type.sizeBytes() != 0) {
            throw new InvalidArgumentException(
                    "explain: "
                            + sizeBytes
                            + " bytes are not a whole number of "
                            + type
                            + " elements of "
                            + type.sizeBytes());
        }
        Schedule schedule = chosen.schedule(collective, ranks);
        return new Explanation(
                SchedulePicture.text(schedule, sizeBytes, type.sizeBytes()),
                SchedulePicture.svg(schedule, sizeBytes, type.sizeBytes()));
    }

    @Override
    public String algorithm(
            String operation, int ranks, long sizeBytes, CommunicatorConfig config) {
        ArgumentChecks.given("algorithm", "operation", operation);
        ArgumentChecks.given("algorithm", "configuration", config);
        if (ranks < 1 || ranks > CpuDevices.LIMIT || sizeBytes < 0) {
            throw new InvalidArgumentException(
                    "algorithm: "
                            + ranks
                            + " ranks and "
                            + sizeBytes
                            + " bytes, must be 1 to "
                            + CpuDevices.LIMIT
                            + " and at least 0");
        }
        return setting.engine(config.algorithm())
                .algorithm(EngineSetting.operation(operation), ranks, sizeBytes);
    }

    @Override
    public String calibrate(Optional<Path> file, DoubleConsumer progress) {
        ArgumentChecks.given("calibrate", "file", file);
        ArgumentChecks.given("calibrate", "progress", progress);
        Calibration calibration = setting.calibration();
        Path target =
                file.or(calibration::file)
                        .orElseThrow(() ->
                                new UnsupportedException(
                                        "calibrate: there is no place to keep the file in; name one"));
        try {
            // Before half a minute is spent.
            Calibration.requireWritable(target);
            Calibrator.Result result =
                    new Calibrator(devices, Runtime.getRuntime().availableProcessors(), progress)
                            .measure();
            return keep(result, calibration, target);
        } catch (IOException e) {
            throw new UnsupportedException(
                    "calibrate: " + target + " cannot be written: " + e + "; name another file", e);
        }
    }

    /** Stores what was measured, unless the machine was busy: then an earlier file is better. */
    static String keep(Calibrator.Result result, Calibration calibration, Path target)
            throws IOException {
        String error =
                "the predictions miss the measured times by "
                        + Math.round(100 * result.medianError())
                        + " % in the median";
        if (result.medianError() > Calibrator.MOST_MEDIAN_ERROR) {
            throw new UnsupportedException(
                    "calibrate: "
                            + error
                            + ": the machine was busy; repeat with nothing else running ("
                            + target
                            + " is as before)");
        }
        Calibration.store(
                target,
                calibration.machine(),
                result.model(),
                LocalDate.now(ZoneId.systemDefault()));
        return "Measured on "
                + calibration.machine()
                + ", medians of "
                + Calibrator.ROUNDS
                + " rounds.\n\n"
                + result.text()
                + "\n"
                + (result.medianError() > Calibrator.DOUBTFUL_MEDIAN_ERROR
                        ? "Note that "
                                + error
                                + ": if the machine was busy, repeat with nothing else running.\n"
                        : "")
                + calibration.use(target);
    }

    @Override
    public Graph capture(List<DeviceStream> streams, Runnable body) {
        throw new UnsupportedException(
                "the CPU backend cannot capture graphs: its launches cost nothing that a graph would"
                        + " save; use record(body) and issue()");
    }
}
