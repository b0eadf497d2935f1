package org.nccl4j.nccl;

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
import org.nccl4j.collectives.LoadedLibrary;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.collectives.UnsupportedException;

/**
 * The contract over NCCL and CUDA streams.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
public final class NcclBackend implements Backend {
    /** For {@link java.util.ServiceLoader}; programs use {@code Backends}. */
    public NcclBackend() {}

    @Override
    public String name() {
        return "nccl";
    }

    @Override
    public Availability availability() {
        return NcclSetup.get().availability();
    }

    @Override
    public Capabilities capabilities() {
        return NcclSetup.get().required().capabilities();
    }

    @Override
    public List<LoadedLibrary> libraries() {
        return NcclSetup.get().libraries();
    }

    @Override
    public List<Device> devices() {
        return List.copyOf(NcclSetup.get().required().devices());
    }

    @Override
    public int deviceLimit() {
        return NcclSetup.get().required().devices().size();
    }

    @Override
    public Device device(int ordinal) {
        return NcclSetup.get().required().device(ordinal);
    }

    @Override
    public List<Communicator> createLocal(int ranks, CommunicatorConfig config) {
        NcclSetup.get().required();
        return Initialization.local(ranks, config);
    }

    @Override
    public UniqueId newUniqueId() {
        NcclSetup.get().required();
        return Initialization.newUniqueId();
    }

    @Override
    public Communicator create(Bootstrap bootstrap, int rank, int size, CommunicatorConfig config) {
        NcclSetup.get().required();
        return Initialization.create(bootstrap, rank, size, config);
    }

    @Override
    public void group(Consumer<Group> body) {
        NcclSetup.get().required();
        OpenGroup.record(body).issue();
    }

    @Override
    public RecordedGroup record(Consumer<Group> body) {
        NcclSetup.get().required();
        return OpenGroup.record(body);
    }

    @Override
    public Pending<List<Optional<Communicator>>> split(
            List<Communicator> communicators, int[] colors, int[] keys) {
        NcclSetup.get().required();
        return ListForms.split(communicators, colors, keys);
    }

    @Override
    public Pending<long[][]> exchangeCounts(
            List<Communicator> communicators, long[][] sendCountsElements) {
        NcclSetup.get().required();
        return ListForms.exchangeCounts(communicators, sendCountsElements);
    }

    @Override
    public void closeAll(List<Communicator> communicators) {
        NcclSetup.get().required();
        ListForms.closeAll(communicators);
    }

    @Override
    public Graph capture(List<DeviceStream> streams, Runnable body) {
        NcclSetup.get().required();
        throw new UnsupportedException(
                "the NCCL backend cannot capture graphs yet; use record(body) and issue(); ask"
                        + " Capabilities.capture first");
    }
}
