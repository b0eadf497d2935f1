package org.nccl4j.cpu;

import static jdk.incubator.vector.VectorOperators.ADD;
import static jdk.incubator.vector.VectorOperators.AND;
import static jdk.incubator.vector.VectorOperators.LSHL;
import static jdk.incubator.vector.VectorOperators.LSHR;
import static jdk.incubator.vector.VectorOperators.MUL;
import static jdk.incubator.vector.VectorOperators.OR;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.nio.ByteOrder;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;

/**
 * The loop for sums and products of bfloat16, two per int. A bfloat16 is the upper half of a
 * float32, whose 24 bits are so many that what is rounded there and once more to 8 bits is the
 * correctly rounded result. A template, as {@link LaneKernel}.
 *
 * <p>Rounding is to nearest, ties to even: the bits grow by half of the last place, or just less if
 * that is even, and the lower half is cut off. A NaN stays one: it is an operand's or the
 * processor's own, so its lower half is 0 and nothing is carried into the upper.
 *
 * <p>All of it is written out in one method, and constants are vectors, because the JIT gives up
 * inlining the methods of a class after some hundred vector operations, but not those of the vector
 * module.
 */
final class Bfloat16Kernel extends VectorKernel {
    private static final Shape SHAPE = VectorKernels.shapeOf(MethodHandles.lookup());
    private static final int INPUTS = SHAPE.inputs();
    private static final int OUTPUTS = SHAPE.outputs();
    private static final ByteOrder ORDER = ByteOrder.nativeOrder();
    private static final VectorSpecies<Integer> INTS = IntVector.SPECIES_PREFERRED;
    private static final VectorSpecies<Float> FLOATS = FloatVector.SPECIES_PREFERRED;
    private static final int STEP_BYTES = INTS.vectorByteSize();

    private static final VectorOperators.Binary COMBINE = SHAPE.fold() == Fold.PROD ? MUL : ADD;

    private static final int UPPER_HALF = 0xffff_0000;

    /** What rounds an even upper half; an odd one needs one more. */
    private static final int ROUNDING_BIAS = 0x7fff;

    Bfloat16Kernel() {}

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
        FloatVector by = FloatVector.broadcast(FLOATS, (float) Double.longBitsToDouble(factor));
        IntVector upperHalf = IntVector.broadcast(INTS, UPPER_HALF);
        IntVector one = IntVector.broadcast(INTS, 1);
        IntVector bias = IntVector.broadcast(INTS, ROUNDING_BIAS);
        for (int at = 0; at < sizeBytes; at += STEP_BYTES) {
            IntVector pair = IntVector.fromMemorySegment(INTS, from, fromAt + at, ORDER);
            IntVector upper =
                    pair.lanewise(AND, upperHalf)
                            .reinterpretAsFloats()
                            .lanewise(MUL, by)
                            .reinterpretAsInts();
            upper =
                    upper.lanewise(LSHR, 16)
                            .lanewise(AND, one)
                            .lanewise(ADD, bias)
                            .lanewise(ADD, upper)
                            .lanewise(AND, upperHalf);
            IntVector lower =
                    pair.lanewise(LSHL, 16)
                            .reinterpretAsFloats()
                            .lanewise(MUL, by)
                            .reinterpretAsInts();
            lower =
                    lower.lanewise(LSHR, 16)
                            .lanewise(AND, one)
                            .lanewise(ADD, bias)
                            .lanewise(ADD, lower)
                            .lanewise(AND, upperHalf);
            lower.lanewise(LSHR, 16).lanewise(OR, upper).intoMemorySegment(to, toAt + at, ORDER);
        }
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
        MemorySegment b = from[next];
        MemorySegment c = INPUTS > 2 ? from[next + 1] : b;
        MemorySegment d = INPUTS > 3 ? from[next + 2] : b;
        MemorySegment y = OUTPUTS > 1 ? to[first + 1] : output;
        MemorySegment x = OUTPUTS > 2 ? to[first + 2] : output;
        MemorySegment w = OUTPUTS > 3 ? to[first + 3] : output;
        // Also tells the JIT, by the profile of these very calls, which class each of them has.
        if (!(input.isNative() && b.isNative() && c.isNative() && d.isNative())
                || !(w.isNative() && x.isNative() && y.isNative() && output.isNative())) {
            throw new IllegalArgumentException("kernels need native memory");
        }
        long bAt = fromAt[next] + skipBytes;
        long cAt = INPUTS > 2 ? fromAt[next + 1] + skipBytes : 0;
        long dAt = INPUTS > 3 ? fromAt[next + 2] + skipBytes : 0;
        long yAt = OUTPUTS > 1 ? toAt[first + 1] + skipBytes : 0;
        long xAt = OUTPUTS > 2 ? toAt[first + 2] + skipBytes : 0;
        long wAt = OUTPUTS > 3 ? toAt[first + 3] + skipBytes : 0;
        IntVector upperHalf = IntVector.broadcast(INTS, UPPER_HALF);
        IntVector one = IntVector.broadcast(INTS, 1);
        IntVector bias = IntVector.broadcast(INTS, ROUNDING_BIAS);
        // No slices as in LaneKernel: there is more to be done for each load.
        for (int at = 0; at < sizeBytes; at += STEP_BYTES) {
            IntVector pair = IntVector.fromMemorySegment(INTS, input, inputAt + at, ORDER);
            IntVector upper = pair.lanewise(AND, upperHalf);
            IntVector lower = pair.lanewise(LSHL, 16);
            pair = IntVector.fromMemorySegment(INTS, b, bAt + at, ORDER);
            upper =
                    pair.lanewise(AND, upperHalf)
                            .reinterpretAsFloats()
                            .lanewise(COMBINE, upper.reinterpretAsFloats())
                            .reinterpretAsInts();
            upper =
                    upper.lanewise(LSHR, 16)
                            .lanewise(AND, one)
                            .lanewise(ADD, bias)
                            .lanewise(ADD, upper)
                            .lanewise(AND, upperHalf);
            lower =
                    pair.lanewise(LSHL, 16)
                            .reinterpretAsFloats()
                            .lanewise(COMBINE, lower.reinterpretAsFloats())
                            .reinterpretAsInts();
            lower =
                    lower.lanewise(LSHR, 16)
                            .lanewise(AND, one)
                            .lanewise(ADD, bias)
                            .lanewise(ADD, lower)
                            .lanewise(AND, upperHalf);
            if (INPUTS > 2) {
                pair = IntVector.fromMemorySegment(INTS, c, cAt + at, ORDER);
                upper =
                        pair.lanewise(AND, upperHalf)
                                .reinterpretAsFloats()
                                .lanewise(COMBINE, upper.reinterpretAsFloats())
                                .reinterpretAsInts();
                upper =
                        upper.lanewise(LSHR, 16)
                                .lanewise(AND, one)
                                .lanewise(ADD, bias)
                                .lanewise(ADD, upper)
                                .lanewise(AND, upperHalf);
                lower =
                        pair.lanewise(LSHL, 16)
                                .reinterpretAsFloats()
                                .lanewise(COMBINE, lower.reinterpretAsFloats())
                                .reinterpretAsInts();
                lower =
                        lower.lanewise(LSHR, 16)
                                .lanewise(AND, one)
                                .lanewise(ADD, bias)
                                .lanewise(ADD, lower)
                                .lanewise(AND, upperHalf);
            }
            if (INPUTS > 3) {
                pair = IntVector.fromMemorySegment(INTS, d, dAt + at, ORDER);
                upper =
                        pair.lanewise(AND, upperHalf)
                                .reinterpretAsFloats()
                                .lanewise(COMBINE, upper.reinterpretAsFloats())
                                .reinterpretAsInts();
                upper =
                        upper.lanewise(LSHR, 16)
                                .lanewise(AND, one)
                                .lanewise(ADD, bias)
                                .lanewise(ADD, upper)
                                .lanewise(AND, upperHalf);
                lower =
                        pair.lanewise(LSHL, 16)
                                .reinterpretAsFloats()
                                .lanewise(COMBINE, lower.reinterpretAsFloats())
                                .reinterpretAsInts();
                lower =
                        lower.lanewise(LSHR, 16)
                                .lanewise(AND, one)
                                .lanewise(ADD, bias)
                                .lanewise(ADD, lower)
                                .lanewise(AND, upperHalf);
            }
            pair = lower.lanewise(LSHR, 16).lanewise(OR, upper);
            pair.intoMemorySegment(output, outputAt + at, ORDER);
            if (OUTPUTS > 1) {
                pair.intoMemorySegment(y, yAt + at, ORDER);
            }
            if (OUTPUTS > 2) {
                pair.intoMemorySegment(x, xAt + at, ORDER);
            }
            if (OUTPUTS > 3) {
                pair.intoMemorySegment(w, wAt + at, ORDER);
            }
        }
    }
}
