package org.nccl4j.cpu;

import java.util.Optional;
import java.util.function.UnaryOperator;
import org.nccl4j.collectives.DataType;

/**
 * Which loops the reductions of the {@link DirectEngine} use, chosen once per engine: {@link
 * VectorKernels} where {@code jdk.incubator.vector} is there (a JVM started with {@code
 * --add-modules jdk.incubator.vector}), and for all else {@link Kernels}, plain Java that C2
 * vectorises. The system property {@value #PROPERTY} or the environment variable {@value #VARIABLE}
 * overrides: {@code plain}, or {@code vector} for vectors from the first operation on.
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
        return of(System::getProperty, System::getenv);
    }

    static KernelChoice of(UnaryOperator<String> properties, UnaryOperator<String> environment) {
        Optional<Setting> given = Setting.of(PROPERTY, properties, VARIABLE, environment);
        try {
            return named(given.map(Setting::value).orElse(null));
        } catch (IllegalArgumentException e) {
            // Without a setting there is nothing to refuse.
            throw new IllegalArgumentException(given.orElseThrow() + ": " + e.getMessage(), e);
        }
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
                            "it needs a JVM that was started with --add-modules " + MODULE);
                }
                yield vector(false);
            }
            default ->
                    throw new IllegalArgumentException(
                            "there are plain and vector; leave it out for the best of them");
        };
    }

    private static KernelChoice vector(boolean warmsUp) {
        return new KernelChoice(
                true,
                warmsUp,
                "kernels of "
                        + MODULE
                        + " with "
                        + VectorKernels.vectorBits()
                        + " bits, plain ones where there are none"
                        + (warmsUp ? " or the JIT has not compiled them yet" : ""));
    }

    /**
     * Whether HotSpot copies 2.5 MiB and more with stores that pass the caches by, which saves
     * reading what is overwritten: on x86-64 where its vectors have 512 bits. False where there is
     * nobody to tell.
     */
    boolean longCopiesPassCaches() {
        return vectors
                && VectorKernels.vectorBits() == 512
                && System.getProperty("os.arch").equals("amd64");
    }

    /** The name by which the property forces it. */
    String name() {
        return vectors ? "vector" : "plain";
    }

    /** For people. */
    String description() {
        return description;
    }

    /** Whether there is a loop of that shape, if only later. */
    boolean hasVectors(DataType type, Fold fold, int inputs, int outputs) {
        return vectors && VectorKernels.of(type, fold, inputs, outputs) != null;
    }

    /** The loop of a {@link VectorKernel.Shape}, or null if there is none or not yet. */
    VectorKernel vectors(DataType type, Fold fold, int inputs, int outputs) {
        if (!vectors) {
            return null;
        }
        VectorKernel kernel = VectorKernels.of(type, fold, inputs, outputs);
        return kernel == null || !warmsUp || VectorWarmup.isOver(kernel) ? kernel : null;
    }
}
