package org.nccl4j.cpu;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.nio.ByteOrder;
import jdk.incubator.vector.ByteVector;
import jdk.incubator.vector.DoubleVector;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.LongVector;
import jdk.incubator.vector.ShortVector;
import jdk.incubator.vector.Vector;
import jdk.incubator.vector.VectorMask;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;
import org.nccl4j.collectives.DataType;

/**
 * The loop for reductions that one vector instruction does on a lane per element: sums and products
 * of integers, float32 and float64, and every minimum and maximum. A template: {@link
 * VectorKernels} makes a hidden class of it for each shape, in which all that follows from the
 * shape is constant.
 *
 * <p>Minimum and maximum of floats are those of integer keys. A float's bits with the magnitude
 * inverted if the sign is set compare as signed integers the way floats do, -0 before +0; a NaN
 * gets the key that loses every comparison, so that it survives only where all are NaN.
 */
final class LaneKernel extends VectorKernel {
    private static final Shape SHAPE = VectorKernels.shapeOf(MethodHandles.lookup());
    private static final DataType TYPE = SHAPE.type();
    private static final int INPUTS = SHAPE.inputs();
    private static final int OUTPUTS = SHAPE.outputs();
    private static final ByteOrder ORDER = ByteOrder.nativeOrder();

    private static final boolean LOWEST = SHAPE.fold() == Fold.MIN;
    private static final boolean EXTREME = LOWEST || SHAPE.fold() == Fold.MAX;
    private static final boolean KEYS = TYPE.isFloat() && EXTREME;
    private static final VectorOperators.Binary COMBINE = combination();
    private static final VectorSpecies<Number> SPECIES = species();
    private static final int STEP_BYTES = SPECIES.vectorByteSize();

    private static final int SIGN_BIT = TYPE.sizeBytes() * Byte.SIZE - 1;

    /** All bits but the sign. */
    private static final long MAGNITUDE = (1L << SIGN_BIT) - 1;

    /** The largest magnitude that is no NaN; that of infinity, where there is one. */
    private static final long LARGEST =
            switch (TYPE) {
                case FLOAT8E4M3 -> 0x7e;
                case FLOAT8E5M2 -> 0x7c;
                case FLOAT16 -> 0x7c00;
                case BFLOAT16 -> 0x7f80;
                case FLOAT32 -> 0x7f80_0000L;
                default -> 0x7ff0_0000_0000_0000L;
            };

    private static final long NAN_KEY = LOWEST ? MAGNITUDE : ~MAGNITUDE;

    LaneKernel() {}

    private static VectorOperators.Binary combination() {
        boolean signed = TYPE.isFloat() || TYPE.isSigned();
        return switch (SHAPE.fold()) {
            case SUM -> VectorOperators.ADD;
            case PROD -> VectorOperators.MUL;
            case MIN -> signed ? VectorOperators.MIN : VectorOperators.UMIN;
            case MAX -> signed ? VectorOperators.MAX : VectorOperators.UMAX;
        };
    }

    /** Lanes are Numbers to the compiler; what they are follows from the constant. */
    @SuppressWarnings("unchecked")
    private static VectorSpecies<Number> species() {
        VectorSpecies<?> species =
                switch (TYPE.sizeBytes()) {
                    case 1 -> ByteVector.SPECIES_PREFERRED;
                    case 2 -> ShortVector.SPECIES_PREFERRED;
                    case 4 ->
                            TYPE == DataType.FLOAT32 && !KEYS
                                    ? FloatVector.SPECIES_PREFERRED
                                    : IntVector.SPECIES_PREFERRED;
                    default ->
                            TYPE == DataType.FLOAT64 && !KEYS
                                    ? DoubleVector.SPECIES_PREFERRED
                                    : LongVector.SPECIES_PREFERRED;
                };
        return (VectorSpecies<Number>) species;
    }

    @Override
    Shape shape() {
        return SHAPE;
    }

    @Override
    int stepBytes() {
        return STEP_BYTES;
    }

    @Override
    void scale(
            MemorySegment from,
            long fromAt,
            long factor,
            MemorySegment to,
            long toAt,
            int sizeBytes) {
        if (!(from.isNative() && to.isNative())) {
            throw new IllegalArgumentException("kernels need native memory");
        }
        Vector<Number> by = broadcast(factor);
        MemorySegment source = from.asSlice(fromAt, sizeBytes);
        MemorySegment target = to.asSlice(toAt, sizeBytes);
        for (int at = 0; at < sizeBytes; at += STEP_BYTES) {
            SPECIES.fromMemorySegment(source, at, ORDER)
                    .lanewise(VectorOperators.MUL, by)
                    .intoMemorySegment(target, at, ORDER);
        }
    }

    @SuppressWarnings("unchecked")
    private static Vector<Number> broadcast(long factor) {
        Vector<?> by =
                switch (TYPE) {
                    case FLOAT32 ->
                            FloatVector.broadcast(
                                    FloatVector.SPECIES_PREFERRED,
                                    (float) Double.longBitsToDouble(factor));
                    case FLOAT64 ->
                            DoubleVector.broadcast(
                                    DoubleVector.SPECIES_PREFERRED,
                                    Double.longBitsToDouble(factor));
                    default -> SPECIES.broadcast(factor);
                };
        return (Vector<Number>) by;
    }

    @Override
    void combine(
            MemorySegment input,
            long inputAt,
            MemorySegment[] from,
            long[] fromAt,
            int next,
            MemorySegment output,
            long outputAt,
            MemorySegment[] to,
            long[] toAt,
            int first,
            long skipBytes,
            int sizeBytes) {
        // Slices, so that all are at the same place: it takes C2 less to find out that what each
        // step touches is within them, and it makes no objects of them.
        MemorySegment a = input.asSlice(inputAt, sizeBytes);
        MemorySegment b = slice(from, fromAt, next, skipBytes, sizeBytes);
        MemorySegment c = INPUTS > 2 ? slice(from, fromAt, next + 1, skipBytes, sizeBytes) : b;
        MemorySegment d = INPUTS > 3 ? slice(from, fromAt, next + 2, skipBytes, sizeBytes) : b;
        MemorySegment z = output.asSlice(outputAt, sizeBytes);
        MemorySegment y = OUTPUTS > 1 ? slice(to, toAt, first + 1, skipBytes, sizeBytes) : z;
        MemorySegment x = OUTPUTS > 2 ? slice(to, toAt, first + 2, skipBytes, sizeBytes) : z;
        MemorySegment w = OUTPUTS > 3 ? slice(to, toAt, first + 3, skipBytes, sizeBytes) : z;
        // Also tells the JIT, by the profile of these very calls, which class each of them has.
        if (!(a.isNative() && b.isNative() && c.isNative() && d.isNative())
                || !(w.isNative() && x.isNative() && y.isNative() && z.isNative())) {
            throw new IllegalArgumentException("kernels need native memory");
        }
        // As vectors, because operations with a number make larger code for the JIT to digest.
        Vector<Number> magnitudes = KEYS ? SPECIES.broadcast(MAGNITUDE) : null;
        Vector<Number> largest = KEYS ? SPECIES.broadcast(LARGEST) : null;
        Vector<Number> nanKey = KEYS ? SPECIES.broadcast(NAN_KEY) : null;
        for (int at = 0; at < sizeBytes; at += STEP_BYTES) {
            Vector<Number> sum = load(a, at, magnitudes, largest, nanKey);
            sum = sum.lanewise(COMBINE, load(b, at, magnitudes, largest, nanKey));
            if (INPUTS > 2) {
                sum = sum.lanewise(COMBINE, load(c, at, magnitudes, largest, nanKey));
            }
            if (INPUTS > 3) {
                sum = sum.lanewise(COMBINE, load(d, at, magnitudes, largest, nanKey));
            }
            if (KEYS) {
                sum = invertNegative(sum, magnitudes);
            }
            sum.intoMemorySegment(z, at, ORDER);
            if (OUTPUTS > 1) {
                sum.intoMemorySegment(y, at, ORDER);
            }
            if (OUTPUTS > 2) {
                sum.intoMemorySegment(x, at, ORDER);
            }
            if (OUTPUTS > 3) {
                sum.intoMemorySegment(w, at, ORDER);
            }
        }
    }

    private static MemorySegment slice(
            MemorySegment[] segments, long[] at, int index, long skipBytes, int sizeBytes) {
        return segments[index].asSlice(at[index] + skipBytes, sizeBytes);
    }

    private static Vector<Number> load(
            MemorySegment from,
            long at,
            Vector<Number> magnitudes,
            Vector<Number> largest,
            Vector<Number> nanKey) {
        Vector<Number> x = SPECIES.fromMemorySegment(from, at, ORDER);
        if (!KEYS) {
            return x;
        }
        Vector<Number> magnitude = x.lanewise(VectorOperators.AND, magnitudes);
        VectorMask<Number> nan = magnitude.compare(VectorOperators.GT, largest);
        if (TYPE == DataType.FLOAT8E5M2) {
            // Infinity saturates: to the float before it.
            x = x.lanewise(VectorOperators.SUB, 1, magnitude.compare(VectorOperators.EQ, largest));
        }
        return invertNegative(x, magnitudes).blend(nanKey, nan);
    }

    /** From a float's bits to its key, and back. */
    private static Vector<Number> invertNegative(Vector<Number> x, Vector<Number> magnitudes) {
        return x.lanewise(VectorOperators.XOR, magnitudes, x.test(VectorOperators.IS_NEGATIVE));
    }
}
