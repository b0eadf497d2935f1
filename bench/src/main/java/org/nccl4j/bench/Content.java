package org.nccl4j.bench;

import java.util.Arrays;
import org.nccl4j.collectives.DataType;

/**
 * A sequence of elements that can be computed at any place of it: what an operation reads, or what
 * it must have written. Nothing is stored, so checking needs no second copy of the buffers.
 *
 * <p>Thread safety: immutable; any thread may generate any part.
 */
@FunctionalInterface
interface Content {

    /** All bits zero. */
    Content ZEROS = (firstIndex, bits, count) -> Arrays.fill(bits, 0, count, 0);

    /**
     * Computes a run of elements.
     *
     * @param firstIndex the index of the first element in the sequence
     * @param bits receives each element's stored bits, in the low bits; the bits above the
     *     element's width are unspecified
     * @param count how many, at most {@link Mixer#BLOCK}
     */
    void generate(long firstIndex, long[] bits, int count);

    /**
     * Elements for operations that only copy: uniform random bits for integers, for floats random
     * sign and mantissa and an exponent from the middle half of the range, so never NaN, infinite,
     * zero or subnormal.
     *
     * @param seed chooses the sequence
     */
    static Content copyPattern(DataType type, long seed) {
        long start = Mixer.start(seed);
        if (!type.isFloat()) {
            return (firstIndex, bits, count) -> Mixer.fill(start, firstIndex, bits, count);
        }
        FloatLayout layout = new FloatLayout(type);
        return (firstIndex, bits, count) -> {
            Mixer.fill(start, firstIndex, bits, count);
            for (int i = 0; i < count; i++) {
                bits[i] = layout.ordinary(bits[i]);
            }
        };
    }
}
