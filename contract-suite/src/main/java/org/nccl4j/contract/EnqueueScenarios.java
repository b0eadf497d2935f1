package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.RecordedGroup;
import org.nccl4j.collectives.ReduceOp;

/** Calls that enqueue return at once, whether they are the first ones or make the work ready. */
final class EnqueueScenarios {
    private static final DataType TYPE = DataType.INT32;
    private static final Duration LIMIT = Duration.ofMillis(10);

    /** Odd, so that there is a median. */
    private static final int ATTEMPTS = 7;

    /** So many that whoever runs their all-reduce of one element exceeds the limit. */
    private static final int VERY_MANY_RANKS = 512;

    private static final int MANY_RANKS = 64;

    private EnqueueScenarios() {}

    static List<Scenario> all() {
        return List.of(new Scenario("stream-enqueue-returns-at-once", EnqueueScenarios::twoRanks));
    }

    /** To be told last: so many devices may leave little memory for each until they are gone. */
    static List<Scenario> ofManyRanks() {
        return List.of(new Scenario("stream-enqueue-with-many-ranks", EnqueueScenarios::manyRanks));
    }

    /** One thread's call for some ranks: a plain one for one rank, a group's for several. */
    private interface Call {
        void enqueue(List<Member> some);
    }

    /** One rank's part in a call. */
    private interface Part {
        void enqueue(Operations on, Member member);
    }

    /**
     * A kind of call.
     *
     * @param name names it in failures
     * @param call makes it
     * @param finish waits for what the ranks' calls have begun
     */
    private record Kind(String name, Call call, Runnable finish) {}

    /** A rank with buffers of an element per rank. */
    private record Member(Rank rank, DeviceBuffer send, DeviceBuffer recv) {
        Communicator communicator() {
            return rank.communicator();
        }

        DeviceStream stream() {
            return rank.stream();
        }
    }

    private static void twoRanks(Stage stage) {
        Backend backend = stage.backend();
        for (int late = 0; late < 2; late++) {
            RankSet ranks = stage.ranks(2);
            List<Kind> kinds = kinds(backend, ranks, parts(2));
            parts(2).forEach((name, part) ->
                    kinds.add(kind(ranks, name + " in a group", inGroup(backend, part))));
            kinds.addAll(hostCalls(backend, 2));
            inTime(stage, ranks, late, kinds);
        }
    }

    private static void manyRanks(Stage stage) {
        Backend backend = stage.backend();
        int limit = backend.deviceLimit();
        int many = Math.min(MANY_RANKS, limit);
        if (many < 3) {
            throw stage.unsupported("more ranks than two need more devices");
        }
        RankSet ranks = stage.ranks(many);
        List<Kind> kinds = kinds(backend, ranks, parts(many));
        kinds.addAll(hostCalls(backend, many));
        inTime(stage, ranks, many - 1, kinds);
        int most = Math.min(VERY_MANY_RANKS, limit);
        RankSet all = stage.ranks(most);
        Map<String, Part> some = parts(most);
        some.keySet().retainAll(Set.of("allReduce", "reduce", "barrier"));
        inTime(stage, all, most - 1, kinds(backend, all, some));
    }

    private static void inTime(Stage stage, RankSet ranks, int late, List<Kind> kinds) {
        List<Member> members = new ArrayList<>();
        for (Rank rank : ranks.ranks()) {
            members.add(
                    new Member(
                            rank,
                            rank.newBuffer(4L * ranks.size()),
                            rank.newBuffer(4L * ranks.size())));
        }
        List<Member> last = List.of(members.get(late));
        List<Member> others = new ArrayList<>(members);
        others.remove(late);
        for (Kind kind : kinds) {
            long[] othersNanos = new long[ATTEMPTS];
            long[] lastNanos = new long[ATTEMPTS];
            // The first ones warm up.
            for (int i = -2; i < ATTEMPTS; i++) {
                long forOthers = nanos(ranks, kind, others);
                long forLast = nanos(ranks, kind, last);
                kind.finish().run();
                if (i >= 0) {
                    othersNanos[i] = forOthers;
                    lastNanos[i] = forLast;
                }
            }
            // A group of very many is no single call and may take its time.
            if (others.size() == 1) {
                isShort(kind, "without rank " + late, othersNanos);
            }
            isShort(kind, "by rank " + late + "/" + ranks.size() + " as the last", lastNanos);
            stage.counts(1);
        }
    }

    private static long nanos(RankSet ranks, Kind kind, List<Member> some) {
        long[] took = new long[1];
        ranks.onOneThread(
                () -> {
                    long start = System.nanoTime();
                    kind.call().enqueue(some);
                    took[0] = System.nanoTime() - start;
                },
                RankSet.DEADLINE);
        return took[0];
    }

    private static void isShort(Kind kind, String who, long[] nanos) {
        long[] sorted = nanos.clone();
        Arrays.sort(sorted);
        assertThat(Duration.ofNanos(sorted[ATTEMPTS / 2]))
                .as("%s enqueued %s, median of %s ns", kind.name(), who, Arrays.toString(nanos))
                .isLessThan(LIMIT);
    }

    private static List<Kind> kinds(Backend backend, RankSet ranks, Map<String, Part> parts) {
        List<Kind> kinds = new ArrayList<>();
        parts.forEach(
                (name, part) -> kinds.add(kind(ranks, name, some -> enqueue(backend, some, part))));
        kinds.add(kind(ranks, "issue of a recorded group", issue(backend, parts.get("allReduce"))));
        return kinds;
    }

    private static List<Kind> hostCalls(Backend backend, int size) {
        return List.of(split(backend), exchangeCounts(backend, size));
    }

    private static Map<String, Part> parts(int size) {
        int root = size / 2;
        long[] ones = new long[size];
        Arrays.fill(ones, 1);
        BlockLayout layout = BlockLayout.packed(ones);
        AllToAllVPlan plan = new AllToAllVPlan(layout, layout);
        ReduceOp sum = ReduceOp.SUM;
        Map<String, Part> parts = new LinkedHashMap<>();
        parts.put("allReduce", (on, m) -> on.allReduce(m.send, m.recv, 1, TYPE, sum, m.stream()));
        parts.put("reduce", (on, m) -> on.reduce(m.send, m.recv, 1, TYPE, sum, root, m.stream()));
        parts.put("broadcast", (on, m) -> on.broadcast(m.send, m.recv, 1, TYPE, root, m.stream()));
        parts.put("allGather", (on, m) -> on.allGather(m.send, m.recv, 1, TYPE, m.stream()));
        parts.put("allGatherV", (on, m) -> on.allGatherV(m.send, m.recv, layout, TYPE, m.stream()));
        parts.put(
                "reduceScatter",
                (on, m) -> on.reduceScatter(m.send, m.recv, 1, TYPE, sum, m.stream()));
        parts.put(
                "reduceScatterV",
                (on, m) -> on.reduceScatterV(m.send, m.recv, layout, TYPE, sum, m.stream()));
        parts.put("gather", (on, m) -> on.gather(m.send, m.recv, 1, TYPE, root, m.stream()));
        parts.put("scatter", (on, m) -> on.scatter(m.send, m.recv, 1, TYPE, root, m.stream()));
        parts.put("allToAll", (on, m) -> on.allToAll(m.send, m.recv, 1, TYPE, m.stream()));
        parts.put("allToAllV", (on, m) -> on.allToAllV(m.send, m.recv, plan, TYPE, m.stream()));
        parts.put("sendRecv", EnqueueScenarios::sendRecv);
        parts.put("send and recv", EnqueueScenarios::pair);
        parts.put("barrier", (on, m) -> on.barrier(m.stream()));
        return parts;
    }

    private static void sendRecv(Operations on, Member member) {
        int rank = member.rank().rank();
        int size = member.rank().size();
        int to = (rank + 1) % size;
        int from = (rank + size - 1) % size;
        on.sendRecv(member.send(), 1, to, member.recv(), 1, from, TYPE, member.stream());
    }

    /** Rank 0 sends to the last one. */
    private static void pair(Operations on, Member member) {
        int last = member.rank().size() - 1;
        if (member.rank().rank() == 0) {
            on.send(member.send(), 1, TYPE, last, member.stream());
        } else if (member.rank().rank() == last) {
            on.recv(member.recv(), 1, TYPE, 0, member.stream());
        }
    }

    private static Kind kind(RankSet ranks, String name, Call call) {
        return new Kind(name, call, ranks::synchronizeAll);
    }

    private static void enqueue(Backend backend, List<Member> some, Part part) {
        if (some.size() == 1) {
            part.enqueue(some.getFirst().communicator(), some.getFirst());
        } else {
            inGroup(backend, part).enqueue(some);
        }
    }

    private static Call inGroup(Backend backend, Part part) {
        return some ->
                backend.group(
                        group -> some.forEach(m -> part.enqueue(group.on(m.communicator()), m)));
    }

    /** Recorded at the first call, which is not timed. */
    private static Call issue(Backend backend, Part part) {
        Map<List<Member>, RecordedGroup> recorded = new HashMap<>();
        return some ->
                recorded.computeIfAbsent(
                                some,
                                ignored ->
                                        backend.record(group ->
                                                some.forEach(m ->
                                                        part.enqueue(
                                                                group.on(m.communicator()), m))))
                        .issue();
    }

    private static Kind split(Backend backend) {
        List<Pending<List<Optional<Communicator>>>> pending = new ArrayList<>();
        List<Pending<Optional<Communicator>>> single = new ArrayList<>();
        return new Kind(
                "split",
                some -> {
                    if (some.size() == 1) {
                        single.add(some.getFirst().communicator().split(0, 0));
                    } else {
                        pending.add(
                                backend.split(
                                        communicators(some),
                                        new int[some.size()],
                                        new int[some.size()]));
                    }
                },
                () -> {
                    List<Communicator> made = new ArrayList<>();
                    Consumer<Optional<Communicator>> keep = one -> made.add(one.orElseThrow());
                    pending.forEach(one -> one.await(RankSet.DEADLINE).forEach(keep));
                    single.forEach(one -> keep.accept(one.await(RankSet.DEADLINE)));
                    backend.closeAll(made);
                    pending.clear();
                    single.clear();
                });
    }

    private static Kind exchangeCounts(Backend backend, int size) {
        List<Pending<?>> pending = new ArrayList<>();
        return new Kind(
                "exchangeCounts",
                some -> {
                    if (some.size() == 1) {
                        pending.add(some.getFirst().communicator().exchangeCounts(new long[size]));
                    } else {
                        pending.add(
                                backend.exchangeCounts(
                                        communicators(some), new long[some.size()][size]));
                    }
                },
                () -> {
                    pending.forEach(one -> one.await(RankSet.DEADLINE));
                    pending.clear();
                });
    }

    private static List<Communicator> communicators(List<Member> members) {
        return members.stream().map(Member::communicator).toList();
    }
}
