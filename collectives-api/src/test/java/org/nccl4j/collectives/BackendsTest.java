package org.nccl4j.collectives;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.text.MessageFormat;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.ResourceBundle;
import java.util.ServiceConfigurationError;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;

final class BackendsTest {
    private final RecordingLogger log = new RecordingLogger();

    private static final class RecordingLogger implements System.Logger {
        final List<String> lines = new ArrayList<>();

        @Override
        public String getName() {
            return "test";
        }

        @Override
        public boolean isLoggable(Level level) {
            return true;
        }

        @Override
        public void log(Level level, ResourceBundle bundle, String message, Throwable thrown) {
            lines.add(level + " " + message + " <- " + thrown);
        }

        @Override
        public void log(Level level, ResourceBundle bundle, String format, Object... values) {
            lines.add(level + " " + MessageFormat.format(format, values));
        }
    }

    @Test
    void aBackendIsFoundByName() {
        Backend cpu = FakeBackend.available("cpu", "fine");

        assertThat(Backends.named("cpu", List.of(FakeBackend.unavailable("nccl", "no"), cpu)))
                .isSameAs(cpu);
    }

    @Test
    void anUnavailableBackendGivesItsReasons() {
        assertThatThrownBy(() ->
                        Backends.named(
                                "nccl",
                                List.of(
                                        FakeBackend.available("cpu", "fine"),
                                        FakeBackend.unavailable(
                                                "nccl",
                                                "libnccl.so.2 not found, install it",
                                                "no GPU"))))
                .isInstanceOf(LibraryUnavailableException.class)
                .hasMessage(
                        "backend 'nccl' is not available here:\n  libnccl.so.2 not found, install it\n"
                                + "  no GPU");
    }

    @Test
    void anUnknownNameListsWhatIsThere() {
        List<Backend> backends =
                List.of(FakeBackend.unavailable("nccl", "no"), FakeBackend.available("cpu", "x"));

        assertThatThrownBy(() -> Backends.named("gpu", backends))
                .isInstanceOf(LibraryUnavailableException.class)
                .hasMessage(
                        "no backend 'gpu' is installed; found [cpu, nccl]; add its jar to the"
                                + " module or class path");
        assertThatThrownBy(() -> Backends.named(null, List.of()))
                .isInstanceOf(LibraryUnavailableException.class)
                .hasMessageStartingWith("no backend 'null' is installed; found []");
    }

    @Test
    void ncclIsPreferredWhereItIsAvailable() {
        Backend nccl = FakeBackend.available("nccl", "2.30.7, 8 GPUs");

        assertThat(Backends.preferred(List.of(FakeBackend.available("cpu", "x"), nccl), log))
                .isSameAs(nccl);
        assertThat(log.lines).containsExactly("INFO nccl4j uses backend nccl: 2.30.7, 8 GPUs");
    }

    @Test
    void elseTheCpuIsTakenAndOneLineSaysWhy() {
        Backend cpu = FakeBackend.available("cpu", "2 cores, {0} isn't a format");

        assertThat(
                        Backends.preferred(
                                List.of(
                                        FakeBackend.available("other", "never asked for"),
                                        cpu,
                                        FakeBackend.unavailable(
                                                "nccl", "no driver; install one", "no GPU")),
                                log))
                .isSameAs(cpu);
        assertThat(log.lines)
                .containsExactly(
                        "INFO nccl4j uses backend cpu: 2 cores, {0} isn't a format (not nccl: no"
                                + " driver; no GPU)",
                        "DEBUG backend not taken, nccl: no driver; install one; no GPU");
    }

    @Test
    void withoutAnyTheReasonsOfEachAreGiven() {
        assertThatThrownBy(() ->
                        Backends.preferred(
                                List.of(
                                        FakeBackend.unavailable("cpu", "no memory"),
                                        FakeBackend.unavailable("nccl", "no GPU")),
                                log))
                .isInstanceOf(LibraryUnavailableException.class)
                .hasMessage("no backend is available: cpu: no memory\n  nccl: no GPU");
        assertThatThrownBy(() -> Backends.preferred(List.of(), log))
                .isInstanceOf(LibraryUnavailableException.class)
                .hasMessage(
                        "no backend is installed; add a backend's jar, such as that of"
                                + " nccl4j-cpu-reference-backend, to the module or class path");
        assertThat(log.lines).isEmpty();
    }

    @Test
    void aProviderThatCannotBeConstructedIsLoggedAndLeftOut() {
        Backend good = FakeBackend.available("cpu", "fine");
        List<Supplier<Backend>> steps =
                List.of(
                        () -> {
                            throw new ServiceConfigurationError("broken jar");
                        },
                        () -> good);
        Iterator<Supplier<Backend>> step = steps.iterator();
        Iterator<Backend> providers =
                new Iterator<>() {
                    @Override
                    public boolean hasNext() {
                        return step.hasNext();
                    }

                    @Override
                    public Backend next() {
                        return step.next().get();
                    }
                };

        assertThat(Backends.load(providers, log)).containsExactly(good);
        assertThat(log.lines)
                .containsExactly(
                        "ERROR a backend cannot be constructed and is left out: broken jar <-"
                                + " java.util.ServiceConfigurationError: broken jar");
    }

    @Test
    void onAClassPathBackendsAreFoundByServiceLoader() throws Exception {
        try (URLClassLoader path = classPath()) {
            Class<?> backends = path.loadClass(Backends.class.getName());
            Object installed = backends.getMethod("installed").invoke(null);
            Object preferred = backends.getMethod("preferred").invoke(null);

            assertThat((Iterable<?>) installed).hasSize(2).anyMatch(preferred::equals);
            assertThat(preferred.getClass().getName()).isEqualTo(FakeBackend.Cpu.class.getName());
            assertThat(backends.getMethod("installed").invoke(null)).isSameAs(installed);
        }
    }

    @Test
    void synchronizeAllHasOneDeadlineForAll() {
        List<Duration> asked = new ArrayList<>();
        DeviceStream stream =
                new FakeStream(new FakeDevice(0)) {
                    @Override
                    public void synchronize(Duration timeout) {
                        asked.add(timeout);
                    }
                };
        Backend backend = FakeBackend.available("cpu", "fine");
        Duration hour = Duration.ofHours(1);

        backend.synchronizeAll(List.of(stream, stream, stream), hour);
        assertThat(asked).hasSize(3).isSortedAccordingTo((a, b) -> b.compareTo(a));
        assertThat(asked).allMatch(timeout -> timeout.compareTo(hour) <= 0);

        asked.clear();
        backend.synchronizeAll(List.of(stream, stream), Duration.ofSeconds(-5));
        assertThat(asked).containsExactly(Duration.ZERO, Duration.ZERO);

        asked.clear();
        backend.synchronizeAll(List.of(stream), Duration.ofSeconds(Long.MAX_VALUE));
        assertThat(asked.getFirst()).isGreaterThan(Duration.ofDays(365));
    }

    /**
     * The module and its tests on the class path of a loader of their own. Its parent is the boot
     * loader, because all others know the module that runs this test.
     */
    private static URLClassLoader classPath() throws IOException {
        return new URLClassLoader(
                new URL[] {
                    Path.of("target", "classes").toUri().toURL(),
                    Path.of("target", "test-classes").toUri().toURL()
                },
                null);
    }
}
