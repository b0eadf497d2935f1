package org.nccl4j.collectives;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import jdk.jfr.EventType;
import org.junit.jupiter.api.Test;

/** The small values of the contract. */
final class RecordsTest {
    @Test
    void capabilitiesTellWhatIsSupported() {
        Capabilities capabilities = capabilities(true);

        assertThat(capabilities.supports(DataType.INT32, ReduceOp.SUM)).isTrue();
        assertThat(capabilities.supports(DataType.INT32, ReduceOp.AVG)).isFalse();
        assertThat(capabilities.supports(DataType.FLOAT16, ReduceOp.SUM)).isFalse();
        assertThat(capabilities.supports(DataType.INT32, ReduceOp.preMulSum(DataType.INT32, 2L)))
                .isTrue();
        assertThat(capabilities.supports(DataType.INT32, ReduceOp.preMulSum(DataType.INT8, 2L)))
                .isFalse();
        assertThat(
                        capabilities(false)
                                .supports(DataType.INT32, ReduceOp.preMulSum(DataType.INT32, 2L)))
                .isFalse();
    }

    @Test
    void capabilitiesCopyTheirSets() {
        Set<DataType> types = EnumSet.of(DataType.INT8);
        Capabilities capabilities = Capabilities.none().withTypes(types);
        types.add(DataType.INT32);

        assertThat(capabilities.types()).containsExactly(DataType.INT8);
        assertThatThrownBy(() -> Capabilities.none().withTypes(null))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("capabilities need sets, got types null and reductions []");
    }

    private static Capabilities capabilities(boolean preMulSum) {
        return Capabilities.none()
                .withTypes(EnumSet.of(DataType.INT32, DataType.INT8))
                .withReductions(EnumSet.of(ReduceOp.Predefined.SUM))
                .withPreMulSum(preMulSum);
    }

    @Test
    void eachCapabilityIsChangedAlone() {
        Capabilities none = Capabilities.none();
        Set<DataType> types = EnumSet.of(DataType.INT8);
        Set<ReduceOp.Predefined> reductions = EnumSet.of(ReduceOp.Predefined.SUM);

        assertThat(none.withTypes(types)).isEqualTo(capabilities(types, Set.of(), -1));
        assertThat(none.withReductions(reductions))
                .isEqualTo(capabilities(Set.of(), reductions, -1));
        List<Capabilities> changed =
                List.of(
                        none.withPreMulSum(true),
                        none.withMismatchDetection(true),
                        none.withCapture(true),
                        none.withRegistration(true),
                        none.withTrafficCounters(true),
                        none.withHostBuffers(true),
                        none.withFirstUseMayWait(true),
                        none.withPeerFailureDetection(true));
        for (int i = 0; i < changed.size(); i++) {
            assertThat(changed.get(i)).isEqualTo(capabilities(Set.of(), Set.of(), i));
        }
    }

    /** The canonical form, with one of the flags set. */
    private static Capabilities capabilities(
            Set<DataType> types, Set<ReduceOp.Predefined> reductions, int flag) {
        return new Capabilities(
                types,
                reductions,
                flag == 0,
                flag == 1,
                flag == 2,
                flag == 3,
                flag == 4,
                flag == 5,
                flag == 6,
                flag == 7);
    }

    @Test
    void anUnavailableBackendGivesAReason() {
        assertThatThrownBy(() -> new Availability.Unavailable(List.of()))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("an unavailable backend must give a reason");
    }

    @Test
    void trafficIsASnapshotThatAddsUp() {
        long[] sent = {0, 5, 7};
        long[] received = {0, 1, 2};
        Traffic traffic = new Traffic(sent, received);
        sent[1] = 99;
        received[1] = 99;
        traffic.sentBytes()[2] = 99;
        traffic.receivedBytes()[2] = 99;

        assertThat(traffic.sentBytes()).containsExactly(0, 5, 7);
        assertThat(traffic.receivedBytes()).containsExactly(0, 1, 2);
        assertThat(traffic.totalSentBytes()).isEqualTo(12);
        assertThat(traffic.totalReceivedBytes()).isEqualTo(3);
        assertThat(traffic)
                .isEqualTo(new Traffic(new long[] {0, 5, 7}, new long[] {0, 1, 2}))
                .hasSameHashCodeAs(new Traffic(new long[] {0, 5, 7}, new long[] {0, 1, 2}))
                .isNotEqualTo(new Traffic(new long[] {0, 5, 7}, new long[] {0, 1, 3}))
                .isNotEqualTo(new Traffic(new long[] {0, 5, 8}, new long[] {0, 1, 2}))
                .hasToString("Traffic[sentBytes=[0, 5, 7], receivedBytes=[0, 1, 2]]");
    }

    @Test
    void aRendezvousNeedsAStoreAndAName() {
        Store store = new InMemoryStore();

        assertThat(new Rendezvous(store, "job-7").job()).isEqualTo("job-7");
        assertThatThrownBy(() -> new Rendezvous(store, " "))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageStartingWith("a rendezvous needs a store and a job name, got ");
        assertThatThrownBy(() -> new Rendezvous(null, "job-7"))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("a rendezvous needs a store and a job name, got null, job-7");
    }

    @Test
    void theJfrEventIsOffAndWithoutStackTraceUntilAskedFor() {
        EventType type = EventType.getEventType(CollectiveEvent.class);

        assertThat(type.getName()).isEqualTo("org.nccl4j.Collective");
        assertThat(type.isEnabled()).isFalse();
        assertThat(new CollectiveEvent().isEnabled()).isFalse();
        assertThat(type.getSettingDescriptors())
                .filteredOn(setting -> setting.getName().equals("stackTrace"))
                .singleElement()
                .satisfies(setting -> assertThat(setting.getDefaultValue()).isEqualTo("false"));
        assertThat(type.getFields())
                .extracting(field -> field.getName())
                .contains(
                        "communicator",
                        "operation",
                        "sequence",
                        "rank",
                        "size",
                        "countElements",
                        "type",
                        "bytes",
                        "waitNanos",
                        "runNanos");
    }

    @Test
    void aDeviceWithoutNativeStreamsSaysSo() {
        assertThatThrownBy(() -> new FakeDevice(2).wrapStream(0xabc))
                .isInstanceOf(UnsupportedException.class)
                .hasMessage(
                        "device 2 (Fake) has no native streams, so 0xabc cannot be one; use"
                                + " createStream()");
    }
}
