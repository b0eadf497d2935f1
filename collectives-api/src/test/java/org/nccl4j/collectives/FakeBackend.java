package org.nccl4j.collectives;

import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;

/** A backend that has a name and an availability and nothing else. */
public class FakeBackend implements Backend {
    private final String name;
    private final Availability availability;

    /** A backend of that name. */
    public FakeBackend(String name, Availability availability) {
        this.name = name;
        this.availability = availability;
    }

    static FakeBackend available(String name, String summary) {
        return new FakeBackend(name, new Availability.Available(summary));
    }

    static FakeBackend unavailable(String name, String... reasons) {
        return new FakeBackend(name, new Availability.Unavailable(List.of(reasons)));
    }

    /** Listed in META-INF/services. */
    public static final class Cpu extends FakeBackend {
        /** For ServiceLoader. */
        public Cpu() {
            super("cpu", new Availability.Available("fake"));
        }
    }

    /** Listed in META-INF/services. */
    public static final class Nccl extends FakeBackend {
        /** For ServiceLoader. */
        public Nccl() {
            super("nccl", new Availability.Unavailable(List.of("no GPU")));
        }
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public Availability availability() {
        return availability;
    }

    @Override
    public Capabilities capabilities() {
        throw new UnsupportedOperationException();
    }

    @Override
    public List<Device> devices() {
        throw new UnsupportedOperationException();
    }

    @Override
    public int deviceLimit() {
        throw new UnsupportedOperationException();
    }

    @Override
    public Device device(int ordinal) {
        throw new UnsupportedOperationException();
    }

    @Override
    public List<Communicator> createLocal(int ranks, CommunicatorConfig config) {
        throw new UnsupportedOperationException();
    }

    @Override
    public UniqueId newUniqueId() {
        throw new UnsupportedOperationException();
    }

    @Override
    public Communicator create(Bootstrap bootstrap, int rank, int size, CommunicatorConfig config) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void group(Consumer<Group> body) {
        throw new UnsupportedOperationException();
    }

    @Override
    public RecordedGroup record(Consumer<Group> body) {
        throw new UnsupportedOperationException();
    }

    @Override
    public Pending<List<Optional<Communicator>>> split(
            List<Communicator> communicators, int[] colors, int[] keys) {
        throw new UnsupportedOperationException();
    }

    @Override
    public Pending<long[][]> exchangeCounts(
            List<Communicator> communicators, long[][] sendCountsElements) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void closeAll(List<Communicator> communicators) {
        throw new UnsupportedOperationException();
    }

    @Override
    public Graph capture(List<DeviceStream> streams, Runnable body) {
        throw new UnsupportedOperationException();
    }
}
