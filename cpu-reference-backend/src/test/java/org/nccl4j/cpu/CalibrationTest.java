package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDate;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.nccl4j.collectives.UnsupportedException;

/** The file of a calibration: kept, found, and refused with a sentence. */
class CalibrationTest {
    private static final Calibration.Machine MACHINE =
            new Calibration.Machine("Some(R) Processor @ 2 GHz", 3, "vector");
    private static final LocalDate TODAY = LocalDate.of(2026, 11, 30);
    private static final CostModel MODEL =
            new CostModel(
                    "threads",
                    new Rates(1, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
                    new Rates(0.5, 0, 0, 1.25, 100, 0, 0.0625, 1 / 3.0, 0.25, 32),
                    0.4);

    @TempDir private Path folder;

    private RecordingLog log = new RecordingLog();

    private Calibration of(Path file, boolean named) {
        return new Calibration(file, named, MACHINE, log);
    }

    private Path stored() throws IOException {
        Path file = folder.resolve("new/calibration.properties");
        Calibration.store(file, MACHINE, MODEL, TODAY);
        return file;
    }

    @Test
    void whatIsStoredIsFound() throws IOException {
        Path file = stored();
        Calibration calibration = of(file, false);
        assertThat(calibration.model()).isEqualTo(MODEL);
        assertThat(calibration.origin()).isEqualTo("calibrated 2026-11-30");
        assertThat(log.entries()).isEmpty();
        // Again, over the old one.
        Calibration.store(file, MACHINE, CostModel.SHIPPED, TODAY);
        assertThat(of(file, false).model()).isEqualTo(CostModel.SHIPPED);
        try (var files = Files.list(file.getParent())) {
            assertThat(files).containsExactly(file);
        }
    }

    @Test
    void withoutAFileTheShippedFiguresAreTakenAndOnlyANamedOneIsMissed() {
        Path none = folder.resolve("none");
        assertThat(of(none, false).model()).isEqualTo(CostModel.SHIPPED);
        assertThat(of(none, false).origin()).isEqualTo("not calibrated");
        assertThat(of(null, false).model()).isEqualTo(CostModel.SHIPPED);
        assertThat(log.entries()).isEmpty();
        assertThat(of(none, true).model()).isEqualTo(CostModel.SHIPPED);
        refused("calibration file " + none + " is not used, it does not exist; ");
    }

    private void refused(String text) {
        assertThat(log.entries())
                .singleElement()
                .satisfies(record ->
                        assertThat(record.toString())
                                .contains(text)
                                .contains("run bench/bench calibrate"));
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "format=3 | format=2 | another machine or version: its format is 2, here it is 3",
                "processors=3 | processors=4 | its processors is 4, here it is 3",
                "kernels=vector | kernels=plain | its kernels is plain, here it is vector",
                "Some(R) | Other | its processor is Other Processor @ 2 GHz, here it is Some(R)",
                "format=3 | | malformed: it has no format",
                "date=2026-11-30 | | malformed: it has no date",
                "direct.alpha-us=3.0 | direct.alpha-us=x | direct.alpha-us=x is no rate",
                "direct.alpha-us=3.0 | direct.alpha-us=-1 | direct.alpha-us=-1 is no rate",
                "direct.alpha-us=3.0 | direct.alpha-us=NaN | direct.alpha-us=NaN is no rate",
                "direct.alpha-us=3.0 | direct.alpha-us=Infinity | =Infinity is no rate",
                "direct.alpha-us=3.0 | direct.alpha=3 | threads.direct.alpha-us is missing",
                "threads.schedules.outer-cache-mib=32.0 | | outer-cache-mib is missing",
                "threads.threshold=0.4 | | threads.threshold is missing",
                "date=2026-11-30 | date=\\u12 | is malformed: "
            })
    void aFileThatCannotBeUsedIsNot(String good, String bad, String why) throws IOException {
        Path file = stored();
        String text = Files.readString(file);
        assertThat(text).contains(good);
        Files.writeString(file, text.replace(good, bad == null ? "" : bad));
        assertThat(of(file, false).model()).isEqualTo(CostModel.SHIPPED);
        assertThat(of(file, false).origin()).isEqualTo("not calibrated");
        log = new RecordingLog();
        of(file, false).model();
        refused(why);
    }

    @Test
    void whatIsNoTextFileIsRefused() throws IOException {
        assertThat(of(folder, true).model()).isEqualTo(CostModel.SHIPPED);
        refused("is not used, it is not a regular file");
        log = new RecordingLog();
        Path endless = Path.of("/dev/zero");
        if (Files.exists(endless)) {
            assertThat(of(endless, true).model()).isEqualTo(CostModel.SHIPPED);
            refused("is not used, it is not a regular file");
            log = new RecordingLog();
        }
        Path large = folder.resolve("large");
        Files.write(large, new byte[(1 << 20) + 1]);
        assertThat(of(large, true).model()).isEqualTo(CostModel.SHIPPED);
        refused("is not used, it is malformed: it has 1048577 bytes");
        log = new RecordingLog();
        Path bytes = folder.resolve("bytes");
        Files.write(bytes, new byte[] {(byte) 0xff, (byte) 0xfe, 0, 1});
        assertThat(of(bytes, true).model()).isEqualTo(CostModel.SHIPPED);
        refused("is not used, it cannot be read: ");
        log = new RecordingLog();
        Path empty = Files.createFile(folder.resolve("empty"));
        assertThat(of(empty, true).model()).isEqualTo(CostModel.SHIPPED);
        refused("is not used, it is malformed: it has no format");
    }

    @Test
    void thePlaceFollowsTheSettings() {
        Map<String, String> properties = new HashMap<>(Map.of("user.home", "/home/x"));
        Map<String, String> variables = new HashMap<>();
        String name = "calibration-some-r-processor-2-ghz-3-vector.properties";
        assertThat(place(properties, variables))
                .hasValue(Path.of("/home/x/.cache/nccl4j").resolve(name));
        variables.put("XDG_CACHE_HOME", "/cache");
        assertThat(place(properties, variables)).hasValue(Path.of("/cache/nccl4j").resolve(name));
        variables.put("XDG_CACHE_HOME", "relative is to be ignored");
        assertThat(place(properties, variables))
                .hasValue(Path.of("/home/x/.cache/nccl4j").resolve(name));
        variables.put(Calibration.VARIABLE, "");
        properties.put(Calibration.PROPERTY, " ");
        assertThat(place(properties, variables))
                .hasValue(Path.of("/home/x/.cache/nccl4j").resolve(name));
        variables.put(Calibration.VARIABLE, "/some/file");
        assertThat(place(properties, variables)).hasValue(Path.of("/some/file"));
        properties.put(Calibration.PROPERTY, "/other/file");
        assertThat(place(properties, variables)).hasValue(Path.of("/other/file"));
        assertThat(place(Map.of(), Map.of())).isEmpty();
    }

    @Test
    void aPathThatIsNoneIsRefused() {
        Map<String, String> variables = Map.of(Calibration.VARIABLE, "a\0b");
        Calibration calibration = Calibration.of(name -> null, variables::get, MACHINE, log);
        assertThat(calibration.file()).isEmpty();
        assertThat(calibration.model()).isEqualTo(CostModel.SHIPPED);
        refused(" is no path: ");
    }

    private Optional<Path> place(Map<String, String> properties, Map<String, String> variables) {
        return Calibration.of(properties::get, variables::get, MACHINE, log).file();
    }

    @Test
    void aFileThatCannotBeWrittenIsSaidBeforeAnythingIsMeasured() throws IOException {
        Path file = Files.createFile(folder.resolve("file"));
        CpuBackend backend = new CpuBackend(new DirectEngine(), CpuDevices.SHARED);
        for (Path target : List.of(folder, file.resolve("below"))) {
            assertThatThrownBy(() ->
                            backend.calibrate(
                                    Optional.of(target),
                                    share -> {
                                        throw new AssertionError("measures");
                                    }))
                    .isInstanceOf(UnsupportedException.class)
                    .hasMessageStartingWith("calibrate: " + target + " cannot be written: ")
                    .hasMessageEndingWith("; name another file");
        }
    }

    /** What a reader sees at some moment is what a kill at that moment leaves. */
    @Test
    @Timeout(60)
    void atEveryMomentTheFileIsWhole() throws Exception {
        Path file = stored();
        String one = Files.readString(file);
        Calibration.store(file, MACHINE, CostModel.SHIPPED, TODAY);
        String other = Files.readString(file);
        AtomicBoolean isRead = new AtomicBoolean();
        Callable<Integer> store =
                () -> {
                    int stored = 0;
                    while (!isRead.get()) {
                        CostModel model = stored++ % 2 == 0 ? MODEL : CostModel.SHIPPED;
                        Calibration.store(file, MACHINE, model, TODAY);
                    }
                    return stored;
                };
        try (ExecutorService storing = Executors.newSingleThreadExecutor()) {
            Future<Integer> stored = storing.submit(store);
            try {
                Set<String> seen = new HashSet<>();
                while (seen.size() < 2) {
                    for (int i = 0; i < 1000; i++) {
                        seen.add(Files.readString(file));
                    }
                }
                assertThat(seen).containsExactlyInAnyOrder(one, other);
            } finally {
                isRead.set(true);
            }
            assertThat(stored.get()).isPositive();
        }
    }

    @Test
    void aBusyMachineLeavesTheEarlierFile() throws IOException {
        Path file = stored();
        String earlier = Files.readString(file);
        RatesFit good = new RatesFit(MODEL.direct(), 0.05, 0.5);
        RatesFit bad = new RatesFit(MODEL.schedules(), 0.6, 0.8);
        for (boolean directIsBad : new boolean[] {true, false}) {
            Calibrator.Result busy =
                    new Calibrator.Result(
                            CostModel.SHIPPED,
                            directIsBad ? bad : good,
                            directIsBad ? good : bad,
                            "",
                            2);
            assertThatThrownBy(() -> CpuBackend.keep(busy, of(file, false), file))
                    .isInstanceOf(UnsupportedException.class)
                    .hasMessageContaining(
                            "the predictions miss the measured times by 60 % in the median")
                    .hasMessageContaining("the machine was busy; repeat with nothing else running")
                    .hasMessageContaining(file + " is as before");
            assertThat(file).hasContent(earlier);
        }
        Calibrator.Result quiet = new Calibrator.Result(CostModel.SHIPPED, good, good, "", 2);
        assertThat(CpuBackend.keep(quiet, of(file, false), file))
                .contains("Written to " + file)
                .doesNotContain("Note that");
        RatesFit doubtful = new RatesFit(MODEL.schedules(), 0.33, 0.8);
        Calibrator.Result noisy = new Calibrator.Result(CostModel.SHIPPED, good, doubtful, "", 2);
        assertThat(CpuBackend.keep(noisy, of(file, false), file))
                .contains(
                        "Note that the predictions miss the measured times by 33 % in the median: if"
                                + " the machine was busy, repeat with nothing else running.\n");
        assertThat(of(file, false).model()).isEqualTo(CostModel.SHIPPED);
        try (var files = Files.list(file.getParent())) {
            assertThat(files).containsExactly(file);
        }
    }

    @Test
    void whoHasCalibratedIsToldWhatToDoWithTheFile() {
        Path found = folder.resolve("found");
        assertThat(of(found, false).use(found))
                .startsWith("Written to " + found + ".\n")
                .contains("chooses by it.\n", "--show-algo", "delete the file")
                .doesNotContain("NCCL4J_CPU_CALIBRATION");
        assertThat(of(found, true).use(found))
                .contains("as long as NCCL4J_CPU_CALIBRATION or -Dnccl4j.cpu.calibration names it");
        Path other = folder.resolve("below/../other");
        for (Path place : Arrays.asList(found, null)) {
            assertThat(of(place, false).use(other))
                    .startsWith("Written to " + folder.resolve("other") + ".\n")
                    .contains("NCCL4J_CPU_CALIBRATION=" + folder.resolve("other") + "\n");
        }
    }

    @Test
    void whatCannotBeReplacedStaysAndNothingIsLeftBesideIt() throws IOException {
        Path file = folder.resolve("taken");
        Files.createDirectories(file.resolve("inside"));
        assertThatThrownBy(() -> Calibration.store(file, MACHINE, MODEL, TODAY))
                .isInstanceOf(IOException.class);
        assertThat(file.resolve("inside")).exists();
        try (var files = Files.list(folder)) {
            assertThat(files).containsExactly(file);
        }
    }
}
