package org.nccl4j.collectives;

/** A device that has a number and a name and nothing else. */
public record FakeDevice(int ordinal, String name) implements Device {
    /** A device of that number. */
    public FakeDevice(int ordinal) {
        this(ordinal, "Fake");
    }

    @Override
    public String busId() {
        return "0000:00:00";
    }

    @Override
    public Memory memory() {
        throw new UnsupportedOperationException();
    }

    @Override
    public DeviceBuffer allocate(long sizeBytes) {
        throw new UnsupportedOperationException();
    }

    @Override
    public DeviceStream createStream() {
        throw new UnsupportedOperationException();
    }

    @Override
    public DeviceEvent createEvent() {
        throw new UnsupportedOperationException();
    }
}
