package org.nccl4j.bench;

import java.util.List;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;

/**
 * What one rank works with.
 *
 * @param device its device
 * @param communicator its membership among all ranks
 * @param stream where its operations go
 * @param send the largest row's bytes, and the shift of -u
 * @param recv as large
 * @param starts with -I, the event before each iteration and one behind the last
 * @param stops with -I, the event behind each iteration, for the blocking mode that times each on
 *     its own
 */
record BenchRank(
        Device device,
        Communicator communicator,
        DeviceStream stream,
        DeviceBuffer send,
        DeviceBuffer recv,
        List<DeviceEvent> starts,
        List<DeviceEvent> stops) {

    int rank() {
        return communicator.rank();
    }
}
