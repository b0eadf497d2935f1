package org.nccl4j.cpu.schedule;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * An algorithm for a number of ranks as data: for each rank the {@link Action}s that it takes, one
 * after the other. Between two ranks messages arrive in the order in which they were sent. Whoever
 * executes it needs room for one message per ordered pair of ranks, whatever the transport; {@link
 * Verification} proves that this is enough.
 *
 * <p>Thread safety: immutable.
 */
public final class Schedule {
    private final String algorithm;
    private final Collective collective;
    private final int chunks;
    private final List<List<Action>> programs;
    private final int scratchSlots;
    private final int steps;

    /**
     * A schedule of given programs, proven or not.
     *
     * @param algorithm its name
     * @param collective what it achieves
     * @param chunks into how many chunks a rank's full buffer is cut
     * @param programs by rank
     */
    Schedule(
            String algorithm,
            Collective collective,
            int chunks,
            List<? extends List<Action>> programs) {
        this.algorithm = algorithm;
        this.collective = collective;
        this.chunks = chunks;
        this.programs = programs.stream().map(List::copyOf).toList();
        int slots = 0;
        int last = -1;
        for (List<Action> program : this.programs) {
            for (Action action : program) {
                slots = Math.max(slots, slotsOf(action.source(), action.chunks()));
                slots = Math.max(slots, slotsOf(action.target(), action.chunks()));
                last = Math.max(last, action.peer() < 0 ? -1 : action.step());
            }
        }
        this.scratchSlots = slots;
        this.steps = last + 1;
    }

    private static int slotsOf(Place place, int chunks) {
        return place != null && place.space() == Place.Space.SCRATCH ? place.index() + chunks : 0;
    }

    /**
     * The algorithm's name.
     *
     * @return such as {@code "ring"}
     */
    public String algorithm() {
        return algorithm;
    }

    /**
     * What it achieves.
     *
     * @return the collective
     */
    public Collective collective() {
        return collective;
    }

    /**
     * The number of ranks.
     *
     * @return at least 1
     */
    public int ranks() {
        return programs.size();
    }

    /**
     * Into how many chunks a rank's full buffer is cut.
     *
     * @return at least 1
     */
    public int chunks() {
        return chunks;
    }

    /**
     * Slots of scratch memory that a rank needs.
     *
     * @return 0 if none
     */
    public int scratchSlots() {
        return scratchSlots;
    }

    /**
     * The number of steps in which messages are sent.
     *
     * @return 1 + the last such step
     */
    public int steps() {
        return steps;
    }

    /**
     * What a rank does, in order.
     *
     * @param rank the rank
     * @return its actions
     */
    public List<Action> program(int rank) {
        return programs.get(rank);
    }

    /**
     * The actions of all ranks.
     *
     * @return how many
     */
    public long actions() {
        return programs.stream().mapToLong(List::size).sum();
    }

    /**
     * How many elements a chunk has: chunks differ by one at most, the first ones are the longer.
     *
     * @param chunk the chunk
     * @param totalElements of the full buffer
     * @return its elements
     */
    public long chunkElements(int chunk, long totalElements) {
        int index = chunk % chunks;
        return totalElements / chunks + (index < totalElements % chunks ? 1 : 0);
    }

    /**
     * How many elements several chunks running have.
     *
     * @param chunk the first
     * @param count how many
     * @param totalElements of the full buffer
     * @return their elements
     */
    public long rangeElements(int chunk, int count, long totalElements) {
        long elements = 0;
        for (int i = 0; i < count; i++) {
            elements += chunkElements(chunk + i, totalElements);
        }
        return elements;
    }

    /**
     * What one rank sends to another.
     *
     * @param from the sender
     * @param to the receiver, another rank
     * @param totalElements of the full buffer
     * @return elements
     */
    public long sentElements(int from, int to, long totalElements) {
        long elements = 0;
        for (Action action : programs.get(from)) {
            if (action.kind() == Action.Kind.SEND && action.peer() == to) {
                elements += rangeElements(action.chunk(), action.chunks(), totalElements);
            }
        }
        return elements;
    }

    /**
     * What a rank sends to all others.
     *
     * @param rank the sender
     * @param totalElements of the full buffer
     * @return elements
     */
    public long sentElements(int rank, long totalElements) {
        long elements = 0;
        for (Action action : programs.get(rank)) {
            if (action.kind() == Action.Kind.SEND) {
                elements += rangeElements(action.chunk(), action.chunks(), totalElements);
            }
        }
        return elements;
    }

    /**
     * What a rank receives from all others.
     *
     * @param rank the receiver
     * @param totalElements of the full buffer
     * @return elements
     */
    public long receivedElements(int rank, long totalElements) {
        long elements = 0;
        for (Action action : programs.get(rank)) {
            if (action.receives()) {
                elements += rangeElements(action.chunk(), action.chunks(), totalElements);
            }
        }
        return elements;
    }

    @Override
    public String toString() {
        return collective.title() + " by " + algorithm + ", " + ranks() + " ranks";
    }

    /**
     * Collects messages and local actions, in any order of ranks, and puts each rank's own in
     * order. Within a step a rank sends before it receives; of several messages to one peer in one
     * step the second goes after what the rank receives along with the first, so that room for one
     * is enough.
     */
    static final class Plan {
        private final String algorithm;
        private final Collective collective;
        private final int ranks;
        private final int chunks;
        private final List<List<Entry>> entries = new ArrayList<>();
        private final Map<Long, Integer> messages = new HashMap<>();
        private int lane;

        private record Entry(int lane, int wave, Action action) {}

        private static final Comparator<Entry> ORDER =
                Comparator.<Entry>comparingInt(entry -> entry.action.step())
                        .thenComparingInt(Entry::lane)
                        .thenComparingInt(Entry::wave)
                        .thenComparing(entry -> entry.action.kind() != Action.Kind.SEND);

        Plan(String algorithm, Collective collective, int ranks, int chunks) {
            this.algorithm = algorithm;
            this.collective = collective;
            this.ranks = ranks;
            this.chunks = chunks;
            for (int rank = 0; rank < ranks; rank++) {
                entries.add(new ArrayList<>());
            }
        }

        int ranks() {
            return ranks;
        }

        /** What follows goes, within each step, after what was added in lower lanes. */
        void lane(int number) {
            lane = number;
        }

        /** A message that is stored. */
        void move(int step, int from, Place source, int to, Place target, int chunk, int count) {
            int wave = send(step, from, source, to, chunk, count);
            Action.Kind kind = Action.Kind.RECEIVE;
            add(to, wave, new Action(step, kind, from, chunk, count, null, target, false));
        }

        /** A message that is combined with what the receiver has at {@code own}. */
        void reduce(
                int step,
                int from,
                Place source,
                int to,
                Place own,
                Place target,
                int chunk,
                int count,
                boolean completes) {
            int wave = send(step, from, source, to, chunk, count);
            Action.Kind kind = Action.Kind.REDUCE;
            add(to, wave, new Action(step, kind, from, chunk, count, own, target, completes));
        }

        private int send(int step, int from, Place source, int to, int chunk, int count) {
            long edge = (((long) lane << 32 | step) * ranks + from) * ranks + to;
            int wave = messages.merge(edge, 1, Integer::sum) - 1;
            Action.Kind kind = Action.Kind.SEND;
            add(from, wave, new Action(step, kind, to, chunk, count, source, null, false));
            return wave;
        }

        void copy(int step, int rank, Place source, Place target, int chunk, int count) {
            Action.Kind kind = Action.Kind.COPY;
            add(rank, 0, new Action(step, kind, -1, chunk, count, source, target, false));
        }

        void combine(
                int step,
                int rank,
                Place source,
                Place target,
                int chunk,
                int count,
                boolean completes) {
            Action.Kind kind = Action.Kind.COMBINE;
            add(rank, 0, new Action(step, kind, -1, chunk, count, source, target, completes));
        }

        private void add(int rank, int wave, Action action) {
            entries.get(rank).add(new Entry(lane, wave, action));
        }

        Schedule build() {
            List<List<Action>> programs = new ArrayList<>();
            for (List<Entry> program : entries) {
                programs.add(program.stream().sorted(ORDER).map(Entry::action).toList());
            }
            return new Schedule(algorithm, collective, chunks, programs);
        }
    }
}
