package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.nccl4j.collectives.DataType;

/**
 * Which loops the reductions of the {@link DirectEngine} use, chosen once per engine: {@link
 * VectorFolds} where {@code jdk.incubator.vector} is there (a JVM started with {@code --add-modules
 * jdk.incubator.vector}), and for all else {@link Kernels}, plain Java that C2 vectorises. The
 * system property {@value #PROPERTY} or the environment variable {@value #VARIABLE} overrides:
 * {@code plain} or {@code vector}.
 *
 * <p>Thread safety: immutable.
 */
final class KernelChoice {
    static final String PROPERTY = "nccl4j.cpu.kernels";
    static final String VARIABLE = "NCCL4J_CPU_KERNELS";
    private static final String MODULE = "jdk.incubator.vector";

    private final Map<DataType, Map<Fold, VectorFold>> vectors = new EnumMap<>(DataType.class);
    private final String description;

    private KernelChoice(List<VectorFold> folds, String description) {
        this.description = description;
        for (VectorFold each : folds) {
            vectors.computeIfAbsent(each.type(), type -> new EnumMap<>(Fold.class))
                    .put(each.fold(), each);
        }
    }

    /**
     * By property and environment.
     *
     * @throws IllegalArgumentException if they name what is not there
     */
    static KernelChoice ofThisProcess() {
        return named(Setting.value(PROPERTY, VARIABLE));
    }

    static KernelChoice plain() {
        return new KernelChoice(List.of(), "plain kernels");
    }

    static boolean hasVectors() {
        return ModuleLayer.boot().findModule(MODULE).isPresent();
    }

    /** A choice by name; null for the best there is. */
    static KernelChoice named(String name) {
        return switch (name) {
            case null -> hasVectors() ? vector() : plain();
            case "plain" -> plain();
            case "vector" -> {
                if (!hasVectors()) {
                    throw new IllegalArgumentException(
                            Setting.source(PROPERTY, VARIABLE)
                                    + "=vector needs a JVM that was started with --add-modules "
                                    + MODULE);
                }
                yield vector();
            }
            default ->
                    throw new IllegalArgumentException(
                            Setting.source(PROPERTY, VARIABLE)
                                    + "="
                                    + name
                                    + ": there are plain and vector; leave it out for the best of them");
        };
    }

    private static KernelChoice vector() {
        Supplier<?> folds;
        try {
            // By name: the class cannot be linked without the module.
            folds =
                    (Supplier<?>)
                            Class.forName("org.nccl4j.cpu.VectorFolds")
                                    .getDeclaredConstructor()
                                    .newInstance();
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("VectorFolds is part of this very package", e);
        }
        List<VectorFold> all = new ArrayList<>();
        for (Object each : (List<?>) folds.get()) {
            all.add((VectorFold) each);
        }
        return new KernelChoice(all, "kernels of " + MODULE + " for sums, else plain");
    }

    /** For people. */
    String description() {
        return description;
    }

    /** What combines elements of a type on memory itself, or null. */
    VectorFold vectors(DataType type, Fold fold) {
        Map<Fold, VectorFold> ofType = vectors.get(type);
        return ofType == null ? null : ofType.get(fold);
    }
}
