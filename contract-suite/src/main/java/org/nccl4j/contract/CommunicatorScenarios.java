package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.Function;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.CommunicatorStatus;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.Traffic;
import org.nccl4j.collectives.UnsupportedException;

/** How communicators come to be, and many of them at work at once. */
final class CommunicatorScenarios {
    private CommunicatorScenarios() {}

    static List<Scenario> all() {
        return List.of(
                new Scenario("split-by-color-and-key", CommunicatorScenarios::split),
                new Scenario("split-needs-every-rank", CommunicatorScenarios::splitWaits),
                new Scenario("split-by-one-thread", CommunicatorScenarios::splitByOneThread),
                new Scenario("split-outlives-its-parent", CommunicatorScenarios::splitOutlives),
                new Scenario("split-overlapping-groups", CommunicatorScenarios::overlapping),
                new Scenario("exchange-counts", CommunicatorScenarios::exchangeCounts),
                new Scenario("exchange-counts-one-ahead", CommunicatorScenarios::oneAhead),
                new Scenario("ranks-on-virtual-threads", CommunicatorScenarios::virtualThreads),
                new Scenario("capabilities-hold", CommunicatorScenarios::capabilities),
                new Scenario("traffic-adds-up", CommunicatorScenarios::traffic),
                new Scenario("memory-of-others-stays", CommunicatorScenarios::memory),
                new Scenario("many-ranks", CommunicatorScenarios::manyRanks),
                new Scenario("many-operations-in-flight", CommunicatorScenarios::inFlight));
    }

    private static void split(Stage stage) {
        RankSet ranks = stage.ranks(5);
        // Ranks 0, 2, 4 in reverse order; 1 alone; 3 stays out.
        int[] colors = {7, 0, 7, Communicator.NO_COLOR, 7};
        ranks.onEvery(rank -> {
            int r = rank.rank();
            Optional<Communicator> made =
                    rank.communicator().split(colors[r], -r).await(RankSet.DEADLINE);
            if (colors[r] == Communicator.NO_COLOR) {
                assertThat(made).isEmpty();
                return;
            }
            try (Communicator part = made.orElseThrow();
                    Rank member = new Rank(part)) {
                assertThat(part.size()).isEqualTo(r == 1 ? 1 : 3);
                assertThat(part.rank()).isEqualTo(r == 1 ? 0 : (4 - r) / 2);
                assertThat(part.device()).isEqualTo(rank.device());
                assertThat(new Summands(member, r).sum()).containsExactly(r == 1 ? 1 : 6);
            }
        });
        ranks.onEvery(rank -> assertThat(new Summands(rank, 2).sum()).containsExactly(10));
    }

    private static void splitWaits(Stage stage) {
        RankSet ranks = stage.ranks(2);
        List<Pending<Optional<Communicator>>> pending = new ArrayList<>();
        Summands behind = new Summands(ranks.rank(0), 1);
        ranks.on(0, rank -> pending.add(rank.communicator().split(0, 0)));
        // Enqueued behind the split, which it waits for: on the stream, or in the call.
        Future<?> enqueuing = ranks.start(0, rank -> behind.enqueue());
        if (stage.capabilities().firstUseMayWait()) {
            Expect.staysBusy("the call behind a split", enqueuing);
        } else {
            ranks.await(enqueuing, RankSet.DEADLINE);
            Expect.staysBusy("work behind a split", ranks.rank(0).stream());
        }
        assertThat(pending.getFirst().isDone()).isFalse();
        assertThatThrownBy(() -> pending.getFirst().await(Duration.ofMillis(10)))
                .isInstanceOf(CollectiveTimeoutException.class);
        ranks.on(
                1,
                rank -> {
                    pending.add(rank.communicator().split(0, 0));
                    new Summands(rank, 1).enqueue();
                });
        ranks.await(enqueuing, RankSet.DEADLINE);
        ranks.onEvery(Rank::synchronize);
        for (Pending<Optional<Communicator>> one : pending) {
            Communicator made = one.await(RankSet.DEADLINE).orElseThrow();
            assertThat(one.await(Duration.ZERO).orElseThrow()).isSameAs(made);
            assertThat(one.isDone()).isTrue();
            stage.closing(made);
        }
    }

    private static void splitByOneThread(Stage stage) {
        RankSet ranks = stage.ranks(4);
        List<Optional<Communicator>> made =
                stage.backend()
                        .split(
                                ranks.communicators(),
                                new int[] {0, 1, 0, Communicator.NO_COLOR},
                                new int[] {1, 0, 0, 0})
                        .await(RankSet.DEADLINE);
        assertThat(made).hasSize(4);
        assertThat(made.get(3)).isEmpty();
        assertThat(made.get(0).orElseThrow().rank()).isEqualTo(1);
        assertThat(made.get(2).orElseThrow().rank()).isZero();
        RankSet pair =
                stage.closing(
                        RankSet.of(
                                stage.backend(),
                                List.of(made.get(2).orElseThrow(), made.get(0).orElseThrow())));
        stage.closing(RankSet.of(stage.backend(), List.of(made.get(1).orElseThrow())));
        pair.onEvery(rank -> assertThat(new Summands(rank, 4).sum()).containsExactly(8));
        long[][] counts =
                stage.backend()
                        .exchangeCounts(pair.communicators(), new long[][] {{1, 2}, {3, 4}})
                        .await(RankSet.DEADLINE);
        assertThat(counts).isDeepEqualTo(new long[][] {{1, 3}, {2, 4}});
    }

    private static void splitOutlives(Stage stage) {
        RankSet parent = stage.ranks(2);
        List<Communicator> children = new ArrayList<>();
        for (Optional<Communicator> child :
                stage.backend()
                        .split(parent.communicators(), new int[] {0, 0}, new int[] {0, 0})
                        .await(RankSet.DEADLINE)) {
            children.add(child.orElseThrow());
        }
        RankSet child = stage.closing(RankSet.of(stage.backend(), children));
        parent.onEvery(rank -> rank.communicator().close());
        child.onEvery(rank -> assertThat(new Summands(rank, 4).sum()).containsExactly(8));
    }

    /** A program on the sub-communicators that ranks are in: one operation per color. */
    private static final class OnGroup {
        private final OperationProgram[] byColor;
        private final int[] colorOfRank;
        private final Rank[] members;

        private OnGroup(OperationProgram[] byColor, int[] colorOfRank, Rank[] members) {
            this.byColor = byColor;
            this.colorOfRank = colorOfRank;
            this.members = members;
        }

        private OperationProgram of(Rank rank) {
            return byColor[colorOfRank[rank.rank()]];
        }

        private Rank member(Rank rank) {
            return members[rank.rank()];
        }
    }

    /** A sequence of operations on several communicators, with no wait in between. */
    private static final class Interleaved implements RankProgram {
        private final String id;
        private final List<OnGroup> steps;

        private Interleaved(String id, List<OnGroup> steps) {
            this.id = id;
            this.steps = steps;
        }

        @Override
        public String id() {
            return id;
        }

        @Override
        public void prepare(Rank rank) {
            steps.forEach(step -> step.of(rank).prepare(step.member(rank)));
        }

        @Override
        public void issue(Rank rank, Function<Communicator, Operations> on) {
            steps.forEach(step -> step.of(rank).issue(step.member(rank), on));
        }

        @Override
        public List<DeviceStream> streams(Rank rank) {
            return steps.stream().map(step -> step.member(rank).stream()).distinct().toList();
        }

        @Override
        public void check(Rank rank) {
            steps.forEach(step -> step.of(rank).check(step.member(rank)));
        }
    }

    /** World, rows and columns of a 2 x 3 grid, all at work at once. */
    private static void overlapping(Stage stage) {
        int size = 6;
        RankSet ranks = stage.ranks(size);
        int[][] colors = {{0, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 0, 1, 2}};
        Rank[][] members = new Rank[colors.length][size];
        for (int kind = 0; kind < colors.length; kind++) {
            List<Optional<Communicator>> made =
                    stage.backend()
                            .split(ranks.communicators(), colors[kind], new int[size])
                            .await(RankSet.DEADLINE);
            RankSet all =
                    stage.closing(
                            RankSet.of(
                                    stage.backend(),
                                    made.stream().map(Optional::orElseThrow).toList()));
            for (int r = 0; r < size; r++) {
                members[kind][r] = all.rank(r);
            }
        }
        for (int round = 0; round < 8; round++) {
            long seed = Mix.hash(stage.seed(), round);
            List<OnGroup> steps = randomSteps(colors, members, seed);
            stage.run(
                    new RankRunner.ThreadPerRank(seed),
                    ranks,
                    List.of(new Interleaved("interleaved, seed " + seed, steps)));
            stage.run(
                    new RankRunner.OneThreadWithGroups(),
                    ranks,
                    List.of(new Interleaved("interleaved in a group, seed " + seed, steps)));
        }
    }

    private static List<OnGroup> randomSteps(int[][] colors, Rank[][] members, long seed) {
        Mix random = new Mix(seed);
        List<OnGroup> steps = new ArrayList<>();
        int[] counts = {0, 1, 5, 33, 257, 4099};
        DataType[] types = {DataType.INT32, DataType.FLOAT32, DataType.UINT8, DataType.INT64};
        for (int i = 0; i < 30; i++) {
            int kind = random.next(colors.length);
            Collective collective = Collective.values()[random.next(Collective.values().length)];
            Reduction reduction =
                    collective.reduces()
                            ? Reduction.values()[random.next(Reduction.values().length)]
                            : null;
            DataType type = types[random.next(types.length)];
            int count = counts[random.next(counts.length)];
            boolean inPlace = random.nextBoolean();
            int groups = kind == 0 ? 1 : kind == 1 ? 2 : 3;
            int groupSize = colors[kind].length / groups;
            OperationProgram[] byColor = new OperationProgram[groups];
            for (int color = 0; color < groups; color++) {
                byColor[color] =
                        OperationProgram.exact(
                                new OperationCase(
                                        collective,
                                        type,
                                        reduction,
                                        groupSize,
                                        count,
                                        inPlace,
                                        collective.rooted() ? random.next(groupSize) : 0,
                                        random.next()),
                                2 * i);
            }
            steps.add(new OnGroup(byColor, colors[kind], members[kind]));
        }
        return steps;
    }

    private static void exchangeCounts(Stage stage) {
        RankSet ranks = stage.ranks(3);
        ranks.onEvery(rank -> {
            long r = rank.rank();
            long[] received =
                    rank.communicator()
                            .exchangeCounts(new long[] {10 * r, 10 * r + 1, 10 * r + 2})
                            .await(RankSet.DEADLINE);
            assertThat(received).containsExactly(r, 10 + r, 20 + r);
            assertThat(new Summands(rank, 1).sum()).containsExactly(3);
        });
    }

    /**
     * One rank has a host call open at every moment, for much longer than a single one may take.
     */
    private static void oneAhead(Stage stage) {
        Duration operationTimeout = Duration.ofMillis(800);
        RankSet ranks = stage.ranks(2, operationTimeout);
        Deque<Pending<?>> open = new ArrayDeque<>();
        long end = System.nanoTime() + operationTimeout.multipliedBy(3).toNanos();
        ranks.on(0, rank -> open.add(hostCall(rank, 0)));
        int last = 0;
        while (System.nanoTime() < end) {
            int next = last + 1;
            ranks.on(0, rank -> open.add(hostCall(rank, next)));
            Expect.elapse(Duration.ofMillis(20));
            ranks.on(1, oneBehind(last));
            finish(open.remove(), last);
            last = next;
        }
        ranks.on(1, oneBehind(last));
        finish(open.remove(), last);
        ranks.onEvery(rank -> assertThat(new Summands(rank, 2).sum()).containsExactly(4));
    }

    private static Consumer<Rank> oneBehind(int number) {
        return rank -> finish(hostCall(rank, number), number);
    }

    /** Splits at times, and exchanges counts else. */
    private static Pending<?> hostCall(Rank rank, int number) {
        if (number % 8 == 5) {
            return rank.communicator().split(0, 0);
        }
        return rank.communicator().exchangeCounts(new long[] {number, number});
    }

    private static void finish(Pending<?> call, int number) {
        switch (call.await(RankSet.DEADLINE)) {
            case long[] counts -> assertThat(counts).containsExactly(number, number);
            case Optional<?> child -> ((Communicator) child.orElseThrow()).close();
            default -> throw new AssertionError("neither counts nor a communicator");
        }
    }

    private static void virtualThreads(Stage stage) {
        int size = 4;
        RankSet ranks = stage.ranks(size);
        List<Summands> sums = ranks.ranks().stream().map(r -> new Summands(r, 3)).toList();
        try (ExecutorService executor = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Future<?>> running = new ArrayList<>();
            for (Rank rank : ranks.ranks()) {
                running.add(
                        executor.submit(() -> {
                            for (int i = 0; i < 20; i++) {
                                assertThat(sums.get(rank.rank()).sum()).containsExactly(12);
                                stage.backend()
                                        .group(group ->
                                                group.on(rank.communicator())
                                                        .barrier(rank.stream()));
                            }
                            rank.synchronize();
                        }));
            }
            ranks.awaitAll(running, RankSet.DEADLINE);
        }
    }

    /** What a backend says it lacks it refuses by name, and what it says it has is there. */
    private static void capabilities(Stage stage) {
        RankSet ranks = stage.ranks(1);
        Rank zero = ranks.rank(0);
        Capabilities capabilities = stage.capabilities();
        assertThat(stage.backend().availability()).isInstanceOf(Availability.Available.class);
        assertThat(stage.backend().name()).isNotBlank();
        assertThat(stage.backend().devices()).isNotEmpty();
        assertThat(stage.backend().devices().size())
                .isLessThanOrEqualTo(stage.backend().deviceLimit());
        assertThat(stage.backend().device(0)).isEqualTo(stage.backend().devices().getFirst());
        assertThat(zero.communicator().status()).isInstanceOf(CommunicatorStatus.Ready.class);
        assertThat(zero.device().ordinal()).isZero();
        assertThat(zero.device().name()).isNotBlank();
        assertThat(zero.device().busId()).matches("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}");
        if (!capabilities.capture()) {
            assertThatThrownBy(() -> stage.backend().capture(List.of(zero.stream()), () -> {}))
                    .isInstanceOf(UnsupportedException.class);
        }
        if (!capabilities.registration()) {
            assertThatThrownBy(() -> zero.communicator().register(zero.newBuffer(64)))
                    .isInstanceOf(UnsupportedException.class);
        }
        if (!capabilities.trafficCounters()) {
            assertThatThrownBy(() -> zero.communicator().traffic())
                    .isInstanceOf(UnsupportedException.class);
        }
    }

    private static void traffic(Stage stage) {
        if (!stage.capabilities().trafficCounters()) {
            throw stage.unsupported("traffic counters");
        }
        int size = 4;
        RankSet ranks = stage.ranks(size);
        List<OperationProgram> programs = new ArrayList<>();
        TierCases cases = new TierCases(stage.seed());
        for (Collective collective : Collective.values()) {
            Reduction reduction = collective.reduces() ? Reduction.SUM : null;
            programs.add(
                    OperationProgram.exact(
                            cases.operation(collective, DataType.INT32, reduction, size, 37)));
        }
        stage.run(new RankRunner.ThreadPerRank(0), ranks, programs);
        Traffic[] traffic = new Traffic[size];
        for (int r = 0; r < size; r++) {
            traffic[r] = ranks.rank(r).communicator().traffic();
            assertThat(traffic[r].sentBytes()[r]).as("to itself").isZero();
            assertThat(traffic[r].totalSentBytes()).isPositive();
        }
        for (int from = 0; from < size; from++) {
            for (int to = 0; to < size; to++) {
                assertThat(traffic[from].sentBytes()[to])
                        .as("from %d to %d", from, to)
                        .isEqualTo(traffic[to].receivedBytes()[from]);
            }
        }
    }

    /** Looking at devices takes nothing from the others, and communicators give all back. */
    private static void memory(Stage stage) {
        Device near = stage.backend().device(0);
        System.gc();
        long before = near.memory().totalBytes();
        int limit = stage.backend().deviceLimit();
        assertThat(stage.backend().device(limit - 1).memory().totalBytes()).isPositive();
        Expect.memory(near, before);
        CommunicatorConfig config = CommunicatorConfig.defaults();
        stage.backend().closeAll(stage.backend().createLocal(Math.min(limit, 100), config));
        Expect.memory(near, before);
    }

    /** More ranks than cores, devices by default, or elements. */
    private static void manyRanks(Stage stage) {
        for (int size : new int[] {64, 150}) {
            RankSet ranks = stage.ranks(size);
            List<OperationProgram> programs = new ArrayList<>();
            TierCases cases = new TierCases(stage.seed());
            for (Collective collective : Collective.values()) {
                Reduction reduction = collective.reduces() ? Reduction.SUM : null;
                for (int count : new int[] {1, 40, 1000}) {
                    int share = size > 64 || collective == Collective.ALL_TO_ALL ? 5 : count;
                    programs.add(
                            OperationProgram.exact(
                                    cases.operation(
                                            collective, DataType.FLOAT32, reduction, size, share)));
                }
            }
            stage.run(new RankRunner.OneThreadWithGroups(), ranks, programs);
        }
    }

    /** Hundreds of operations on one stream before anyone looks, ranks at their own pace. */
    private static void inFlight(Stage stage) {
        int size = 3;
        int operations = 300;
        RankSet ranks = stage.ranks(size);
        ranks.onEvery(rank -> {
            Mix random = new Mix(Mix.hash(stage.seed(), rank.rank()));
            List<Summands> sums = new ArrayList<>();
            for (int i = 0; i < operations; i++) {
                Summands sum = new Summands(rank, i, rank.rank());
                sum.enqueue();
                sums.add(sum);
                if (random.next(20) == 0) {
                    LockSupport.parkNanos(random.next(300_000));
                }
            }
            rank.synchronize();
            for (int i = 0; i < operations; i++) {
                assertThat(sums.get(i).result()).containsExactly(size * i, 3);
            }
        });
    }
}
