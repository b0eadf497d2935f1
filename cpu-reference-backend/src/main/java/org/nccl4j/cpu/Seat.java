package org.nccl4j.cpu;

import java.io.IOException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.UnsupportedException;

/**
 * What one rank brings to a new communicator.
 *
 * @param device where it is
 * @param config how it was asked for; name, timeout, abortOnFailure and algorithm are the same on
 *     all ranks
 * @param trace where its steps are written, or null
 */
record Seat(CpuDevice device, CommunicatorConfig config, TraceWriter trace) {
    /**
     * A seat whose trace file, if it has one, is opened now. Lock not held, for that may take long.
     */
    static Seat of(CpuDevice device, CommunicatorConfig config) {
        if (config.traceFile().isEmpty()) {
            return new Seat(device, config, null);
        }
        try {
            return new Seat(
                    device, config, TraceWriter.open(config.traceFile().get(), config.name()));
        } catch (IOException e) {
            throw new UnsupportedException(
                    "communicator '"
                            + config.name()
                            + "': trace file "
                            + config.traceFile().get()
                            + " cannot be written: "
                            + e,
                    e);
        }
    }

    /** The seat in a part of its communicator. Touches no file. */
    Seat inPart(String name) {
        return new Seat(device, config, trace == null ? null : trace.forCommunicator(name));
    }
}
