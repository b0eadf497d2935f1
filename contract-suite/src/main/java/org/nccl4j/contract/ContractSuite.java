package org.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.DynamicContainer.dynamicContainer;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BiFunction;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicNode;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;
import org.opentest4j.TestAbortedException;

/**
 * The contract as tests. A backend's module extends it once per engine, algorithm and transport.
 * What the backend does not offer ends as aborted with "unsupported: why", never as passed.
 */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
public abstract class ContractSuite {
    private static final Duration TEST_DEADLINE = Duration.ofSeconds(55);

    /** How much is tested. */
    public enum Tier {
        /** What every backend must pass on every build. */
        CORE,
        /** Also more sizes, ranks and seeds. */
        FULL
    }

    private final Map<Integer, RankSet> rankSets = new HashMap<>();
    private final long seed = Settings.seed();
    private BackendUnderTest underTest;
    private Ledger ledger;

    /** For subclasses. */
    protected ContractSuite() {}

    /**
     * What is tested.
     *
     * @return the backend; called once
     */
    protected abstract BackendUnderTest backendUnderTest();

    /**
     * How much is tested unless the system property {@code nccl4j.contract.tier} says otherwise.
     *
     * @return the tier
     */
    protected Tier tier() {
        return Tier.CORE;
    }

    /**
     * Which of the tier's operations run.
     *
     * @return everything, unless overridden
     */
    protected Extent extent() {
        return Extent.everything();
    }

    /**
     * Which cases and scenarios run; all, unless the system property {@code nccl4j.contract.only}
     * names a part of an id.
     *
     * @param id of a case or scenario
     * @return whether it runs
     */
    protected boolean selects(String id) {
        return Settings.selects(id);
    }

    /**
     * Whether the count of cases is logged and left under target/.
     *
     * @return true, but for tests of the suite itself
     */
    protected boolean isReported() {
        return true;
    }

    /** Takes the backend. */
    @BeforeAll
    public final void open() {
        underTest = backendUnderTest();
        ledger = new Ledger(underTest.label());
    }

    /** Closes the communicators and publishes the count. */
    @AfterAll
    public final void close() {
        try {
            rankSets.values().forEach(RankSet::close);
        } finally {
            if (isReported()) {
                ledger.publish(seed);
            }
        }
        if (ledger.isEmpty() && !Settings.only().isEmpty()) {
            throw new AssertionError(nothingSelected(Settings.only()));
        }
    }

    /** A mistyped id must not pass as a success. */
    static String nothingSelected(String only) {
        String start = only.split("[^A-Za-z0-9]", 2)[0];
        List<String> near =
                Scenarios.all().stream()
                        .map(Scenario::id)
                        .filter(id -> id.startsWith(start + "-"))
                        .toList();
        return "-D"
                + Settings.ONLY
                + "="
                + only
                + " selects nothing: no id contains it; "
                + (near.isEmpty()
                        ? "ids are such as allReduce/FLOAT16/sum/n=5 and "
                                + Scenarios.all().getFirst().id()
                        : "near are " + String.join(", ", near));
    }

    /**
     * All operations, types, reductions, ranks, small sizes, placements.
     *
     * @return a test per operation and type
     */
    @TestFactory
    public final Stream<DynamicNode> operations() {
        TierCases cases = new TierCases(seed);
        Extent extent = extent();
        return perCollectiveAndType(
                extent.types(),
                TierCases.CORE_RANKS,
                (collective, type) ->
                        ranks -> cases.core(collective, type, ranks, extent.countsElements()));
    }

    /**
     * Sizes up to and over 1 MiB.
     *
     * @return a test per operation and type
     */
    @TestFactory
    public final Stream<DynamicNode> wideSizes() {
        if (!extent().wideSizes()) {
            return Stream.of();
        }
        List<DataType> types = new ArrayList<>(TierCases.WIDE_TYPES);
        types.retainAll(extent().types());
        TierCases cases = new TierCases(seed);
        boolean full = Settings.tier(tier()) == Tier.FULL;
        return perCollectiveAndType(
                types,
                TierCases.WIDE_RANKS,
                (collective, type) -> ranks -> cases.wide(collective, type, ranks, full));
    }

    /**
     * More sizes and numbers of ranks.
     *
     * @return a test per operation and type in the full tier, none in the core tier
     */
    @TestFactory
    public final Stream<DynamicNode> fullTier() {
        if (Settings.tier(tier()) == Tier.CORE) {
            return Stream.of();
        }
        TierCases cases = new TierCases(Mix.hash(seed));
        return perCollectiveAndType(
                extent().types(),
                TierCases.FULL_RANKS,
                (collective, type) -> ranks -> cases.full(collective, type, ranks));
    }

    private interface CasesOfRanks {
        List<OperationCase> cases(int ranks);
    }

    private Stream<DynamicNode> perCollectiveAndType(
            List<DataType> types,
            int[] ranksTried,
            BiFunction<Collective, DataType, CasesOfRanks> cases) {
        List<String> only = extent().operations();
        return Stream.of(Collective.values())
                .filter(collective -> only.isEmpty() || only.contains(collective.toString()))
                .map(collective ->
                        dynamicContainer(
                                collective.toString(),
                                types.stream()
                                        .map(type ->
                                                operationsTest(
                                                        collective + " " + type,
                                                        ranksTried,
                                                        cases.apply(collective, type)))));
    }

    private DynamicTest operationsTest(String name, int[] ranksTried, CasesOfRanks casesOfRanks) {
        return dynamicTest(
                name,
                withinDeadline(() -> {
                    Set<String> missing = new TreeSet<>();
                    int ran = 0;
                    for (int ranks : ranksTried) {
                        List<OperationProgram> programs = new ArrayList<>();
                        for (OperationCase operation : casesOfRanks.cases(ranks)) {
                            addSelected(operation, programs, missing);
                        }
                        if (!programs.isEmpty()) {
                            for (DriveMode mode : extent().driveModes()) {
                                run(mode.runner(), ranks, programs);
                            }
                            ran += programs.size();
                        }
                    }
                    if (ran == 0) {
                        throw new TestAbortedException(
                                "unsupported: "
                                        + (missing.isEmpty() ? "nothing is selected" : missing));
                    }
                }));
    }

    private void addSelected(
            OperationCase operation, List<OperationProgram> programs, Set<String> missing) {
        if (!selects(operation.id()) && !selects(operation.asInPlace().id())) {
            return;
        }
        String reason = missing(operation);
        if (reason != null) {
            ledger.unsupported(1, reason);
            missing.add(reason);
            return;
        }
        Values values = OperationProgram.exactValues(operation);
        for (OperationProgram program : OperationProgram.placements(operation, values)) {
            if (selects(program.id())) {
                programs.add(program);
            }
        }
    }

    private void run(RankRunner runner, int ranks, List<OperationProgram> programs) {
        List<RankRunner.Failure> failures = runner.run(rankSet(ranks), programs);
        ledger.ran(programs.size(), Failures.programs(failures));
        Failures.throwIfAny(failures, programs.size(), runner, seed);
    }

    /** Why a case cannot be run here, or null. */
    private String missing(OperationCase operation) {
        Backend backend = underTest.backend();
        if (operation.ranks() > backend.deviceLimit()) {
            return operation.ranks() + " devices";
        }
        if (!backend.capabilities().types().contains(operation.type())) {
            return operation.type().toString();
        }
        if (operation.reduction() != null) {
            ReduceOp operator = operation.reduction().operator(operation.type(), 0);
            if (!backend.capabilities().supports(operation.type(), operator)) {
                return operation.reduction() + " of " + operation.type();
            }
        }
        return null;
    }

    /** The communicator of so many ranks, made anew if the last test broke it. */
    private RankSet rankSet(int ranks) {
        RankSet set = rankSets.get(ranks);
        if (set != null && !set.isReady()) {
            set.close();
            set = null;
        }
        if (set == null) {
            CommunicatorConfig config =
                    CommunicatorConfig.defaults()
                            .withName("contract-" + ranks)
                            .withOperationTimeout(RankRunner.SYNCHRONIZE_TIMEOUT);
            set = RankSet.local(underTest.backend(), ranks, underTest.configured(config));
            rankSets.put(ranks, set);
        }
        return set;
    }

    private static Executable withinDeadline(Executable test) {
        return () -> assertTimeoutPreemptively(TEST_DEADLINE, test);
    }

    /**
     * Stories: streams, groups, failures, cases from the field.
     *
     * @return a test per scenario
     */
    @TestFactory
    public final Stream<DynamicNode> scenarios() {
        return Scenarios.all().stream()
                .filter(scenario -> selects(scenario.id()))
                .map(scenario -> dynamicTest(scenario.id(), withinDeadline(() -> play(scenario))));
    }

    private void play(Scenario scenario) {
        long scenarioSeed = Mix.hash(seed, scenario.id().hashCode());
        CapturedLog log = new CapturedLog();
        try (log;
                Stage stage = new Stage(underTest, ledger, scenarioSeed, log)) {
            playOn(stage, scenario);
        } catch (TestAbortedException e) {
            ledger.unsupported(1, scenario.id() + ": " + e.getMessage());
            throw e;
        } catch (RuntimeException | AssertionError e) {
            ledger.ran(1, 1);
            throw new AssertionError(
                    scenario.id()
                            + " failed; repeat with -D"
                            + Settings.SEED
                            + "="
                            + seed
                            + " -D"
                            + Settings.ONLY
                            + "="
                            + scenario.id()
                            + ": "
                            + e.getMessage()
                            + "\nlogged meanwhile:\n"
                            + log.text(),
                    e);
        }
        ledger.ran(1, 0);
    }

    private static void playOn(Stage stage, Scenario scenario) {
        try {
            scenario.body().accept(stage);
        } catch (RuntimeException | AssertionError e) {
            stage.abandon();
            throw e;
        }
    }
}
