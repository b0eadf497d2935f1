package org.nccl4j.cpu;

import java.io.IOException;
import java.io.InputStream;
import java.lang.constant.ConstantDescs;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.util.concurrent.atomic.AtomicReferenceArray;
import jdk.incubator.vector.VectorShape;
import org.nccl4j.collectives.DataType;

/**
 * Makes the loops that use {@code jdk.incubator.vector}. Each is a hidden class made of a template,
 * {@link LaneKernel} or {@link Bfloat16Kernel}, so that for the JIT everything about it is constant
 * and it has a profile of its own: what other types have done before does not matter to it.
 *
 * <p>Thread safety: any thread may call it.
 */
final class VectorKernels {
    private static final MethodHandles.Lookup LOOKUP = MethodHandles.lookup();
    private static final int FOLDS = Fold.values().length;

    /** By type, fold, inputs and outputs. */
    private static final AtomicReferenceArray<VectorKernel> MADE =
            new AtomicReferenceArray<>(
                    DataType.values().length
                            * FOLDS
                            * VectorKernel.MOST_RANGES
                            * VectorKernel.MOST_RANGES);

    static {
        // While no heap segment has been made, the JIT takes each segment for a native one; the
        // first one would cost the program what has been compiled until then.
        MemorySegment.ofArray(new byte[0]);
    }

    private VectorKernels() {}

    /** The size of a vector. */
    static int vectorBits() {
        return VectorShape.preferredShape().vectorBitSize();
    }

    /** The loop of a shape, or null if a plain kernel does that. */
    static VectorKernel of(DataType type, Fold fold, int inputs, int outputs) {
        boolean wraps = fold == Fold.SUM || fold == Fold.PROD;
        if (wraps && type.isFloat() && type.sizeBytes() < 4 && type != DataType.BFLOAT16) {
            return null; // C2 itself converts float16; 8-bit floats are looked up.
        }
        DataType stored = wraps ? signed(type) : type;
        int index = stored.ordinal() * FOLDS + fold.ordinal();
        index = (index * VectorKernel.MOST_RANGES + inputs - 1) * VectorKernel.MOST_RANGES;
        index += outputs - 1;
        VectorKernel made = MADE.get(index);
        if (made != null) {
            return made;
        }
        made = make(new VectorKernel.Shape(stored, fold, inputs, outputs));
        return MADE.compareAndSet(index, null, made) ? made : MADE.get(index);
    }

    /** Two's complement adds and multiplies signed and unsigned integers alike. */
    private static DataType signed(DataType type) {
        return switch (type) {
            case UINT8 -> DataType.INT8;
            case UINT32 -> DataType.INT32;
            case UINT64 -> DataType.INT64;
            default -> type;
        };
    }

    private static VectorKernel make(VectorKernel.Shape shape) {
        boolean arithmetic = shape.fold() == Fold.SUM || shape.fold() == Fold.PROD;
        String template =
                arithmetic && shape.type() == DataType.BFLOAT16 ? "Bfloat16Kernel" : "LaneKernel";
        try (InputStream file = VectorKernels.class.getResourceAsStream(template + ".class")) {
            MethodHandles.Lookup made =
                    LOOKUP.defineHiddenClassWithClassData(file.readAllBytes(), shape, true);
            return made.lookupClass()
                    .asSubclass(VectorKernel.class)
                    .getDeclaredConstructor()
                    .newInstance();
        } catch (IOException | ReflectiveOperationException e) {
            throw new IllegalStateException(template + " is part of this very package", e);
        }
    }

    /** For a template: the shape of the class that is made of it. */
    static VectorKernel.Shape shapeOf(MethodHandles.Lookup template) {
        try {
            return MethodHandles.classData(
                    template, ConstantDescs.DEFAULT_NAME, VectorKernel.Shape.class);
        } catch (IllegalAccessException e) {
            throw new IllegalStateException("a template cannot read its own shape", e);
        }
    }
}
