package org.nccl4j.examples;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.SplittableRandom;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;

/**
 * Data-parallel training, a thread per GPU: each rank has its own part of the data, computes the
 * gradient of a linear model on it, and averages gradient and loss with the others. The same code
 * runs on GPUs and on the CPU.
 *
 * <p>The model is computed in Java, on the host, because this is about the averaging; a real one
 * leaves its gradients in device memory, and the two copies around the all-reduce go away.
 *
 * <p>Thread safety: {@link #train} may be called from any thread, each with its own communicator.
 */
public final class GradientAveraging {
    private static final int FEATURES = 8;
    private static final int SAMPLES_PER_RANK = 256;
    private static final int STEPS = 100;
    private static final float LEARNING_RATE = 0.1f;
    private static final Duration DEADLINE = Duration.ofSeconds(30);

    private GradientAveraging() {}

    /**
     * What a rank has learnt.
     *
     * @param weights the model, the same bits on every rank
     * @param firstLoss the mean loss of all ranks before the first step
     * @param lastLoss the mean loss of all ranks before the last step
     */
    public record Model(List<Float> weights, float firstLoss, float lastLoss) {}

    /**
     * Trains and prints what came out.
     *
     * @param arguments the backend's name, else the preferred one; the number of ranks, else one
     *     per device
     */
    public static void main(String[] arguments) throws InterruptedException, ExecutionException {
        if (!String.join(" ", arguments).matches("(\\w+( [1-9]\\d{0,8})?)?")) {
            System.err.println(
                    "usage: GradientAveraging [BACKEND [RANKS]], such as GradientAveraging cpu 4; without"
                            + " them on all devices of the preferred backend");
            System.exit(2);
        }
        Backend backend =
                arguments.length > 0 ? Backends.named(arguments[0]) : Backends.preferred();
        int ranks =
                arguments.length > 1 ? Integer.parseInt(arguments[1]) : backend.devices().size();
        if (ranks > backend.deviceLimit()) {
            System.err.println(
                    "usage: GradientAveraging "
                            + backend.name()
                            + " RANKS, from 1 to "
                            + backend.deviceLimit()
                            + " here");
            System.exit(2);
        }
        Model model = run(backend, ranks).getFirst();
        System.out.printf(
                Locale.ROOT,
                "%s, %d ranks: loss %.4f -> %.4f, weights %s%n",
                backend.name(),
                ranks,
                model.firstLoss(),
                model.lastLoss(),
                model.weights());
    }

    /**
     * Trains on the first devices of a backend.
     *
     * @param backend where
     * @param ranks how many of its devices
     * @return each rank's model
     */
    public static List<Model> run(Backend backend, int ranks)
            throws InterruptedException, ExecutionException {
        CommunicatorConfig config = CommunicatorConfig.defaults().withOperationTimeout(DEADLINE);
        List<Communicator> communicators = backend.createLocal(ranks, config);
        try (ExecutorService threads = Executors.newFixedThreadPool(ranks)) {
            List<Future<Model>> running =
                    communicators.stream().map(rank -> threads.submit(() -> train(rank))).toList();
            List<Model> models = new ArrayList<>();
            for (Future<Model> model : running) {
                models.add(model.get());
            }
            return models;
        } finally {
            backend.closeAll(communicators);
        }
    }

    /**
     * Trains as one rank.
     *
     * @param rank its communicator
     * @return the model
     */
    public static Model train(Communicator rank) {
        float[][] samples = samplesOf(rank.rank());
        float[] weights = new float[FEATURES];
        float[] gradient = new float[FEATURES + 1]; // and the loss, so that one all-reduce does it
        float firstLoss = 0;
        long sizeBytes = gradient.length * (long) Float.BYTES;
        // Java cannot touch a GPU's memory: what it computes goes there through pinned host memory.
        try (DeviceStream stream = rank.device().createStream();
                DeviceBuffer onHost = rank.device().allocateHost(sizeBytes);
                DeviceBuffer onDevice = rank.device().allocate(sizeBytes)) {
            MemorySegment averaged = onHost.hostSegment();
            for (int step = 0; step < STEPS; step++) {
                computeGradient(samples, weights, gradient);
                MemorySegment.copy(gradient, 0, averaged, JAVA_FLOAT, 0, gradient.length);

                stream.copy(onHost, onDevice, sizeBytes);
                rank.allReduce(
                        onDevice,
                        onDevice,
                        gradient.length,
                        DataType.FLOAT32,
                        ReduceOp.AVG,
                        stream);
                stream.copy(onDevice, onHost, sizeBytes);
                stream.synchronize(DEADLINE); // all of the above was only enqueued

                for (int i = 0; i < FEATURES; i++) {
                    weights[i] -= LEARNING_RATE * averaged.getAtIndex(JAVA_FLOAT, i);
                }
                firstLoss = step == 0 ? averaged.getAtIndex(JAVA_FLOAT, FEATURES) : firstLoss;
            }
            return new Model(boxed(weights), firstLoss, averaged.getAtIndex(JAVA_FLOAT, FEATURES));
        }
    }

    /** The gradient of half the mean squared error at some weights; behind it the error itself. */
    private static void computeGradient(float[][] samples, float[] weights, float[] gradient) {
        Arrays.fill(gradient, 0);
        for (float[] sample : samples) {
            float error = -sample[FEATURES];
            for (int i = 0; i < FEATURES; i++) {
                error += weights[i] * sample[i];
            }
            for (int i = 0; i < FEATURES; i++) {
                gradient[i] += error * sample[i] / samples.length;
            }
            gradient[FEATURES] += error * error / 2 / samples.length;
        }
    }

    /** A rank's data: features, and a target that is 1, 2, 3, ... times them plus some noise. */
    private static float[][] samplesOf(int rank) {
        SplittableRandom random = new SplittableRandom(rank);
        float[][] samples = new float[SAMPLES_PER_RANK][FEATURES + 1];
        for (float[] sample : samples) {
            for (int i = 0; i < FEATURES; i++) {
                sample[i] = (float) random.nextGaussian();
                sample[FEATURES] += (i + 1) * sample[i];
            }
            sample[FEATURES] += (float) random.nextGaussian() * 0.1f;
        }
        return samples;
    }

    private static List<Float> boxed(float[] values) {
        List<Float> list = new ArrayList<>();
        for (float value : values) {
            list.add(value);
        }
        return list;
    }
}
