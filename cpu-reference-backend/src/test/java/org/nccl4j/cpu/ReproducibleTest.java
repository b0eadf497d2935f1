package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.ReduceOp;

/**
 * Reproducible mode: what an element comes to depends on the ranks' values alone, not on how many
 * elements go with it, where it stands among them, which reduction brings it, or how many threads
 * move data.
 */
@Timeout(60)
class ReproducibleTest {
    private static final int RANKS = 5;
    private static final int ELEMENTS = 70_000;

    private final long seed = new Random().nextLong();
    private final Random random = new Random(seed);
    private final float[][] values = new float[RANKS][ELEMENTS];
    private final float[] expected = new float[ELEMENTS];

    private void fill() {
        for (int i = 0; i < ELEMENTS; i++) {
            for (int p = 0; p < RANKS; p++) {
                // Large and small ones that cancel, so that any other order gives other bits.
                float size = random.nextBoolean() ? 1e8f : 1f;
                values[p][i] = (random.nextFloat() - 0.5f) * size;
            }
            float sum = values[0][i];
            for (int p = 1; p < RANKS; p++) {
                sum += values[p][i];
            }
            expected[i] = sum;
        }
    }

    private static Engine engine() {
        return EngineSetting.of(
                        Map.of(EngineSetting.REPRODUCIBLE_PROPERTY, "true")::get, name -> null)
                .engine();
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 2, 3, 8})
    void anElementDependsOnItsValuesAlone(int cores) {
        fill();
        try (World world = new World(RANKS, cores, engine(), config -> config)) {
            for (int round = 0; round < 60; round++) {
                int count = round % 3 == 0 ? ELEMENTS : 1 + random.nextInt(1 << random.nextInt(17));
                count = Math.min(count, ELEMENTS);
                int start = random.nextInt(ELEMENTS - count + 1);
                switch (random.nextInt(3)) {
                    case 0 -> allReduce(world, start, count, random.nextBoolean());
                    case 1 -> reduce(world, start, count, random.nextInt(RANKS));
                    default -> reduceScatter(world, start, count / RANKS);
                }
            }
        }
    }

    @Test
    void theInputsTellOrdersApart() {
        fill();
        int different = 0;
        for (int i = 0; i < ELEMENTS; i++) {
            float backwards = values[RANKS - 1][i];
            for (int p = RANKS - 2; p >= 0; p--) {
                backwards += values[p][i];
            }
            different +=
                    Float.floatToIntBits(backwards) == Float.floatToIntBits(expected[i]) ? 0 : 1;
        }
        assertThat(different).as("seed %d", seed).isGreaterThan(ELEMENTS / 4);
    }

    private List<DeviceBuffer> inputs(World world, int start, int count) {
        List<DeviceBuffer> inputs = new ArrayList<>();
        for (int p = 0; p < RANKS; p++) {
            DeviceBuffer buffer = world.zeros(p, Math.max(1, count));
            for (int i = 0; i < count; i++) {
                buffer.hostSegment().setAtIndex(ValueLayout.JAVA_FLOAT, i, values[p][start + i]);
            }
            inputs.add(buffer);
        }
        return inputs;
    }

    private void allReduce(World world, int start, int count, boolean inPlace) {
        List<DeviceBuffer> inputs = inputs(world, start, count);
        List<DeviceBuffer> outputs = inPlace ? inputs : inputs(world, start, count);
        for (int p = 0; p < RANKS; p++) {
            Communicator rank = world.rank(p);
            rank.allReduce(
                    inputs.get(p),
                    outputs.get(p),
                    count,
                    DataType.FLOAT32,
                    ReduceOp.SUM,
                    world.stream(p));
        }
        world.synchronize();
        for (int p = 0; p < RANKS; p++) {
            check(outputs.get(p), start, count, "all-reduce on rank " + p);
        }
        close(inputs, outputs);
    }

    private void reduce(World world, int start, int count, int root) {
        List<DeviceBuffer> inputs = inputs(world, start, count);
        List<DeviceBuffer> outputs = inputs(world, start, count);
        for (int p = 0; p < RANKS; p++) {
            world.rank(p)
                    .reduce(
                            inputs.get(p),
                            outputs.get(p),
                            count,
                            DataType.FLOAT32,
                            ReduceOp.SUM,
                            root,
                            world.stream(p));
        }
        world.synchronize();
        check(outputs.get(root), start, count, "reduce to " + root);
        close(inputs, outputs);
    }

    private void reduceScatter(World world, int start, int each) {
        List<DeviceBuffer> inputs = inputs(world, start, each * RANKS);
        List<DeviceBuffer> outputs = inputs(world, start, each);
        for (int p = 0; p < RANKS; p++) {
            world.rank(p)
                    .reduceScatter(
                            inputs.get(p),
                            outputs.get(p),
                            each,
                            DataType.FLOAT32,
                            ReduceOp.SUM,
                            world.stream(p));
        }
        world.synchronize();
        for (int p = 0; p < RANKS; p++) {
            check(outputs.get(p), start + p * each, each, "reduce-scatter on rank " + p);
        }
        close(inputs, outputs);
    }

    private void check(DeviceBuffer output, int start, int count, String what) {
        for (int i = 0; i < count; i++) {
            int bits = output.hostSegment().getAtIndex(ValueLayout.JAVA_INT, i);
            if (bits != Float.floatToRawIntBits(expected[start + i])) {
                throw new AssertionError(
                        String.format(
                                "%s of %d from %d, element %d: %x, expected %x (seed %d)",
                                what,
                                count,
                                start,
                                i,
                                bits,
                                Float.floatToRawIntBits(expected[start + i]),
                                seed));
            }
        }
    }

    private static void close(List<DeviceBuffer> inputs, List<DeviceBuffer> outputs) {
        inputs.forEach(DeviceBuffer::close);
        outputs.forEach(DeviceBuffer::close);
    }
}
