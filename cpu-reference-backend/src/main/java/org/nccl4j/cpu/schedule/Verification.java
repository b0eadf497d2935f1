package org.nccl4j.cpu.schedule;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.nccl4j.cpu.schedule.Place.Space;

/**
 * Executes a schedule with symbols in place of data: what a place holds is the expression by which
 * it came about. That proves, for any data, type and reduction,
 *
 * <ul>
 *   <li>that every rank ends with what the collective promises, each contribution combined exactly
 *       once, and where data is reduced all ranks by one and the same expression, hence to the same
 *       bits;
 *   <li>that each receive meets the message it expects and no message is left over;
 *   <li>that nobody waits for ever if an ordered pair of ranks has room for one message, a message
 *       is read from where its sender has it, and a sender waits before it overwrites what has not
 *       been read. What moves next never depends on timing, so one order of execution stands for
 *       all, and more room can only let ranks go on earlier;
 *   <li>all that also in place, where input and output of a chunk are one memory.
 * </ul>
 *
 * <p>Thread safety: immutable.
 */
public final class Verification {
    private final Schedule schedule;
    private final List<String> faults;

    /** Node numbers by rank and output index, after the execution out of place. */
    private final int[][] results;

    private final Expressions expressions;

    private Verification(
            Schedule schedule, List<String> faults, int[][] results, Expressions expressions) {
        this.schedule = schedule;
        this.faults = faults;
        this.results = results;
        this.expressions = expressions;
    }

    /**
     * Executes a schedule.
     *
     * @param schedule any
     * @return what was found
     */
    public static Verification of(Schedule schedule) {
        Execution apart = new Execution(schedule, false);
        apart.run();
        List<String> faults = new ArrayList<>(apart.faults);
        if (schedule.collective().mayBeInPlace()) {
            Execution inPlace = new Execution(schedule, true);
            inPlace.run();
            inPlace.faults.forEach(fault -> faults.add("in place: " + fault));
        }
        return new Verification(schedule, List.copyOf(faults), apart.outputs, apart.expressions);
    }

    /**
     * What is wrong.
     *
     * @return empty if the schedule is proven right
     */
    public List<String> faults() {
        return faults;
    }

    /**
     * The order in which a chunk of a proven schedule is combined.
     *
     * @param chunk the chunk
     * @return the expression that all ranks compute
     */
    public Combination combination(int chunk) {
        int owner = schedule.collective() == Collective.REDUCE_SCATTER ? chunk : 0;
        return expressions.combination(results[owner][chunk]);
    }

    /** Expressions by number; equal ones, also but for the order of operands, have one number. */
    private static final class Expressions {
        private static final int NOTHING = 0;

        private record Node(int chunk, int left, int right, BitSet ranks) {}

        private final List<Node> nodes = new ArrayList<>();
        private final Map<Long, Integer> inputs = new HashMap<>();
        private final Map<Long, Integer> hops = new HashMap<>();

        Expressions() {
            nodes.add(new Node(-1, -1, -1, new BitSet()));
        }

        int input(int rank, int chunk) {
            return inputs.computeIfAbsent(
                    (long) rank << 32 | chunk,
                    key -> {
                        BitSet ranks = new BitSet();
                        ranks.set(rank);
                        nodes.add(new Node(chunk, rank, -1, ranks));
                        return nodes.size() - 1;
                    });
        }

        int hop(int left, int right) {
            return hops.computeIfAbsent(
                    (long) Math.min(left, right) << 32 | Math.max(left, right),
                    key -> {
                        BitSet ranks = (BitSet) ranks(left).clone();
                        ranks.or(ranks(right));
                        nodes.add(new Node(chunk(left), left, right, ranks));
                        return nodes.size() - 1;
                    });
        }

        int chunk(int number) {
            return nodes.get(number).chunk;
        }

        BitSet ranks(int number) {
            return nodes.get(number).ranks;
        }

        Combination combination(int number) {
            Node node = nodes.get(number);
            return node.right < 0
                    ? new Combination.Input(node.left)
                    : new Combination.Hop(combination(node.left), combination(node.right));
        }

        String text(int number) {
            return number == NOTHING
                    ? "nothing"
                    : "chunk " + chunk(number) + " of ranks " + ranks(number);
        }
    }

    /** One execution. */
    private static final class Execution {
        private final Schedule schedule;
        private final Collective collective;
        private final boolean inPlace;
        private final int ranks;
        private final Expressions expressions = new Expressions();
        final List<String> faults = new ArrayList<>();

        private final int[][] inputs;
        final int[][] outputs;
        private final int[][] scratch;
        private final int[] next;

        /** By receiver and sender: the message that is on its way, or null. */
        private final Action[][] underway;

        Execution(Schedule schedule, boolean inPlace) {
            this.schedule = schedule;
            this.collective = schedule.collective();
            this.inPlace = inPlace;
            this.ranks = schedule.ranks();
            this.inputs = new int[ranks][schedule.chunks()];
            this.outputs = inPlace ? inputs : new int[ranks][schedule.chunks()];
            this.scratch = new int[ranks][schedule.scratchSlots()];
            this.next = new int[ranks];
            this.underway = new Action[ranks][ranks];
            for (int rank = 0; rank < ranks; rank++) {
                for (int index = 0; index < schedule.chunks(); index++) {
                    if (collective.hasInput(rank, index)) {
                        inputs[rank][index] = expressions.input(rank, inputChunk(rank, index));
                    }
                }
            }
        }

        private int inputChunk(int rank, int index) {
            return collective == Collective.ALL_TO_ALL ? rank * ranks + index : index;
        }

        void run() {
            ArrayDeque<Integer> ready = new ArrayDeque<>();
            for (int rank = 0; rank < ranks; rank++) {
                ready.add(rank);
            }
            boolean[] waits = new boolean[ranks];
            Arrays.fill(waits, true);
            while (!ready.isEmpty() && faults.isEmpty()) {
                int rank = ready.remove();
                waits[rank] = false;
                List<Action> program = schedule.program(rank);
                while (next[rank] < program.size() && faults.isEmpty()) {
                    Action action = program.get(next[rank]);
                    if (waitsFor(rank, action) != null) {
                        break;
                    }
                    perform(rank, action);
                    next[rank]++;
                    // The peer may wait for the message, or for its acknowledgement.
                    if (action.peer() >= 0 && !waits[action.peer()]) {
                        waits[action.peer()] = true;
                        ready.add(action.peer());
                    }
                }
            }
            if (faults.isEmpty()) {
                checkEnd();
            }
        }

        /** Why an action cannot happen yet, or null. */
        private String waitsFor(int rank, Action action) {
            if (action.peer() >= ranks || action.peer() == rank) {
                return null;
            }
            if (action.kind() == Action.Kind.SEND) {
                return underway[action.peer()][rank] == null
                        ? null
                        : "rank " + action.peer() + " to take the message before";
            }
            if (action.receives() && underway[rank][action.peer()] == null) {
                return "rank " + action.peer() + " to send";
            }
            if (action.kind() == Action.Kind.COPY && isNoMove(action)) {
                return null;
            }
            for (int peer = 0; peer < ranks; peer++) {
                Action sent = underway[peer][rank];
                if (sent != null
                        && action.target()
                                .overlaps(sent.source(), action.chunks(), sent.chunks(), inPlace)) {
                    return "rank " + peer + " to read " + sent.source() + ", which it overwrites";
                }
            }
            return null;
        }

        private boolean isNoMove(Action action) {
            return inPlace
                    && action.source().space() == Space.INPUT
                    && action.target().space() == Space.OUTPUT
                    && action.source().index() == action.target().index();
        }

        private void perform(int rank, Action action) {
            if (action.peer() >= ranks || action.peer() == rank) {
                fault(rank, action, "there is no such peer");
                return;
            }
            if (action.kind() == Action.Kind.SEND) {
                for (int i = 0; i < action.chunks(); i++) {
                    expect(rank, action, action.chunk() + i, get(rank, action.source(), i));
                }
                underway[action.peer()][rank] = action;
                return;
            }
            Action message = null;
            if (action.receives()) {
                message = underway[rank][action.peer()];
                underway[rank][action.peer()] = null;
                if (message.chunk() != action.chunk()
                        || message.chunks() != action.chunks()
                        || message.step() != action.step()) {
                    fault(rank, action, "but rank " + action.peer() + ", " + message);
                    return;
                }
            }
            for (int i = 0; i < action.chunks(); i++) {
                int chunk = action.chunk() + i;
                int own = action.source() == null ? 0 : get(rank, action.source(), i);
                if (action.source() != null) {
                    expect(rank, action, chunk, own);
                }
                int other =
                        switch (action.kind()) {
                            case COPY -> Expressions.NOTHING;
                            case COMBINE -> get(rank, action.target(), i);
                            default -> get(action.peer(), message.source(), i);
                        };
                if (action.kind() != Action.Kind.COPY) {
                    expect(rank, action, chunk, other);
                }
                if (!faults.isEmpty()) {
                    return;
                }
                int result =
                        own == 0 ? other : other == 0 ? own : combine(rank, action, own, other);
                boolean complete = expressions.ranks(result).cardinality() == ranks;
                if (own != 0 && other != 0 && complete != action.completes()) {
                    fault(
                            rank,
                            action,
                            "but the result is " + (complete ? "" : "not ") + "complete");
                }
                set(rank, action, action.target(), i, result);
            }
        }

        private int combine(int rank, Action action, int own, int other) {
            if (expressions.ranks(own).intersects(expressions.ranks(other))) {
                fault(
                        rank,
                        action,
                        "but "
                                + expressions.text(own)
                                + " and "
                                + expressions.text(other)
                                + " have a contribution in common");
                return own;
            }
            return expressions.hop(own, other);
        }

        private void expect(int rank, Action action, int chunk, int value) {
            if (value == Expressions.NOTHING || expressions.chunk(value) != chunk) {
                fault(
                        rank,
                        action,
                        "but where chunk " + chunk + " should be is " + expressions.text(value));
            }
        }

        private int get(int rank, Place place, int offset) {
            int[] cells =
                    switch (place.space()) {
                        case INPUT -> inputs[rank];
                        case OUTPUT -> outputs[rank];
                        case SCRATCH -> scratch[rank];
                    };
            int index = place.index() + offset;
            boolean exists =
                    switch (place.space()) {
                        case INPUT -> index < cells.length && collective.hasInput(rank, index);
                        case OUTPUT -> index < cells.length && collective.hasOutput(rank, index);
                        case SCRATCH -> true;
                    };
            return exists ? cells[index] : Expressions.NOTHING;
        }

        private void set(int rank, Action action, Place place, int offset, int value) {
            int index = place.index() + offset;
            switch (place.space()) {
                case INPUT -> fault(rank, action, "but the input may not be written");
                case OUTPUT -> {
                    if (index >= outputs[rank].length || !collective.hasOutput(rank, index)) {
                        fault(rank, action, "but it has no " + place);
                    } else {
                        outputs[rank][index] = value;
                    }
                }
                case SCRATCH -> scratch[rank][index] = value;
            }
        }

        private void fault(int rank, Action action, String why) {
            faults.add("rank " + rank + ", " + action + ": " + why);
        }

        private void checkEnd() {
            for (int rank = 0; rank < ranks; rank++) {
                if (next[rank] < schedule.program(rank).size()) {
                    Action action = schedule.program(rank).get(next[rank]);
                    faults.add(
                            "rank "
                                    + rank
                                    + ", "
                                    + action
                                    + ": waits for ever for "
                                    + waitsFor(rank, action));
                }
                for (int peer = 0; peer < ranks; peer++) {
                    if (underway[rank][peer] != null) {
                        faults.add(
                                "rank "
                                        + peer
                                        + ", "
                                        + underway[rank][peer]
                                        + ": nobody receives it");
                    }
                }
            }
            if (!faults.isEmpty()) {
                return;
            }
            for (int rank = 0; rank < ranks; rank++) {
                for (int index = 0; index < schedule.chunks(); index++) {
                    if (collective.hasOutput(rank, index)) {
                        checkResult(rank, index);
                    }
                }
            }
        }

        private void checkResult(int rank, int index) {
            int result = outputs[rank][index];
            BitSet expected = new BitSet();
            int chunk = index;
            switch (collective) {
                case ALL_REDUCE, REDUCE_SCATTER, REDUCE -> expected.set(0, ranks);
                case ALL_GATHER -> expected.set(index);
                case BROADCAST -> expected.set(0);
                case ALL_TO_ALL -> {
                    expected.set(index);
                    chunk = index * ranks + rank;
                }
            }
            if (expressions.chunk(result) != chunk || !expressions.ranks(result).equals(expected)) {
                faults.add(
                        "rank "
                                + rank
                                + " ends with "
                                + expressions.text(result)
                                + " in output["
                                + index
                                + "], expected chunk "
                                + chunk
                                + " of ranks "
                                + expected);
            } else if (collective == Collective.ALL_REDUCE && result != outputs[0][index]) {
                faults.add(
                        "ranks 0 and "
                                + rank
                                + " combine chunk "
                                + index
                                + " in different orders: "
                                + expressions.combination(outputs[0][index])
                                + " and "
                                + expressions.combination(result));
            }
        }
    }
}
