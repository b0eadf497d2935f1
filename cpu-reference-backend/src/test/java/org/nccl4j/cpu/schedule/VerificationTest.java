package org.nccl4j.cpu.schedule;

import static org.assertj.core.api.Assertions.assertThat;
import static org.nccl4j.cpu.schedule.Trees.rounds;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.function.BiFunction;
import java.util.function.IntFunction;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Every algorithm is proven right for 1 to 64 ranks, has the steps and bytes of its formula, and
 * the order of combination that is documented; and a schedule that is broken in any one place is
 * found.
 */
class VerificationTest {
    private static final int MOST_RANKS = 64;

    @ParameterizedTest
    @EnumSource(ScheduleAlgorithm.class)
    void isProvenForEveryNumberOfRanks(ScheduleAlgorithm algorithm) {
        for (Collective collective : algorithm.collectives()) {
            for (int n = 1; n <= MOST_RANKS; n++) {
                prove(algorithm.schedule(collective, n));
            }
        }
    }

    /** Variants that no algorithm of the engine uses as they are. */
    @Test
    void otherPiecesDistancesAndGridsAreProven() {
        for (int n = 1; n <= MOST_RANKS; n++) {
            prove(HalvingDoubling.allReduce(n, false));
            for (int pieces : new int[] {1, 3}) {
                prove(Trees.allReduce(n, pieces));
                prove(Trees.reduce(n, pieces));
                prove(Trees.broadcast(n, pieces));
                prove(Trees.doubleTree(n, pieces));
            }
            for (int size = 1; size <= n; size++) {
                if (n % size == 0) {
                    prove(Rings.allReduce("torus-2d", size, n / size));
                    prove(Exchanges.hierarchical(n, size));
                }
            }
        }
        prove(Rings.allReduce("torus-3d", 2, 3, 4));
        prove(Rings.allReduce("torus-3d", 4, 3, 2));
        prove(Rings.allReduce("torus-3d", 1, 5, 3));
    }

    private static void prove(Schedule schedule) {
        assertThat(Verification.of(schedule).faults()).as(schedule.toString()).isEmpty();
        long sent = 0;
        long received = 0;
        for (int rank = 0; rank < schedule.ranks(); rank++) {
            sent += schedule.sentElements(rank, 1009);
            received += schedule.receivedElements(rank, 1009);
        }
        assertThat(sent).as(schedule + " in all").isEqualTo(received);
    }

    /** The steps by formula, for n ranks. */
    static Stream<Arguments> formulas() {
        IntFunction<Integer> log = n -> rounds(n);
        return Stream.of(
                formula("ring", Collective.ALL_REDUCE, n -> 2 * (n - 1), (n, s) -> ring(n, s, 2)),
                formula("ring", Collective.REDUCE_SCATTER, n -> n - 1, (n, s) -> ring(n, s, 1)),
                formula("ring", Collective.ALL_GATHER, n -> n - 1, (n, s) -> ring(n, s, 1)),
                formula("tree", Collective.ALL_REDUCE, n -> 2 * log.apply(n), (n, s) -> tree(n, s)),
                formula("tree", Collective.REDUCE, log, (n, s) -> n == 1 ? 0 : s),
                formula("tree", Collective.BROADCAST, log, (n, s) -> s * log.apply(n)),
                formula(
                        "halving-doubling",
                        Collective.ALL_REDUCE,
                        n -> 2 * log2(n) + (isPower(n) ? 0 : 2),
                        (n, s) -> ring(log2Power(n), s, 2) + (isPower(n) ? 0 : s)),
                formula(
                        "hierarchical",
                        Collective.ALL_REDUCE,
                        n -> gridSteps(n, 2),
                        (n, s) -> ring(n, s, 2)),
                formula(
                        "hierarchical-3",
                        Collective.ALL_REDUCE,
                        n -> gridSteps(n, 3),
                        (n, s) -> ring(n, s, 2)),
                formula(
                        "torus-2d",
                        Collective.ALL_REDUCE,
                        n -> gridSteps(n, 2),
                        (n, s) -> ring(n, s, 2)),
                formula(
                        "torus-3d",
                        Collective.ALL_REDUCE,
                        n -> gridSteps(n, 3),
                        (n, s) -> ring(n, s, 2)),
                formula("star", Collective.ALL_REDUCE, n -> n == 1 ? 0 : 2, (n, s) -> (n - 1) * s),
                formula(
                        "one-shot",
                        Collective.ALL_REDUCE,
                        n -> n == 1 ? 0 : 1,
                        (n, s) -> (n - 1) * s),
                formula(
                        "two-shot",
                        Collective.ALL_REDUCE,
                        n -> n == 1 ? 0 : 2,
                        (n, s) -> ring(n, s, 2)),
                formula("pairwise", Collective.ALL_TO_ALL, n -> n - 1, (n, s) -> ring(n, s, 1)),
                formula("bruck", Collective.ALL_TO_ALL, log, (n, s) -> bits(n) * (s / n)),
                formula(
                        "hierarchical-exchange",
                        Collective.ALL_TO_ALL,
                        n -> gridSteps(n, 2) / 2,
                        (n, s) -> {
                            int node = ScheduleAlgorithm.grid(n, 2)[0];
                            return (node - 1) * (s / node) + (n - node) * (s / n);
                        }));
    }

    private static Arguments formula(
            String algorithm,
            Collective collective,
            IntFunction<Integer> steps,
            BiFunction<Integer, Long, Long> busiest) {
        return Arguments.of(algorithm, collective, steps, busiest);
    }

    @ParameterizedTest(name = "{0} {1}")
    @MethodSource("formulas")
    void hasTheStepsAndBytesOfItsFormula(
            String name,
            Collective collective,
            IntFunction<Integer> steps,
            BiFunction<Integer, Long, Long> busiest) {
        ScheduleAlgorithm algorithm = ScheduleAlgorithm.named(name).orElseThrow();
        for (int n = 1; n <= MOST_RANKS; n++) {
            Schedule schedule = algorithm.schedule(collective, n);
            assertThat(schedule.steps()).as("%s, steps", schedule).isEqualTo(steps.apply(n));
            // A size that n, and each power of two up to n, divides.
            long size = 64L * n;
            long most = 0;
            for (int rank = 0; rank < n; rank++) {
                most = Math.max(most, schedule.sentElements(rank, size));
            }
            assertThat(most).as("%s, busiest rank", schedule).isEqualTo(busiest.apply(n, size));
        }
    }

    private static long ring(int n, long size, int halves) {
        return halves * (n - 1L) * (size / n);
    }

    /** The root sends S per round; a leaf sends S; an inner rank S up and S per child. */
    private static long tree(int n, long size) {
        return n == 1 ? 0 : Math.max(rounds(n), mostChildrenBelowRoot(n) + 1) * size;
    }

    private static int mostChildrenBelowRoot(int n) {
        int most = 0;
        for (int q = 1; q < n; q++) {
            int children = 0;
            for (int d = 1; d < Integer.lowestOneBit(q) && q + d < n; d *= 2) {
                children++;
            }
            most = Math.max(most, children);
        }
        return most;
    }

    private static int log2(int n) {
        return 31 - Integer.numberOfLeadingZeros(n);
    }

    private static int log2Power(int n) {
        return Integer.highestOneBit(n);
    }

    private static boolean isPower(int n) {
        return Integer.bitCount(n) == 1;
    }

    private static int gridSteps(int n, int dimensions) {
        return 2 * Arrays.stream(ScheduleAlgorithm.grid(n, dimensions)).map(d -> d - 1).sum();
    }

    private static long bits(int n) {
        long bits = 0;
        for (int j = 1; j < n; j++) {
            bits += Integer.bitCount(j);
        }
        return bits;
    }

    @Test
    void doubleTreesKeepTheirBounds() {
        for (int n = 1; n <= MOST_RANKS; n++) {
            Schedule schedule = Trees.doubleTree(n, 1);
            long size = 2 * 512;
            long total = 0;
            for (int rank = 0; rank < n; rank++) {
                long sent = schedule.sentElements(rank, size);
                assertThat(sent).as("%s, rank %d", schedule, rank).isLessThanOrEqualTo(2 * size);
                total += sent;
            }
            assertThat(total).isEqualTo(2L * (n - 1) * size);
            assertThat(schedule.steps()).isLessThanOrEqualTo(2 * rounds(n));
            int bothInner = 0;
            for (int rank = 0; rank < n; rank++) {
                boolean[] inner = new boolean[2];
                for (int child = 0; child < n; child++) {
                    inner[0] |= Trees.parentInFirstTree(child, n) == rank;
                    inner[1] |= Trees.parentInSecondTree(child, n) == rank;
                }
                bothInner += inner[0] && inner[1] ? 1 : 0;
            }
            assertThat(bothInner).as("inner in both trees of %d", n).isLessThanOrEqualTo(n % 2);
        }
    }

    @Test
    void combinesInTheDocumentedOrder() {
        assertThat(order(Rings.allReduce(4), 0)).isEqualTo("(x0+(x3+(x2+x1)))");
        assertThat(order(Rings.allReduce(4), 2)).isEqualTo("(x2+(x1+(x0+x3)))");
        assertThat(order(Rings.reduceScatter(4), 2)).isEqualTo("(x2+(x1+(x0+x3)))");
        assertThat(order(Trees.allReduce(6, 1), 0)).isEqualTo("(((x0+x1)+(x2+x3))+(x4+x5))");
        assertThat(order(Trees.reduce(5, 1), 0)).isEqualTo("(((x0+x1)+(x2+x3))+x4)");
        assertThat(order(Rings.allReduce("torus-2d", 2, 2), 0)).isEqualTo("((x0+x1)+(x2+x3))");
        for (Schedule inOrder :
                List.of(DirectReads.star(4), DirectReads.oneShot(4), DirectReads.twoShot(4))) {
            for (int chunk = 0; chunk < inOrder.chunks(); chunk++) {
                assertThat(sorted(Verification.of(inOrder).combination(chunk)))
                        .as(inOrder.toString())
                        .isEqualTo("(((x0+x1)+x2)+x3)");
            }
        }
        for (int chunk = 0; chunk < 4; chunk++) {
            assertThat(
                            sorted(
                                    Verification.of(HalvingDoubling.allReduce(4, true))
                                            .combination(chunk)))
                    .isEqualTo("((x0+x1)+(x2+x3))");
            assertThat(
                            sorted(
                                    Verification.of(HalvingDoubling.allReduce(6, true))
                                            .combination(chunk)))
                    .isEqualTo("(((x0+x1)+(x2+x3))+(x4+x5))");
        }
        Verification trees = Verification.of(Trees.doubleTree(4, 1));
        assertThat(sorted(trees.combination(0))).isEqualTo("(x0+((x1+x2)+x3))");
        assertThat(sorted(trees.combination(1))).isEqualTo("(((x0+x1)+x2)+x3)");
    }

    private static String order(Schedule schedule, int chunk) {
        return Verification.of(schedule).combination(chunk).toString();
    }

    /** With the operand first that has the lowest rank, which changes no result. */
    private static String sorted(Combination combination) {
        return switch (combination) {
            case Combination.Input input -> input.toString();
            case Combination.Hop(Combination left, Combination right) -> {
                boolean inOrder = lowest(left) < lowest(right);
                yield "("
                        + sorted(inOrder ? left : right)
                        + "+"
                        + sorted(inOrder ? right : left)
                        + ")";
            }
        };
    }

    private static int lowest(Combination combination) {
        return switch (combination) {
            case Combination.Input(int rank) -> rank;
            case Combination.Hop(Combination left, Combination right) ->
                    Math.min(lowest(left), lowest(right));
        };
    }

    /** Each action in turn is broken in every way that fits it; every time it is found. */
    @ParameterizedTest
    @EnumSource(ScheduleAlgorithm.class)
    void findsEveryBrokenSchedule(ScheduleAlgorithm algorithm) {
        for (Collective collective : algorithm.collectives()) {
            for (int n : new int[] {2, 3, 4, 6}) {
                Schedule schedule = algorithm.schedule(collective, n);
                for (int rank = 0; rank < n; rank++) {
                    for (int i = 0; i < schedule.program(rank).size(); i++) {
                        for (Mutation mutation : Mutation.values()) {
                            findsBroken(schedule, rank, i, mutation);
                        }
                    }
                }
            }
        }
    }

    private enum Mutation {
        DROPPED,
        DOUBLED,
        TO_ANOTHER_PEER,
        ANOTHER_CHUNK,
        ANOTHER_TARGET,
        REDUCED_INSTEAD_OF_STORED,
        STORED_INSTEAD_OF_REDUCED,
        FLAG_FLIPPED,
        SWAPPED_WITH_THE_NEXT_TO_THE_SAME_PEER,
        SENT_FROM_ELSEWHERE,
    }

    private static void findsBroken(Schedule schedule, int rank, int at, Mutation mutation) {
        List<Action> program = new ArrayList<>(schedule.program(rank));
        Action action = program.get(at);
        int n = schedule.ranks();
        switch (mutation) {
            case DROPPED -> program.remove(at);
            case DOUBLED -> {
                if (action.kind() == Action.Kind.COPY) {
                    return; // Harmless: it gives what was there.
                }
                program.add(at, action);
            }
            case TO_ANOTHER_PEER -> {
                if (action.peer() < 0) {
                    return;
                }
                program.set(at, with(action, (action.peer() + 1) % n, action.kind(), 0, 0));
            }
            case ANOTHER_CHUNK -> program.set(at, with(action, action.peer(), action.kind(), 1, 0));
            case ANOTHER_TARGET -> {
                if (action.target() == null) {
                    return;
                }
                program.set(at, with(action, action.peer(), action.kind(), 0, 1));
            }
            case REDUCED_INSTEAD_OF_STORED -> {
                if (action.kind() != Action.Kind.RECEIVE) {
                    return;
                }
                program.set(
                        at,
                        new Action(
                                action.step(),
                                Action.Kind.REDUCE,
                                action.peer(),
                                action.chunk(),
                                action.chunks(),
                                action.target(),
                                action.target(),
                                false));
            }
            case STORED_INSTEAD_OF_REDUCED -> {
                if (action.kind() != Action.Kind.REDUCE) {
                    return;
                }
                program.set(
                        at,
                        new Action(
                                action.step(),
                                Action.Kind.RECEIVE,
                                action.peer(),
                                action.chunk(),
                                action.chunks(),
                                null,
                                action.target(),
                                false));
            }
            case SWAPPED_WITH_THE_NEXT_TO_THE_SAME_PEER -> {
                int next = at + 1;
                while (next < program.size()
                        && !(program.get(next).kind() == Action.Kind.SEND
                                && program.get(next).peer() == action.peer())) {
                    next++;
                }
                if (action.kind() != Action.Kind.SEND || next == program.size()) {
                    return;
                }
                program.set(at, program.get(next));
                program.set(next, action);
            }
            case SENT_FROM_ELSEWHERE -> {
                if (action.kind() != Action.Kind.SEND) {
                    return;
                }
                Place source = action.source();
                program.set(
                        at,
                        new Action(
                                action.step(),
                                action.kind(),
                                action.peer(),
                                action.chunk(),
                                action.chunks(),
                                new Place(source.space(), source.index() + 1),
                                null,
                                false));
            }
            case FLAG_FLIPPED -> {
                if (action.kind() != Action.Kind.REDUCE && action.kind() != Action.Kind.COMBINE) {
                    return;
                }
                program.set(
                        at,
                        new Action(
                                action.step(),
                                action.kind(),
                                action.peer(),
                                action.chunk(),
                                action.chunks(),
                                action.source(),
                                action.target(),
                                !action.completes()));
            }
        }
        List<List<Action>> programs = new ArrayList<>();
        for (int r = 0; r < n; r++) {
            programs.add(r == rank ? program : schedule.program(r));
        }
        Schedule broken =
                new Schedule("broken", schedule.collective(), schedule.chunks(), programs);
        assertThat(Verification.of(broken).faults())
                .as("%s, rank %d, %s %s", schedule, rank, action, mutation)
                .isNotEmpty();
    }

    private static Action with(
            Action action, int peer, Action.Kind kind, int chunksOn, int placesOn) {
        Place target = action.target();
        return new Action(
                action.step(),
                kind,
                peer,
                action.chunk() + chunksOn,
                action.chunks(),
                action.source(),
                target == null ? null : new Place(target.space(), target.index() + placesOn),
                action.completes());
    }

    /** Exchanging what one still needs in one slot: each waits for the other to have read. */
    @Test
    void findsThatTwoWaitForEachOtherToHaveRead() {
        Schedule.Plan plan = new Schedule.Plan("swap", Collective.ALL_REDUCE, 2, 1);
        Place slot = Place.scratch(0);
        for (int rank = 0; rank < 2; rank++) {
            plan.copy(0, rank, Place.input(0), slot, 0, 1);
            plan.reduce(1, rank, slot, 1 - rank, slot, slot, 0, 1, true);
            plan.copy(2, rank, slot, Place.output(0), 0, 1);
        }
        assertThat(Verification.of(plan.build()).faults())
                .anyMatch(fault -> fault.contains("waits for ever for rank 1 to read scratch[0]"));
    }

    @Test
    void findsThatRanksSumInDifferentOrders() {
        Schedule.Plan plan = new Schedule.Plan("own first", Collective.ALL_REDUCE, 3, 1);
        for (int rank = 0; rank < 3; rank++) {
            int next = (rank + 1) % 3;
            int last = (rank + 2) % 3;
            Place slot = Place.scratch(0);
            plan.reduce(0, next, Place.input(0), rank, Place.input(0), slot, 0, 1, false);
            plan.reduce(0, last, Place.input(0), rank, slot, slot, 0, 1, true);
            plan.copy(0, rank, slot, Place.output(0), 0, 1);
        }
        assertThat(Verification.of(plan.build()).faults())
                .anyMatch(fault -> fault.contains("in different orders"));
    }

    @Test
    void findsAnInputThatIsLostInPlace() {
        Schedule.Plan plan = new Schedule.Plan("sum in output", Collective.ALL_REDUCE, 2, 1);
        Place input = Place.input(0);
        Place output = Place.output(0);
        // Rank 1 stores what comes where its own elements are, and only then wants to add them.
        plan.reduce(0, 1, input, 0, input, output, 0, 1, true);
        plan.move(0, 0, input, 1, output, 0, 1);
        plan.combine(1, 1, input, output, 0, 1, true);
        List<String> faults = Verification.of(plan.build()).faults();
        assertThat(faults).isNotEmpty().allMatch(fault -> fault.startsWith("in place: "));
    }

    @Test
    void gridsAreAsEvenAsDivisorsAllow() {
        assertThat(ScheduleAlgorithm.grid(64, 3)).containsExactly(4, 4, 4);
        assertThat(ScheduleAlgorithm.grid(16, 2)).containsExactly(4, 4);
        assertThat(ScheduleAlgorithm.grid(6, 2)).containsExactly(3, 2);
        assertThat(ScheduleAlgorithm.grid(7, 2)).containsExactly(7, 1);
        assertThat(ScheduleAlgorithm.grid(1, 3)).containsExactly(1, 1, 1);
        Random random = new Random(1);
        for (int i = 0; i < 100; i++) {
            int n = 1 + random.nextInt(1024);
            assertThat(Arrays.stream(ScheduleAlgorithm.grid(n, 3)).reduce(1, (a, b) -> a * b))
                    .isEqualTo(n);
        }
    }
}
