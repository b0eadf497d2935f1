package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.function.UnaryOperator;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.cpu.schedule.Collective;
import org.nccl4j.cpu.schedule.ScheduleAlgorithm;

/**
 * Which engine runs operations: the reference engine, unless the system property {@value #PROPERTY}
 * or, without it, the environment variable {@value #VARIABLE} names {@value #DIRECT} or one or more
 * algorithms, separated by commas, no two for one collective. A name that does not exist makes the
 * backend unavailable: to measure another algorithm than the one that was asked for would be worse.
 *
 * <p>Thread safety: immutable.
 */
final class EngineSetting {
    static final String PROPERTY = "nccl4j.cpu.algorithm";
    static final String VARIABLE = "NCCL4J_CPU_ALGORITHM";

    /** The name of the default. */
    static final String REFERENCE = "reference";

    /** The name of the {@link DirectEngine}. */
    static final String DIRECT = "direct";

    private final Engine engine;
    private final String refusal;

    private EngineSetting(Engine engine, String refusal) {
        this.engine = engine;
        this.refusal = refusal;
    }

    static EngineSetting of(Engine engine) {
        return new EngineSetting(engine, null);
    }

    /** By property and environment; either function gives null for what is not set. */
    static EngineSetting of(UnaryOperator<String> properties, UnaryOperator<String> environment) {
        String value = properties.apply(PROPERTY);
        String origin = "system property " + PROPERTY;
        if (value == null) {
            value = environment.apply(VARIABLE);
            origin = "environment variable " + VARIABLE;
        }
        if (value == null || value.equals(REFERENCE)) {
            return of(new ReferenceEngine());
        }
        try {
            return of(
                    value.equals(DIRECT)
                            ? new DirectEngine()
                            : new ScheduleEngine(algorithms(value)));
        } catch (IllegalArgumentException e) {
            return new EngineSetting(
                    null, origin + "=" + value + ": " + e.getMessage() + "; correct or unset it");
        }
    }

    /** Why there is no engine, or empty. */
    Optional<String> refusal() {
        return Optional.ofNullable(refusal);
    }

    /**
     * The engine.
     *
     * @throws InvalidArgumentException if the setting names none
     */
    Engine engine() {
        if (engine == null) {
            throw new InvalidArgumentException(refusal);
        }
        return engine;
    }

    private static List<ScheduleAlgorithm> algorithms(String value) {
        List<ScheduleAlgorithm> chosen = new ArrayList<>();
        for (String name : value.split(",", -1)) {
            List<String> known = new ArrayList<>();
            known.add(REFERENCE);
            known.add(DIRECT);
            for (ScheduleAlgorithm algorithm : ScheduleAlgorithm.values()) {
                known.add(algorithm.title());
            }
            chosen.add(
                    ScheduleAlgorithm.named(name.strip())
                            .orElseThrow(() ->
                                    new IllegalArgumentException(unknown(name.strip(), known))));
        }
        return chosen;
    }

    /**
     * The algorithm that is meant for a collective.
     *
     * @param name its name; empty for the one that is described first
     * @throws InvalidArgumentException with the names there are
     */
    static ScheduleAlgorithm algorithm(Collective collective, Optional<String> name) {
        List<String> titles = ScheduleAlgorithm.titles(collective);
        String wanted = name.orElse(titles.getFirst());
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
