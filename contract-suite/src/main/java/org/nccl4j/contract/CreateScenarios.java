package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowableOfType;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.nccl4j.collectives.Bootstrap;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.InMemoryStore;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.LoadedLibrary;
import org.nccl4j.collectives.NcclOption;
import org.nccl4j.collectives.NcclOptions;
import org.nccl4j.collectives.Rendezvous;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.collectives.UnsupportedException;

/** How ranks meet: who they are, what they bring, and who is missing or not welcome. */
final class CreateScenarios {
    private CreateScenarios() {}

    static List<Scenario> all() {
        return List.of(
                new Scenario("create-by-unique-id", CreateScenarios::createById),
                new Scenario("create-by-rendezvous", CreateScenarios::createByRendezvous),
                new Scenario("create-with-a-rank-missing", CreateScenarios::missing),
                new Scenario("create-with-a-trace-per-rank", CreateScenarios::traces),
                new Scenario("create-with-a-disagreement", CreateScenarios::disagreement),
                new Scenario("create-with-a-clash", CreateScenarios::clash),
                new Scenario("create-with-nccl-options", CreateScenarios::ncclOptions),
                new Scenario("backend-names-its-libraries", CreateScenarios::libraries));
    }

    /** They change how NCCL does it, never what comes out; others have nothing to change. */
    private static void ncclOptions(Stage stage) {
        NcclOptions options =
                NcclOptions.none().with(NcclOption.MIN_CTAS, 1).with(NcclOption.MAX_CTAS, 4);
        RankSet ranks = stage.ranks(2, config().withNccl(options));
        ranks.onEvery(rank -> {
            assertThat(rank.communicator().config().nccl()).isEqualTo(options);
            assertThat(new Summands(rank, 1, rank.rank()).sum()).containsExactly(2, 1);
        });
        // The ranks need not be of one thread either.
        UniqueId id = stage.backend().newUniqueId();
        CommunicatorConfig bounded = config().withNccl(options);
        RankSet joined =
                create(stage, rank -> id, List.of(bounded.withDevice(0), bounded.withDevice(1)));
        joined.onEvery(rank -> assertThat(new Summands(rank, 3).sum()).containsExactly(6));
    }

    private static void libraries(Stage stage) {
        List<LoadedLibrary> libraries = stage.backend().libraries();
        assertThat(stage.backend().libraries()).isEqualTo(libraries);
        assertThat(libraries.stream().map(LoadedLibrary::name)).doesNotHaveDuplicates();
        for (LoadedLibrary library : libraries) {
            assertThat(library.name()).isNotBlank();
            assertThat(library.version()).as("version of %s", library.name()).matches("\\d+\\..*");
            assertThat(library.versionCode()).as("code of %s", library.name()).isPositive();
            assertThat(Path.of(library.path()))
                    .as("the file of %s", library.name())
                    .isAbsolute()
                    .isRegularFile();
        }
    }

    /** Has ranks join, each with its configuration, and gives their communicators. */
    private static RankSet create(
            Stage stage, Function<Integer, Bootstrap> bootstrap, List<CommunicatorConfig> configs) {
        int size = configs.size();
        stage.needsDevices(size);
        List<Communicator> communicators = new ArrayList<>();
        try (ExecutorService executor = Executors.newCachedThreadPool()) {
            List<Future<Communicator>> made = new ArrayList<>();
            for (int r = 0; r < size; r++) {
                int rank = r;
                made.add(
                        executor.submit(() ->
                                stage.backend()
                                        .create(
                                                bootstrap.apply(rank),
                                                rank,
                                                size,
                                                configs.get(rank))));
            }
            made.forEach(future -> communicators.add(get(future)));
        }
        return stage.closing(RankSet.of(stage.backend(), communicators));
    }

    private static CommunicatorConfig config() {
        return CommunicatorConfig.defaults().withOperationTimeout(Duration.ofSeconds(20));
    }

    /** Each rank has the device and the configuration that it came with, whoever came last. */
    private static void meetAndSum(Stage stage, Function<Integer, Bootstrap> bootstrap) {
        List<CommunicatorConfig> configs =
                List.of(config().withDevice(2), config().withDevice(0), config().withDevice(1));
        RankSet ranks = create(stage, bootstrap, configs);
        for (int r = 0; r < configs.size(); r++) {
            Communicator communicator = ranks.rank(r).communicator();
            assertThat(communicator.rank()).isEqualTo(r);
            assertThat(communicator.size()).isEqualTo(configs.size());
            assertThat(communicator.config()).isEqualTo(configs.get(r));
            assertThat(communicator.device().ordinal())
                    .isEqualTo(configs.get(r).deviceOrdinal().orElseThrow());
        }
        ranks.onEvery(rank -> assertThat(new Summands(rank, 4).sum()).containsExactly(12));
    }

    private static Communicator get(Future<Communicator> future) {
        try {
            return future.get(30, TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            if (e.getCause() instanceof UnsupportedException cause) {
                throw cause;
            }
            throw new AssertionError("a rank could not join", e);
        } catch (Exception e) {
            throw new AssertionError("a rank could not join", e);
        }
    }

    private static void createById(Stage stage) {
        Bootstrap id = stage.backend().newUniqueId();
        meetAndSum(stage, rank -> id);
    }

    private static void createByRendezvous(Stage stage) {
        InMemoryStore store = new InMemoryStore();
        meetAndSum(stage, rank -> new Rendezvous(store, "job-" + stage.seed()));
    }

    private static void traces(Stage stage) {
        UniqueId id = stage.backend().newUniqueId();
        List<Path> files = new ArrayList<>();
        List<CommunicatorConfig> configs = new ArrayList<>();
        for (int r = 0; r < 2; r++) {
            Path file = stage.newFile();
            files.add(file);
            configs.add(config().withDevice(r).withTraceFile(file));
        }
        RankSet ranks;
        try {
            ranks = create(stage, rank -> id, configs);
        } catch (UnsupportedException e) {
            throw stage.unsupported(e.getMessage());
        }
        ranks.onEvery(rank -> assertThat(new Summands(rank, 4).sum()).containsExactly(8));
        stage.backend().closeAll(ranks.communicators());
        assertThat(files).allSatisfy(file -> assertThat(file).isNotEmptyFile());
    }

    /**
     * What two ranks of one communicator want differently.
     *
     * @param one rank 0's configuration
     * @param other rank 1's
     * @param says what the refusal names
     */
    private record Disagreement(
            CommunicatorConfig one, CommunicatorConfig other, List<String> says) {}

    private static void disagreement(Stage stage) {
        stage.needsDevices(2);
        List<Disagreement> disagreements =
                List.of(
                        new Disagreement(
                                config().withName("alice"),
                                config().withName("bob"),
                                List.of("alice", "bob")),
                        new Disagreement(
                                config(),
                                config().withOperationTimeout(Duration.ofSeconds(19)),
                                List.of("19s", "20s")),
                        new Disagreement(
                                config(),
                                config().withAbortOnFailure(false),
                                List.of("abortOnFailure", "true", "false")));
        for (Disagreement disagreement : disagreements) {
            disagree(stage, disagreement);
            stage.counts(1);
        }
    }

    /** One rank is refused; when it comes again as the other wants, they meet. */
    private static void disagree(Stage stage, Disagreement disagreement) {
        UniqueId id = stage.backend().newUniqueId();
        List<Communicator> made = new ArrayList<>();
        try (ExecutorService executor = Executors.newCachedThreadPool()) {
            Future<Communicator> zero =
                    executor.submit(() -> stage.backend().create(id, 0, 2, disagreement.one()));
            Future<Communicator> one =
                    executor.submit(() -> stage.backend().create(id, 1, 2, disagreement.other()));
            boolean zeroRefused = firstDone(zero, one).equals(zero);
            CollectiveException refusal =
                    catchThrowableOfType(
                            CollectiveException.class, () -> unwrap(zeroRefused ? zero : one));
            assertThat(refusal).isInstanceOf(InvalidArgumentException.class);
            assertThat(refusal.getMessage()).contains(disagreement.says());
            CommunicatorConfig agreed = zeroRefused ? disagreement.other() : disagreement.one();
            Communicator again = stage.backend().create(id, zeroRefused ? 0 : 1, 2, agreed);
            Communicator first = get(zeroRefused ? one : zero);
            made.add(zeroRefused ? again : first);
            made.add(zeroRefused ? first : again);
        }
        RankSet ranks = stage.closing(RankSet.of(stage.backend(), made));
        ranks.onEvery(rank -> assertThat(new Summands(rank, 4).sum()).containsExactly(8));
    }

    private static void missing(Stage stage) {
        stage.needsDevices(3);
        Bootstrap id = stage.backend().newUniqueId();
        CommunicatorConfig config =
                CommunicatorConfig.defaults().withOperationTimeout(Duration.ofSeconds(1));
        List<CollectiveTimeoutException> failures = new ArrayList<>();
        try (ExecutorService executor = Executors.newCachedThreadPool()) {
            List<Future<?>> joining = new ArrayList<>();
            for (int rank : new int[] {0, 2}) {
                joining.add(
                        executor.submit(() -> {
                            CollectiveTimeoutException e =
                                    catchThrowableOfType(
                                            CollectiveTimeoutException.class,
                                            () -> stage.backend().create(id, rank, 3, config));
                            synchronized (failures) {
                                failures.add(e);
                            }
                        }));
            }
            for (Future<?> future : joining) {
                try {
                    future.get(30, TimeUnit.SECONDS);
                } catch (Exception e) {
                    throw new AssertionError("create did not end with a timeout", e);
                }
            }
        }
        assertThat(failures).hasSize(2);
        for (CollectiveTimeoutException failure : failures) {
            assertThat(failure).isNotNull();
            assertThat(failure.getMessage()).containsPattern("\\b1\\b");
        }
    }

    private static void clash(Stage stage) {
        stage.needsDevices(2);
        CommunicatorConfig config = config();
        Bootstrap id = stage.backend().newUniqueId();
        for (int wrong : new int[] {-1, 2}) {
            assertThat(Expect.refusal(() -> stage.backend().create(id, wrong, 2, config)))
                    .hasMessageContaining(Integer.toString(wrong));
        }
        try (ExecutorService executor = Executors.newCachedThreadPool()) {
            Future<Communicator> zero =
                    executor.submit(() -> stage.backend().create(id, 0, 2, config));
            // Rank 0 is taken as soon as that thread has joined; whoever comes second is refused.
            Future<Communicator> twin =
                    executor.submit(() -> stage.backend().create(id, 0, 2, config));
            Future<Communicator> refused = firstDone(zero, twin);
            CollectiveException cause =
                    catchThrowableOfType(CollectiveException.class, () -> unwrap(refused));
            assertThat(cause)
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessageContaining("0");
            InvalidArgumentException size =
                    Expect.refusal(() -> stage.backend().create(id, 1, 3, config));
            assertThat(size).hasMessageContaining("2").hasMessageContaining("3");
            List<Communicator> both = new ArrayList<>();
            Communicator one = stage.backend().create(id, 1, 2, config);
            both.add(get(refused.equals(zero) ? twin : zero));
            both.add(one);
            RankSet ranks = stage.closing(RankSet.of(stage.backend(), both));
            ranks.onEvery(rank -> assertThat(new Summands(rank, 4).sum()).containsExactly(8));
        }
    }

    private static Future<Communicator> firstDone(
            Future<Communicator> one, Future<Communicator> other) {
        long end = System.nanoTime() + RankSet.DEADLINE.toNanos();
        while (System.nanoTime() < end) {
            if (one.isDone()) {
                return one;
            }
            if (other.isDone()) {
                return other;
            }
            Thread.onSpinWait();
        }
        throw new AssertionError("two ranks 0 were let in, or none was told");
    }

    private static void unwrap(Future<Communicator> future) {
        try {
            assertThat(future.get()).isNull();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof CollectiveException cause) {
                throw cause;
            }
            throw new AssertionError("an unexpected failure", e.getCause());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new AssertionError("interrupted", e);
        }
    }
}
