package org.nccl4j.bench;

import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Bootstrap;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Graph;
import org.nccl4j.collectives.Group;
import org.nccl4j.collectives.LibraryUnavailableException;
import org.nccl4j.collectives.LoadedLibrary;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.UniqueId;

/**
 * NCCL's backend where it cannot be used.
 *
 * @param reasons why not
 * @param failure what everything but asking for the reasons throws
 */
record AbsentBackend(List<String> reasons, LibraryUnavailableException failure) implements Backend {

    @Override
    public String name() {
        return "nccl";
    }

    @Override
    public Availability availability() {
        return new Availability.Unavailable(reasons);
    }

    @Override
    public Capabilities capabilities() {
        throw failure;
    }

    @Override
    public List<LoadedLibrary> libraries() {
        throw failure;
    }

    @Override
    public List<Device> devices() {
        throw failure;
    }

    @Override
    public int deviceLimit() {
        throw failure;
    }

    @Override
    public Device device(int ordinal) {
        throw failure;
    }

    @Override
    public List<Communicator> createLocal(int ranks, CommunicatorConfig config) {
        throw failure;
    }

    @Override
    public UniqueId newUniqueId() {
        throw failure;
    }

    @Override
    public Communicator create(Bootstrap bootstrap, int rank, int size, CommunicatorConfig config) {
        throw failure;
    }

    @Override
    public void group(Consumer<Group> body) {
        throw failure;
    }

    @Override
    public RecordedGroup record(Consumer<Group> body) {
        throw failure;
    }

    @Override
    public Pending<List<Optional<Communicator>>> split(
            List<Communicator> communicators, int[] colors, int[] keys) {
        throw failure;
    }

    @Override
    public Pending<long[][]> exchangeCounts(
            List<Communicator> communicators, long[][] sendCountsElements) {
        throw failure;
    }

    @Override
    public void closeAll(List<Communicator> communicators) {
        throw failure;
    }

    @Override
    public Graph capture(List<DeviceStream> streams, Runnable body) {
        throw failure;
    }
}
