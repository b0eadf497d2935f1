package org.nccl4j.cpu;

import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.nccl4j.collectives.DataType;

/**
 * Which loops the reductions of the {@link DirectEngine} use, chosen once per engine: {@link
 * VectorSums} where {@code jdk.incubator.vector} is there (a JVM started with {@code --add-modules
 * jdk.incubator.vector}), and for all else {@link Kernels}, plain Java that C2 vectorises. The
 * system property {@value #PROPERTY} or the environment variable {@value #VARIABLE} overrides:
 * {@code plain}, or {@code vector} for vectors from the first operation on.
 *
 * <p>Before C2 has compiled it, code that uses the vector module makes an object of each vector and
 * is a hundred times slower. So unless told otherwise a {@link VectorWarmup} brings a reduction
 * there beside the first operations that need it, which use plain kernels.
 *
 * <p>Thread safety: immutable.
 */
final class KernelChoice {
    static final String PROPERTY = "nccl4j.cpu.kernels";
    static final String VARIABLE = "NCCL4J_CPU_KERNELS";
    private static final String MODULE = "jdk.incubator.vector";

    private final boolean vectors;
    private final boolean warmsUp;
    private final String description;

    private KernelChoice(boolean vectors, boolean warmsUp, String description) {
        this.vectors = vectors;
        this.warmsUp = warmsUp;
        this.description = description;
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
        return new KernelChoice(false, false, "plain kernels");
    }

    static boolean hasVectors() {
        return ModuleLayer.boot().findModule(MODULE).isPresent();
    }

    /** A choice by name; null for the best there is. */
    static KernelChoice named(String name) {
        return switch (name) {
            case null -> hasVectors() ? vector(true) : plain();
            case "plain" -> plain();
            case "vector" -> {
                if (!hasVectors()) {
                    throw new IllegalArgumentException(
                            Setting.source(PROPERTY, VARIABLE)
                                    + "=vector needs a JVM that was started with --add-modules "
                                    + MODULE);
                }
                yield vector(false);
            }
            default ->
                    throw new IllegalArgumentException(
                            Setting.source(PROPERTY, VARIABLE)
                                    + "="
                                    + name
                                    + ": there are plain and vector; leave it out for the best of them");
        };
    }

    private static KernelChoice vector(boolean warmsUp) {
        return new KernelChoice(true, warmsUp, "kernels of " + MODULE + " for sums, else plain");
    }

    /** For people. */
    String description() {
        return description;
    }

    /** What combines elements of a type on memory itself, or null if nothing does that yet. */
    VectorSum vectors(DataType type, Fold fold) {
        if (!vectors || fold != Fold.SUM) {
            return null;
        }
        VectorSum sum = Sums.OF_TYPE.get(type);
        return sum == null || !warmsUp || VectorWarmup.isOver(sum) ? sum : null;
    }

    /** What {@link VectorSums} has: shared, because it is code that is warm or is not. */
    private static final class Sums {
        static final Map<DataType, VectorSum> OF_TYPE = load();

        private static Map<DataType, VectorSum> load() {
            Supplier<?> sums;
            try {
                // By name: the class cannot be linked without the module.
                sums =
                        (Supplier<?>)
                                Class.forName("org.nccl4j.cpu.VectorSums")
                                        .getDeclaredConstructor()
                                        .newInstance();
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException("VectorSums is part of this very package", e);
            }
            Map<DataType, VectorSum> byType = new EnumMap<>(DataType.class);
            for (Object each : (List<?>) sums.get()) {
                VectorSum sum = (VectorSum) each;
                byType.put(sum.type(), sum);
            }
            return byType;
        }
    }
}
