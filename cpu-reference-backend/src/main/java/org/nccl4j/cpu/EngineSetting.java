package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.cpu.schedule.Collective;
import org.nccl4j.cpu.schedule.ScheduleAlgorithm;

/**
 * Which engine runs operations: the one that a communicator's configuration names; else the one
 * that the system property {@value #PROPERTY} or, without it, the environment variable {@value
 * #VARIABLE} names; else the one that chooses for each operation. A name is {@value #AUTO}, {@value
 * #DIRECT}, {@value #REFERENCE}, or one or more algorithms, separated by commas, none twice and no
 * two for one collective. A setting that names what does not exist makes the backend unavailable:
 * to measure another algorithm than the one that was asked for would be worse.
 *
 * <p>In reproducible mode (property {@value #REPRODUCIBLE_PROPERTY} or variable {@value
 * #REPRODUCIBLE_VARIABLE}) it is the direct engine, whose order of additions depends on nothing but
 * the number of ranks; other names are refused.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class EngineSetting {
    static final String PROPERTY = "nccl4j.cpu.algorithm";
    static final String VARIABLE = "NCCL4J_CPU_ALGORITHM";
    static final String REPRODUCIBLE_PROPERTY = "nccl4j.cpu.reproducible";
    static final String REPRODUCIBLE_VARIABLE = "NCCL4J_CPU_REPRODUCIBLE";

    /** The name of the {@link SelectingEngine}, the default. */
    static final String AUTO = "auto";

    /** The name of the {@link ReferenceEngine}. */
    static final String REFERENCE = "reference";

    /** The name of the {@link DirectEngine}. */
    static final String DIRECT = "direct";

    /** The names that stand for all operations. */
    private static final List<String> ENGINES = List.of(AUTO, DIRECT, REFERENCE);

    /** What runs without a name in the configuration; null if there is a refusal. */
    private final Engine engine;

    private final String refusal;

    /** What turned reproducible mode on; null if it is off. */
    private final String reproducible;

    private final Supplier<Calibration> calibration;

    /** By name, so that communicators share prepared runs. */
    private final Map<String, Engine> named = new ConcurrentHashMap<>();

    private EngineSetting(
            Engine engine, String refusal, String reproducible, Supplier<Calibration> calibration) {
        this.engine = engine;
        this.calibration = calibration;
        this.refusal = refusal;
        this.reproducible = reproducible;
        if (engine != null) {
            named.put(engine.name(), engine);
        }
    }

    static EngineSetting of(Engine engine) {
        return new EngineSetting(engine, null, null, Calibration::ofThisMachine);
    }

    /** By property and environment, as {@link Setting} reads them. */
    static EngineSetting of(UnaryOperator<String> properties, UnaryOperator<String> environment) {
        Optional<Setting> fixed =
                Setting.of(REPRODUCIBLE_PROPERTY, properties, REPRODUCIBLE_VARIABLE, environment);
        Optional<Setting> wanted = Setting.of(PROPERTY, properties, VARIABLE, environment);
        Supplier<Calibration> calibration = () -> Calibration.of(properties, environment);
        Setting read = null;
        try {
            String reproducible = null;
            if (fixed.isPresent()) {
                read = fixed.get();
                reproducible = isTrue(read.value()) ? read.toString() : null;
            }
            String name = reproducible == null ? AUTO : DIRECT;
            if (wanted.isPresent()) {
                read = wanted.get();
                name = read.value();
            }
            return new EngineSetting(
                    make(name, reproducible, calibration), null, reproducible, calibration);
        } catch (IllegalArgumentException e) {
            String where = read == null ? "" : read + ": ";
            return new EngineSetting(
                    null, where + e.getMessage() + "; correct or unset it", null, calibration);
        }
    }

    private static boolean isTrue(String value) {
        return switch (value) {
            case "true", "1" -> true;
            case "false", "0" -> false;
            default -> throw new IllegalArgumentException("it is true or false, or 1 or 0");
        };
    }

    private static Engine make(
            String name, String reproducible, Supplier<Calibration> calibration) {
        Engine engine =
                switch (name.strip()) {
                    case AUTO ->
                            // Nothing is left to be chosen in reproducible mode.
                            reproducible == null
                                    ? new SelectingEngine(
                                            calibration, Runtime.getRuntime().availableProcessors())
                                    : new DirectEngine();
                    case DIRECT -> new DirectEngine();
                    case REFERENCE -> new ReferenceEngine();
                    default -> new ScheduleEngine(algorithms(name));
                };
        if (reproducible != null && !engine.name().equals(DIRECT)) {
            throw new IllegalArgumentException(
                    "with "
                            + reproducible
                            + " the order of additions is that of '"
                            + DIRECT
                            + "' and no other: name no algorithm, or turn reproducible mode off");
        }
        return engine;
    }

    /** Why there is no engine, or empty. */
    Optional<String> refusal() {
        return Optional.ofNullable(refusal);
    }

    /** What turned reproducible mode on; empty if it is off. */
    Optional<String> reproducible() {
        return Optional.ofNullable(reproducible);
    }

    /**
     * The engine that is set, or the default.
     *
     * @throws InvalidArgumentException if the setting names none
     */
    Engine engine() {
        if (engine == null) {
            throw new InvalidArgumentException(refusal);
        }
        return engine;
    }

    /**
     * The engine for a communicator.
     *
     * @param algorithm what its configuration names; empty for the one that is set
     * @throws InvalidArgumentException with the names there are, if it or the setting names none
     */
    Engine engine(Optional<String> algorithm) {
        Engine set = engine();
        if (algorithm.isEmpty()) {
            return set;
        }
        String name = algorithm.get();
        Engine known = named.get(name);
        if (known != null) {
            return known;
        }
        try {
            Engine made = make(name, reproducible, calibration);
            Engine before = named.putIfAbsent(name, made);
            return before == null ? made : before;
        } catch (IllegalArgumentException e) {
            throw new InvalidArgumentException("algorithm '" + name + "': " + e.getMessage());
        }
    }

    /** Where the calibration is or would be. */
    Calibration calibration() {
        return calibration.get();
    }

    private static List<ScheduleAlgorithm> algorithms(String value) {
        List<String> known = new ArrayList<>(ENGINES);
        for (ScheduleAlgorithm algorithm : ScheduleAlgorithm.values()) {
            known.add(algorithm.title());
        }
        Set<ScheduleAlgorithm> chosen = new LinkedHashSet<>();
        for (String part : value.split(",", -1)) {
            String name = part.strip();
            if (ENGINES.contains(name)) {
                throw new IllegalArgumentException(
                        "'" + name + "' is for all operations: name it alone, or leave it out");
            }
            if (!chosen.add(
                    ScheduleAlgorithm.named(name)
                            .orElseThrow(
                                    () -> new IllegalArgumentException(unknown(name, known))))) {
                throw new IllegalArgumentException("'" + name + "' is named twice: name it once");
            }
        }
        return List.copyOf(chosen);
    }

    /**
     * The algorithm that is meant for a collective.
     *
     * @param name its name; empty for the one that is described first
     * @throws InvalidArgumentException with the names there are; it tells what runs without steps
     *     from what does not exist
     */
    static ScheduleAlgorithm algorithm(Collective collective, Optional<String> name) {
        List<String> titles = ScheduleAlgorithm.titles(collective);
        String wanted = name.orElse(titles.getFirst());
        if (ENGINES.contains(wanted)) {
            throw new InvalidArgumentException(
                    collective.title()
                            + ": "
                            + (wanted.equals(AUTO)
                                    ? "'auto' chooses for each operation; bench --show-algo tells"
                                            + " which it takes"
                                    : "'"
                                            + wanted
                                            + "' has no steps to show, see docs/algorithms.md for how"
                                            + " it works")
                            + "; with steps there are "
                            + String.join(", ", titles));
        }
        if (!titles.contains(wanted)) {
            throw new InvalidArgumentException(collective.title() + ": " + unknown(wanted, titles));
        }
        return ScheduleAlgorithm.named(wanted).orElseThrow();
    }

    /**
     * The collective that is meant.
     *
     * @param operation its name, in any spelling of case, dashes and underscores
     * @throws InvalidArgumentException with the names there are
     */
    static Collective collective(String operation) {
        List<String> titles = new ArrayList<>();
        for (Collective collective : Collective.values()) {
            if (plain(collective.title()).equals(plain(operation))) {
                return collective;
            }
            titles.add(collective.title());
        }
        throw new InvalidArgumentException(
                "no algorithm is described for '"
                        + operation
                        + "', only for "
                        + String.join(", ", titles)
                        + nearest(operation, titles));
    }

    /**
     * The kind of operation that is meant, of those that an engine runs.
     *
     * @param operation its name, in any spelling of case, dashes and underscores
     * @throws InvalidArgumentException with the names there are
     */
    static OperationKind operation(String operation) {
        List<String> names = new ArrayList<>();
        for (OperationKind kind : OperationKind.values()) {
            if (kind == OperationKind.SPLIT || kind == OperationKind.EXCHANGE_COUNTS) {
                continue;
            }
            if (plain(kind.operation()).equals(plain(operation))) {
                return kind;
            }
            names.add(kind.operation());
        }
        throw new InvalidArgumentException(
                "there is no operation '"
                        + operation
                        + "', only "
                        + String.join(", ", names)
                        + nearest(operation, names));
    }

    private static String plain(String name) {
        return name.toLowerCase(Locale.ROOT).replace("-", "").replace("_", "");
    }

    private static String unknown(String name, List<String> known) {
        return "there is no algorithm '"
                + name
                + "', only "
                + String.join(", ", known)
                + nearest(name, known);
    }

    /** " (did you mean x?)" if a name is at most a third of its letters away. */
    private static String nearest(String name, List<String> known) {
        String best = "";
        int least = Math.max(2, name.length() / 3) + 1;
        for (String candidate : known) {
            int distance = distance(plain(name), plain(candidate));
            if (distance < least) {
                least = distance;
                best = candidate;
            }
        }
        return best.isEmpty() ? "" : " (did you mean " + best + "?)";
    }

    /** Insertions, deletions and replacements between two words. */
    private static int distance(String a, String b) {
        int[] row = new int[b.length() + 1];
        Arrays.setAll(row, i -> i);
        for (int i = 1; i <= a.length(); i++) {
            int diagonal = row[0];
            row[0] = i;
            for (int j = 1; j <= b.length(); j++) {
                int replaced = diagonal + (a.charAt(i - 1) == b.charAt(j - 1) ? 0 : 1);
                diagonal = row[j];
                row[j] = Math.min(replaced, 1 + Math.min(row[j], row[j - 1]));
            }
        }
        return row[b.length()];
    }
}
