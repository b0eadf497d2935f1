package org.nccl4j.examples;

import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.ReduceOp;

/**
 * The README's example as a whole file: the average of three numbers over four ranks in one thread,
 * on the CPU. It needs no other class than those of the contract.
 */
public final class Average {
    private Average() {}

    /**
     * Averages and prints rank 0's result.
     *
     * @param arguments none
     */
    public static void main(String[] arguments) {
        System.out.println(Arrays.toString(averageOfRanks()));
    }

    static float[] averageOfRanks() {
        Backend backend = Backends.named("cpu"); // preferred() takes the GPUs where there are some
        CommunicatorConfig config =
                CommunicatorConfig.defaults().withOperationTimeout(Duration.ofSeconds(30));
        List<Communicator> ranks = backend.createLocal(4, config);
        List<DeviceBuffer> gradients = new ArrayList<>();
        List<DeviceStream> streams = new ArrayList<>();
        try {
            for (Communicator rank : ranks) {
                DeviceBuffer gradient = rank.device().allocate(3 * Float.BYTES);
                for (int i = 0; i < 3; i++) {
                    gradient.hostSegment().setAtIndex(JAVA_FLOAT, i, rank.rank() + i);
                }
                gradients.add(gradient);
                streams.add(rank.device().createStream());
            }
            // One thread drives all ranks, so their calls go into one group. It only enqueues.
            backend.group(group -> {
                for (Communicator rank : ranks) {
                    DeviceBuffer gradient = gradients.get(rank.rank());
                    DeviceStream stream = streams.get(rank.rank());
                    group.on(rank)
                            .allReduce(
                                    gradient, gradient, 3, DataType.FLOAT32, ReduceOp.AVG, stream);
                }
            });
            backend.synchronizeAll(streams, Duration.ofSeconds(30));
            return gradients.get(0).hostSegment().toArray(JAVA_FLOAT); // 1.5, 2.5, 3.5 on each rank
        } finally {
            backend.closeAll(ranks);
            streams.forEach(DeviceStream::close);
            gradients.forEach(DeviceBuffer::close);
        }
    }
}
