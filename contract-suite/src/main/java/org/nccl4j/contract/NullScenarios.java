package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InMemoryStore;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.Rendezvous;
import org.nccl4j.collectives.UniqueId;

/** A null is refused like any other wrong argument, before anything has changed. */
final class NullScenarios {
    private static final Duration TIMEOUT = Duration.ofSeconds(1);

    private NullScenarios() {}

    static List<Scenario> all() {
        return List.of(new Scenario("V17-null-arguments", NullScenarios::nullArguments));
    }

    private static void nullArguments(Stage stage) {
        RankSet ranks = stage.ranks(2);
        Rank zero = ranks.rank(0);
        List<Summands> sums = ranks.ranks().stream().map(r -> new Summands(r, 2)).toList();
        whileBusy(stage, ranks);
        Map<String, Runnable> calls = new LinkedHashMap<>();
        addValues(calls);
        addBackend(calls, stage, ranks);
        addRank(calls, stage, zero);
        calls.forEach((name, call) -> {
            refused(name, call);
            assertThat(ranks.isReady()).as("ready after %s", name).isTrue();
            assertThat(zero.stream().poll()).as("nothing enqueued by %s", name).isTrue();
            ranks.onEvery(
                    rank -> assertThat(sums.get(rank.rank()).sum()).as(name).containsExactly(4));
        });
        stage.counts(calls.size());
    }

    private static void refused(String name, Runnable call) {
        assertThatThrownBy(call::run).as(name).isInstanceOf(InvalidArgumentException.class);
    }

    /** Waits with and without something to wait for take no null. */
    private static void whileBusy(Stage stage, RankSet ranks) {
        Rank zero = ranks.rank(0);
        DeviceEvent event = zero.newEvent();
        Summands sum = new Summands(zero, 1);
        Pending<long[]> pending = zero.communicator().exchangeCounts(new long[2]);
        sum.enqueue();
        zero.stream().record(event);
        Map<String, Runnable> waits = new LinkedHashMap<>();
        waits.put("Pending.await", () -> pending.await(null));
        waits.put("DeviceStream.synchronize", () -> zero.stream().synchronize(null));
        waits.put("DeviceEvent.synchronize", () -> event.synchronize(null));
        waits.put(
                "Backend.synchronizeAll",
                () -> stage.backend().synchronizeAll(List.of(zero.stream()), null));
        waits.forEach((name, wait) -> refused(name + ", busy", wait));
        ranks.rank(1).communicator().exchangeCounts(new long[2]).await(RankSet.DEADLINE);
        new Summands(ranks.rank(1), 2).sum();
        pending.await(RankSet.DEADLINE);
        zero.synchronize();
        assertThat(sum.result()).containsExactly(3);
        waits.forEach((name, wait) -> refused(name + ", idle", wait));
        stage.counts(2 * waits.size());
    }

    /** What needs no backend. */
    private static void addValues(Map<String, Runnable> calls) {
        BlockLayout layout = BlockLayout.packed(1, 1);
        InMemoryStore store = new InMemoryStore();
        CommunicatorConfig config = CommunicatorConfig.defaults();
        calls.put("wrap segment", () -> DeviceBuffer.wrap((MemorySegment) null));
        calls.put("wrap buffer", () -> DeviceBuffer.wrap((ByteBuffer) null));
        calls.put("wrap device", () -> DeviceBuffer.wrap(null, 4096, 8));
        calls.put("layout counts", () -> BlockLayout.of(null, new long[] {0}));
        calls.put("layout offsets", () -> BlockLayout.of(new long[] {1}, null));
        calls.put("packed", () -> BlockLayout.packed((long[]) null));
        calls.put("plan send", () -> new AllToAllVPlan(null, layout));
        calls.put("plan receive", () -> new AllToAllVPlan(layout, null));
        calls.put("unique id", () -> new UniqueId(null));
        calls.put("rendezvous store", () -> new Rendezvous(null, "job"));
        calls.put("rendezvous job", () -> new Rendezvous(store, null));
        calls.put("store key", () -> store.setIfAbsent(null, new byte[1]));
        calls.put("store value", () -> store.setIfAbsent("key", null));
        calls.put("store get", () -> store.get(null, Duration.ZERO));
        calls.put("store timeout", () -> store.get("key", null));
        calls.put("config name", () -> config.withName(null));
        calls.put("config timeout", () -> config.withOperationTimeout(null));
        calls.put("scaled type", () -> ReduceOp.preMulSum(null, 2.0));
        calls.put("scaled type, whole", () -> ReduceOp.preMulSum(null, 2));
    }

    private static void addBackend(Map<String, Runnable> calls, Stage stage, RankSet ranks) {
        Backend backend = stage.backend();
        CommunicatorConfig config = CommunicatorConfig.defaults();
        List<Communicator> all = ranks.communicators();
        Communicator zero = all.getFirst();
        List<Communicator> withNull = Arrays.asList(zero, null);
        UniqueId id = backend.newUniqueId();
        int[] two = new int[2];
        long[][] square = new long[2][2];
        calls.put("createLocal config", () -> backend.createLocal(1, null));
        calls.put("create bootstrap", () -> backend.create(null, 0, 1, config));
        calls.put("create config", () -> backend.create(id, 0, 1, null));
        calls.put("group", () -> backend.group(null));
        calls.put("record", () -> backend.record(null));
        calls.put("group communicator", () -> backend.group(group -> group.on(null)));
        calls.put("record communicator", () -> backend.record(group -> group.on(null)));
        calls.put("group stream", () -> backend.group(group -> group.on(zero).barrier(null)));
        calls.put("record stream", () -> backend.record(group -> group.on(zero).barrier(null)));
        calls.put("split communicators", () -> backend.split(null, two, two));
        calls.put("split a communicator", () -> backend.split(withNull, two, two));
        calls.put("split colors", () -> backend.split(all, null, two));
        calls.put("split keys", () -> backend.split(all, two, null));
        calls.put("exchange communicators", () -> backend.exchangeCounts(null, square));
        calls.put("exchange a communicator", () -> backend.exchangeCounts(withNull, square));
        calls.put("exchange counts", () -> backend.exchangeCounts(all, null));
        calls.put("exchange rows", () -> backend.exchangeCounts(all, new long[2][]));
        calls.put("closeAll", () -> backend.closeAll(null));
        calls.put("closeAll a communicator", () -> backend.closeAll(withNull));
        calls.put("synchronizeAll", () -> backend.synchronizeAll(null, TIMEOUT));
        calls.put(
                "synchronizeAll a stream",
                () -> backend.synchronizeAll(Collections.singletonList(null), TIMEOUT));
        if (stage.capabilities().capture()) {
            List<DeviceStream> streams = List.of(ranks.rank(0).stream());
            calls.put("capture streams", () -> backend.capture(null, () -> {}));
            calls.put("capture body", () -> backend.capture(streams, null));
        }
    }

    private static void addRank(Map<String, Runnable> calls, Stage stage, Rank rank) {
        Communicator communicator = rank.communicator();
        DeviceStream stream = rank.stream();
        DeviceEvent event = rank.newEvent();
        DeviceBuffer buffer = rank.newBuffer(8);
        calls.put("exchangeCounts", () -> communicator.exchangeCounts(null));
        calls.put("abort", () -> communicator.abort(null));
        if (stage.capabilities().registration()) {
            calls.put("register", () -> communicator.register(null));
        }
        calls.put("stream record", () -> stream.record(null));
        calls.put("stream waitFor", () -> stream.waitFor(null));
        calls.put("copy source", () -> stream.copy(null, buffer, 4));
        calls.put("copy destination", () -> stream.copy(buffer, null, 4));
        calls.put("fill", () -> stream.fill(null, (byte) 1));
        calls.put("elapsedSince", () -> event.elapsedSince(null));
        // The rest of the operations' arguments is in V17-bad-arguments.
        calls.put("barrier", () -> communicator.barrier(null));
    }
}
