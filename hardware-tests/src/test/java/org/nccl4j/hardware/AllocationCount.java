package org.nccl4j.hardware;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.io.IOException;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.nccl4j.bindings.NativeLibrary;
import org.nccl4j.bindings.nccl.Nccl;
import org.nccl4j.bindings.nccl.NcclByAddress;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Backends;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.ReduceOp;

/**
 * A program that counts what calls allocate on the calling thread. It is for a JVM without C2,
 * whose escape analysis removes objects or leaves them as its budgets and profiles have it: what
 * this program finds to allocate nothing has no object in it that would have to be removed.
 */
final class AllocationCount {
    /** What it says of calls by segments, which do allocate: that it sees what there is. */
    static final String BY_SEGMENTS = "a bare call with segments made for it";

    private static final int CALLS = 20_000;

    /** In the first ones classes come, and rings grow to what is ever under way. */
    private static final int ROUNDS = 10;

    private static final long WRAPPED_BYTES = 1024;
    private static final long LEGACY_STREAM = 1;

    private static final com.sun.management.ThreadMXBean THREADS =
            (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();

    private final Backend backend = Backends.named("nccl");
    private final List<String> lines = new ArrayList<>();

    private AllocationCount() {}

    /** Argument: a file, for a line per kind of call: the bytes of a call, a tab, and its name. */
    public static void main(String[] args) throws IOException {
        AllocationCount count = new AllocationCount();
        count.bareCalls();
        count.ranks("blocking", CommunicatorConfig.defaults());
        count.ranks("non-blocking", CommunicatorConfig.defaults().withBlocking(false));
        MethodHandle beLate =
                NativeLibrary.NCCL.function(
                        "nccl4j_stub_be_late", FunctionDescriptor.ofVoid(JAVA_INT));
        try {
            beLate.invokeExact(3);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
        count.ranks("non-blocking and late", CommunicatorConfig.defaults().withBlocking(false));
        Files.write(Path.of(args[0]), count.lines);
    }

    private void count(String name, Runnable call) {
        long least = Long.MAX_VALUE;
        for (int round = 0; round < ROUNDS && least > 0; round++) {
            long before = THREADS.getCurrentThreadAllocatedBytes();
            for (int i = 0; i < CALLS; i++) {
                call.run();
            }
            least = Math.min(least, THREADS.getCurrentThreadAllocatedBytes() - before);
        }
        lines.add((double) least / CALLS + "\t" + name);
    }

    private void count(String name, StubRanks ranks, StubRanks.Operation operation) {
        count(name, () -> ranks.enqueue(operation));
    }

    /** What the JDK's linker needs by itself. */
    private void bareCalls() {
        int type = DataType.FLOAT32.ordinal();
        long address = 4096;
        count(
                "a bare call by address",
                () -> NcclByAddress.ncclAllGather(address, address, 1, type, address, address));
        count(
                BY_SEGMENTS,
                () ->
                        Nccl.ncclAllGather(
                                MemorySegment.ofAddress(address),
                                MemorySegment.ofAddress(address),
                                1,
                                type,
                                MemorySegment.ofAddress(address),
                                MemorySegment.ofAddress(address)));
    }

    private void ranks(String mode, CommunicatorConfig config) {
        try (StubRanks ranks = StubRanks.open(backend, StubRanks.RANKS, config);
                StubRanks others = StubRanks.open(backend, StubRanks.RANKS, config);
                StubRanks alone = StubRanks.open(backend, 1, config)) {
            List<StubRanks.Case> operations = StubRanks.operations().toList();
            for (StubRanks.Case each : operations) {
                count(mode + ": " + each, ranks, each.operation());
            }
            // So that whatever is kept of the last call is of another one.
            StubRanks.Case[] all = operations.toArray(StubRanks.Case[]::new);
            count(
                    mode + ": all of them in turn",
                    () -> {
                        for (int i = 0; i < all.length; i++) {
                            ranks.enqueue(all[i].operation());
                        }
                    });
            StubRanks.Operation first = all[0].operation();
            count(mode + ": of a single rank", () -> alone.enqueue(first));
            composed(mode, ranks);
            groups(mode, ranks);
            places(mode, ranks, others);
            streams(mode, ranks);
        }
    }

    /** What NCCL has no function for. */
    private void composed(String mode, StubRanks ranks) {
        BlockLayout layout = BlockLayout.packed(3, 5);
        AllToAllVPlan plan = new AllToAllVPlan(BlockLayout.packed(3, 5), BlockLayout.packed(3, 4));
        DataType type = DataType.FLOAT32;
        count(mode + ": allGatherV", ranks, (c, s, r, q) -> c.allGatherV(s, r, layout, type, q));
        count(
                mode + ": reduceScatterV",
                ranks,
                (c, s, r, q) -> c.reduceScatterV(s, r, layout, type, ReduceOp.SUM, q));
        count(mode + ": allToAllV", ranks, (c, s, r, q) -> c.allToAllV(s, r, plan, type, q));
        count(mode + ": sendRecv", ranks, (c, s, r, q) -> c.sendRecv(s, 1, 1, r, 2, 1, type, q));
        ReduceOp half = ReduceOp.preMulSum(type, 0.5);
        ReduceOp quarter = ReduceOp.preMulSum(type, 0.25);
        count(
                mode + ": two pre-multiplied sums in turn",
                ranks,
                (c, s, r, q) -> {
                    c.allReduce(s, r, 1, type, half, q);
                    c.allReduce(s, r, 1, type, quarter, q);
                });
    }

    private void groups(String mode, StubRanks ranks) {
        count(mode + ": a recorded group", ranks.group()::issue);
        Communicator rank = ranks.communicators().getFirst();
        DeviceStream stream = ranks.streams().getFirst();
        RecordedGroup single = backend.record(group -> group.on(rank).barrier(stream));
        count(mode + ": a recorded group of one operation", single::issue);
        BlockLayout layout = BlockLayout.packed(3, 5);
        RecordedGroup composed =
                backend.record(group ->
                        group.on(rank)
                                .allGatherV(
                                        ranks.whole().getFirst(),
                                        ranks.part().getFirst(),
                                        layout,
                                        DataType.FLOAT32,
                                        stream));
        count(mode + ": a recorded group of allGatherV", composed::issue);
    }

    /** Communicators, streams and buffers in turn. */
    private void places(String mode, StubRanks ranks, StubRanks others) {
        DataType type = DataType.FLOAT32;
        DeviceStream stream = ranks.streams().getFirst();
        DeviceStream second = others.streams().getFirst();
        count(
                mode + ": two communicators in turn on one stream",
                () -> {
                    ranks.communicators().getFirst().barrier(stream);
                    stream.poll();
                    others.communicators().getFirst().barrier(stream);
                    stream.poll();
                });
        count(
                mode + ": two streams in turn",
                () -> {
                    ranks.communicators().getFirst().barrier(stream);
                    ranks.communicators().getFirst().barrier(second);
                });
        // Not the current device, so that contexts are changed; each operation is marked there.
        Communicator rank = ranks.communicators().get(1);
        try (DeviceStream foreign = rank.device().wrapStream(LEGACY_STREAM);
                DeviceBuffer wrapped =
                        DeviceBuffer.wrap(
                                rank.device(), ranks.whole().get(1).address(), WRAPPED_BYTES)) {
            count(
                    mode + ": a stream and memory of others",
                    () -> {
                        rank.allReduce(wrapped, wrapped, 1, type, ReduceOp.SUM, foreign);
                        foreign.poll();
                    });
        }
    }

    private void streams(String mode, StubRanks ranks) {
        DeviceStream stream = ranks.streams().getFirst();
        DeviceStream second = ranks.streams().get(1);
        try (DeviceEvent event = stream.device().createEvent()) {
            count(
                    mode + ": an event",
                    () -> {
                        stream.record(event);
                        second.waitFor(event);
                        event.poll();
                    });
        }
        count(mode + ": looks at a stream", stream::poll);
        Duration patience = Duration.ofSeconds(10);
        count(mode + ": a wait that finds all done", () -> stream.synchronize(patience));
    }
}
