package org.nccl4j.contract;

import java.util.ArrayList;
import java.util.List;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;

/**
 * One rank as a scenario sees it: its communicator, a stream, and buffers that are made once and
 * reused. Thread safety: one thread at a time.
 */
final class Rank implements AutoCloseable {
    private static final int FIRST_CAPACITY_BYTES = 1 << 17;

    private final Communicator communicator;
    private final DeviceStream stream;
    private final HostAccess access;
    private final List<DeviceBuffer> regions = new ArrayList<>();
    private final List<AutoCloseable> opened = new ArrayList<>();

    Rank(Communicator communicator) {
        this.communicator = communicator;
        this.stream = communicator.device().createStream();
        this.access = new HostAccess(communicator.device());
    }

    int rank() {
        return communicator.rank();
    }

    int size() {
        return communicator.size();
    }

    Communicator communicator() {
        return communicator;
    }

    Device device() {
        return communicator.device();
    }

    DeviceStream stream() {
        return stream;
    }

    void synchronize() {
        stream.synchronize(RankSet.DEADLINE);
    }

    /** Another stream, closed with this rank. */
    DeviceStream newStream() {
        DeviceStream made = device().createStream();
        opened.add(made);
        return made;
    }

    /** An event, closed with this rank. */
    DeviceEvent newEvent() {
        DeviceEvent made = device().createEvent();
        opened.add(made);
        return made;
    }

    /** A buffer, closed with this rank. */
    DeviceBuffer newBuffer(long sizeBytes) {
        DeviceBuffer made = device().allocate(sizeBytes);
        opened.add(made);
        return made;
    }

    /** Host memory of this rank's device, closed with this rank. */
    DeviceBuffer newHostBuffer(long sizeBytes) {
        DeviceBuffer made = device().allocateHost(sizeBytes);
        opened.add(made);
        return made;
    }

    /** Memory in the order of this rank's stream, closed with this rank. */
    DeviceBuffer newOrderedBuffer(long sizeBytes) {
        DeviceBuffer made = stream.allocate(sizeBytes);
        opened.add(made);
        return made;
    }

    /** A buffer with contents, closed with this rank. */
    DeviceBuffer newBuffer(byte[] contents) {
        DeviceBuffer made = newBuffer(contents.length);
        access.write(contents, made);
        return made;
    }

    /** Memory of at least a size that scenarios share, one after another, under a number. */
    DeviceBuffer region(int number, int sizeBytes) {
        while (regions.size() <= number) {
            regions.add(null);
        }
        DeviceBuffer region = regions.get(number);
        if (region == null || region.sizeBytes() < sizeBytes) {
            if (region != null) {
                region.close();
            }
            region = device().allocate(Math.max(FIRST_CAPACITY_BYTES, sizeBytes));
            regions.set(number, region);
        }
        return region;
    }

    void write(byte[] source, DeviceBuffer destination) {
        access.write(source, destination);
    }

    byte[] read(DeviceBuffer source) {
        return access.read(source, Math.toIntExact(source.sizeBytes()));
    }

    byte[] read(DeviceBuffer source, int sizeBytes) {
        return access.read(source, sizeBytes);
    }

    @Override
    public void close() {
        for (AutoCloseable resource : opened) {
            switch (resource) {
                case DeviceStream s -> s.close();
                case DeviceEvent e -> e.close();
                case DeviceBuffer b -> b.close();
                default -> throw new IllegalStateException(resource.toString());
            }
        }
        for (DeviceBuffer region : regions) {
            if (region != null) {
                region.close();
            }
        }
        access.close();
        stream.close();
    }
}
