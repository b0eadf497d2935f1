package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.nccl4j.cpu.schedule.Action;
import org.nccl4j.cpu.schedule.DirectReads;
import org.nccl4j.cpu.schedule.Exchanges;
import org.nccl4j.cpu.schedule.HalvingDoubling;
import org.nccl4j.cpu.schedule.Rings;
import org.nccl4j.cpu.schedule.Schedule;
import org.nccl4j.cpu.schedule.Trees;
import tools.jackson.databind.JsonNode;

/**
 * The published cases about algorithms that are schedules. Messages, bytes and steps are counted in
 * the schedule; times are those counts in the textbook's model; values come from executing it step
 * by step, all sends of a step first.
 */
final class ScheduleVectors {
    private ScheduleVectors() {}

    /** Checks a case, or fails because its model is not known. */
    static void check(SeedVector vector) {
        switch (vector.model()) {
            case "binomial_tree_messages" -> treeMessages(vector);
            case "butterfly_trace" -> butterfly(vector);
            case "butterfly_partner" -> butterflyPartner(vector);
            case "double_tree_structure" -> doubleTree(vector);
            case "torus_allreduce" -> torus(vector);
            case "torus_coordinates" -> torusRings(vector);
            case "torus_block_owner" -> torusOwners(vector);
            case "hierarchical_allreduce_trace" -> hierarchicalTrace(vector);
            case "hierarchical_allreduce" -> hierarchicalTime(vector);
            case "hierarchical_allreduce_3level" -> hierarchicalTimeOfThreeLevels(vector);
            case "rail_groups" -> rails(vector);
            case "one_shot_allreduce" -> oneShot(vector);
            case "naive_bytes" -> naiveBytes(vector);
            case "naive_vs_ring" -> naiveRatio(vector);
            case "alltoall_flows" -> flows(vector);
            default -> throw new AssertionError("no test for the model " + vector.model());
        }
    }

    private static void treeMessages(SeedVector vector) {
        int n = vector.ranks();
        assertThat(vector.input("root").asInt()).isZero();
        Schedule schedule = Trees.allReduce(n, 1);
        int half = schedule.steps() / 2;
        int most = 0;
        int total = 0;
        for (int rank = 0; rank < n; rank++) {
            int up = sends(schedule, rank, 0, half).size();
            int down = sends(schedule, rank, half, schedule.steps()).size();
            assertThat(up).isEqualTo(vector.expected("reduce_sends").get(rank).asInt());
            assertThat(down).isEqualTo(vector.expected("broadcast_sends").get(rank).asInt());
            most = Math.max(most, up + down);
            total += up + down;
        }
        vector.expect("total_sends", total);
        vector.expect("max_sends_any_rank", most);
        vector.expect("avg_sends", (double) total / n);
        vector.expect("steps", schedule.steps());
    }

    private static void butterfly(SeedVector vector) {
        int n = vector.ranks();
        boolean nearestFirst = vector.id().endsWith("lsb");
        Schedule schedule = HalvingDoubling.allReduce(n, nearestFirst);
        assertThat(vector.input("elements").asInt()).isEqualTo(schedule.chunks());
        JsonNode rounds = vector.expected("rounds");
        assertThat(schedule.steps()).isEqualTo(2 * rounds.size());
        for (int step = 0; step < rounds.size(); step++) {
            JsonNode round = rounds.get(step);
            Set<List<Integer>> pairs = new HashSet<>();
            for (int rank = 0; rank < n; rank++) {
                Action send = sends(schedule, rank, step, step + 1).getFirst();
                pairs.add(List.of(Math.min(rank, send.peer()), Math.max(rank, send.peer())));
                assertThat(Math.abs(rank - send.peer())).isEqualTo(round.get("distance").asInt());
                assertThat(1 << round.get("round_k").asInt())
                        .isEqualTo(round.get("distance").asInt());
                assertThat(send.chunks()).isEqualTo(round.get("elements_sent_per_rank").asInt());
                Action kept = reduces(schedule, rank, step);
                assertThat(SeedVector.numbers(round.get("kept_range").get(rank)))
                        .containsExactly((long) kept.chunk(), (long) kept.chunk() + kept.chunks());
            }
            Set<List<Integer>> published = new HashSet<>();
            for (JsonNode pair : round.get("pairs")) {
                published.add(List.of(pair.get(0).asInt(), pair.get(1).asInt()));
            }
            assertThat(pairs).isEqualTo(published);
        }
        for (int rank = 0; rank < n; rank++) {
            assertThat(reduces(schedule, rank, rounds.size() - 1).chunk())
                    .isEqualTo(vector.expected("owner_chunk_of_rank").get(rank).asInt());
        }
        if (vector.expects("sum")) {
            double[][] values = rows(vector.input("rank_inputs"));
            execute(schedule, values, schedule.steps());
            for (double[] row : values) {
                assertThat(row).isEqualTo(row(vector.expected("sum")));
            }
        }
        vector.expectIfThere(
                "reduce_scatter_elements_sent", elements(schedule, 0, 0, rounds.size(), n));
        vector.expectIfThere(
                "all_gather_elements_sent",
                elements(schedule, 0, rounds.size(), schedule.steps(), n));
        vector.expectIfThere("total_rounds", schedule.steps());
    }

    private static void butterflyPartner(SeedVector vector) {
        Schedule schedule = HalvingDoubling.allReduce(vector.ranks(), true);
        int last = vector.input("last_round_k").asInt();
        int partner = sends(schedule, 0, last, last + 1).getFirst().peer();
        vector.expect("partner_of_0", partner);
        vector.expect("distance", partner);
        vector.expect("rounds_per_phase", schedule.steps() / 2);
    }

    private static void doubleTree(SeedVector vector) {
        int n = vector.ranks();
        Schedule schedule = Trees.doubleTree(n, 1);
        int[][] parents = new int[2][n];
        for (int rank = 0; rank < n; rank++) {
            parents[0][rank] = Trees.parentInFirstTree(rank, n);
            parents[1][rank] = Trees.parentInSecondTree(rank, n);
        }
        for (int tree = 0; tree < 2; tree++) {
            Set<Integer> interior = new TreeSet<>();
            int deepest = 0;
            for (int rank = 0; rank < n; rank++) {
                int depth = 0;
                for (int at = rank; parents[tree][at] >= 0; at = parents[tree][at]) {
                    interior.add(parents[tree][at]);
                    depth++;
                }
                deepest = Math.max(deepest, depth);
            }
            assertThat(ints(vector.expected("parent_tree" + (tree + 1)))).isEqualTo(parents[tree]);
            assertThat(ints(vector.expected("interior_tree" + (tree + 1))))
                    .isEqualTo(interior.stream().mapToInt(Integer::intValue).toArray());
            assertThat(deepest).isEqualTo(vector.expected("depth").get(tree).asInt());
        }
        double total = 0;
        double most = 0;
        for (int rank = 0; rank < n; rank++) {
            double sent = schedule.sentElements(rank, 2) / 2.0;
            assertThat(sent).isEqualTo(vector.expected("sent_in_units_of_M").get(rank).asDouble());
            total += sent;
            most = Math.max(most, sent);
        }
        vector.expect("total_sent_in_units_of_M", total);
        vector.expect("max_sent_in_units_of_M", most);
    }

    private static void torus(SeedVector vector) {
        int[] dimensions = ints(vector.input("dims"));
        int n = vector.ranks();
        Schedule schedule = Rings.allReduce("torus", dimensions);
        assertThat(schedule.ranks()).isEqualTo(n);
        int flat = Rings.allReduce(n).steps();
        vector.expect("steps", schedule.steps());
        vector.expect("flat_ring_steps", flat);
        vector.expect("step_ratio", (double) flat / schedule.steps());
        double cascaded = 0;
        for (int size : dimensions) {
            cascaded += Rings.allReduce(size).sentElements(0, n) / (double) n;
        }
        vector.expect("volume_per_rank_in_M_cascaded_allreduce", cascaded);
        for (int rank = 0; rank < n; rank++) {
            vector.expect(
                    "volume_per_rank_in_M_rs_rs_ag_ag",
                    schedule.sentElements(rank, n) / (double) n);
        }
        // One behind and one ahead in each dimension; where it is 2 long they are the same rank.
        vector.expect("neighbours_per_node", 2L * dimensions.length);
    }

    private static void torusRings(SeedVector vector) {
        int[] dimensions = ints(vector.input("dims"));
        Schedule schedule = Rings.allReduce("torus", dimensions);
        assertThat(vector.expected("rank_of_col_row").asString()).isEqualTo("rank = row*4 + col");
        rings(schedule, 0, vector.expected("row_rings"));
        rings(schedule, dimensions[0] - 1, vector.expected("col_rings"));
    }

    private static void rings(Schedule schedule, int step, JsonNode rings) {
        for (JsonNode ring : rings) {
            int[] members = ints(ring);
            for (int i = 0; i < members.length; i++) {
                assertThat(sends(schedule, members[i], step, step + 1).getFirst().peer())
                        .isEqualTo(members[(i + 1) % members.length]);
            }
        }
    }

    private static void torusOwners(SeedVector vector) {
        Schedule schedule = Rings.allReduce("torus", ints(vector.input("dims")));
        assertThat(vector.input("order").asString())
                .startsWith("reduce-scatter X, reduce-scatter Y");
        assertThat(vector.expected("meaning").asString()).contains("owns block col*4+row");
        for (int rank = 0; rank < schedule.ranks(); rank++) {
            Action last = reduces(schedule, rank, schedule.steps() / 2 - 1);
            assertThat(last.completes()).isTrue();
            assertThat(last.chunks()).isEqualTo(1);
            assertThat(last.chunk()).isEqualTo(vector.expected("block_of_rank").get(rank).asInt());
        }
    }

    private static void hierarchicalTrace(SeedVector vector) {
        int nodes = vector.input("nodes").asInt();
        int node = vector.input("gpus_per_node").asInt();
        int n = nodes * node;
        assertThat(vector.input("rank_layout").asString()).isEqualTo("rank = node*2 + local");
        Schedule schedule = Rings.allReduce("hierarchical", node, nodes);
        int within = node - 1;
        int across = within + 2 * (nodes - 1);
        double[][] values = rows(vector.input("rank_inputs"));
        execute(schedule, values, within);
        owned(schedule, values, within - 1, vector.expected("after_intra_reduce_scatter"));
        values = rows(vector.input("rank_inputs"));
        execute(schedule, values, across);
        owned(schedule, values, within - 1, vector.expected("after_inter_allreduce"));
        values = rows(vector.input("rank_inputs"));
        execute(schedule, values, schedule.steps());
        for (int rank = 0; rank < n; rank++) {
            assertThat(values[rank]).isEqualTo(row(vector.expected("final").get(rank)));
            vector.expect(
                    "inter_node_elements_sent_per_rank",
                    elements(schedule, rank, within, across, n));
            vector.expect(
                    "intra_node_elements_sent_per_rank",
                    elements(schedule, rank, 0, within, n)
                            + elements(schedule, rank, across, schedule.steps(), n));
        }
        rings(schedule, within, vector.expected("inter_groups"));
    }

    /** What each rank has of the range that it kept in a step. */
    private static void owned(Schedule schedule, double[][] values, int step, JsonNode expected) {
        for (int rank = 0; rank < schedule.ranks(); rank++) {
            Action kept = reduces(schedule, rank, step);
            assertThat(Arrays.copyOfRange(values[rank], kept.chunk(), kept.chunk() + kept.chunks()))
                    .isEqualTo(row(expected.get(rank)));
        }
    }

    private static void hierarchicalTime(SeedVector vector) {
        int nodes = vector.input("nodes").asInt();
        int node = vector.input("gpus_per_node").asInt();
        long bytes = vector.input("bytes").asLong();
        Schedule schedule = Rings.allReduce("hierarchical", node, nodes);
        int within = node - 1;
        int across = within + 2 * (nodes - 1);
        AlphaBetaModel inside = model(vector, "intra");
        AlphaBetaModel outside = model(vector, "inter");
        double scatter = millis(inside, schedule, 0, within, bytes);
        double reduce = millis(outside, schedule, within, across, bytes);
        double gather = millis(inside, schedule, across, schedule.steps(), bytes);
        double total = scatter + reduce + gather;
        vector.expect("intra_rs_ms", scatter);
        vector.expect("inter_ar_ms", reduce);
        vector.expect("intra_ag_ms", gather);
        vector.expect("total_ms", total);
        vector.expect("speedup_vs_40ms", 40 / total);
        AlphaBetaModel flat = new AlphaBetaModel(0, outside.bandwidthGBps());
        vector.expect(
                "speedup_vs_exact_flat",
                flat.ringAllReduce(nodes * node, (double) bytes).totalMicros() / 1e3 / total);
        vector.expect("intra_bytes_sent", elements(schedule, 0, 0, within, bytes));
        vector.expect("inter_bytes_sent", elements(schedule, 0, within, across, bytes));
        Action kept = reduces(schedule, 0, within - 1);
        vector.expect("shard_bytes", schedule.rangeElements(kept.chunk(), kept.chunks(), bytes));
    }

    private static void hierarchicalTimeOfThreeLevels(SeedVector vector) {
        int node = vector.input("gpus_per_node").asInt();
        int rack = vector.input("nodes_per_rack").asInt();
        int racks = vector.input("racks").asInt();
        long bytes = vector.input("bytes").asLong();
        Schedule schedule = Rings.allReduce("hierarchical-3", node, rack, racks);
        assertThat(schedule.ranks()).isEqualTo(vector.ranks());
        int first = node - 1;
        int second = first + rack - 1;
        int third = second + 2 * (racks - 1);
        AlphaBetaModel crossRack =
                new AlphaBetaModel(0, vector.input("beta_crossrack_GBps").asDouble());
        AlphaBetaModel inRack = new AlphaBetaModel(0, vector.input("beta_rack_GBps").asDouble());
        AlphaBetaModel inNode = new AlphaBetaModel(0, vector.input("beta_node_GBps").asDouble());
        double each = millis(inNode, schedule, 0, first, bytes);
        double rackEach = millis(inRack, schedule, first, second, bytes);
        double cross = millis(crossRack, schedule, second, third, bytes);
        double total = 2 * each + 2 * rackEach + cross;
        double flat = crossRack.ringAllReduce(schedule.ranks(), (double) bytes).totalMicros() / 1e3;
        vector.expect("intra_node_each_ms", each);
        vector.expect("intra_rack_each_ms", rackEach);
        vector.expect("cross_rack_ms", cross);
        vector.expect("total_ms", total);
        vector.expect("flat_ms", flat);
        vector.expect("speedup", flat / total);
        Action kept = reduces(schedule, 0, second - 1);
        vector.expect("cross_rack_payload_divisor", schedule.chunks() / kept.chunks());
    }

    private static void rails(SeedVector vector) {
        int nodes = vector.input("nodes").asInt();
        int node = vector.input("gpus_per_node").asInt();
        Schedule schedule = Rings.allReduce("hierarchical", node, nodes);
        rings(schedule, node - 1, vector.expected("rail_members"));
        vector.expect("n_rails", vector.expected("rail_members").size());
        int within = node - 1;
        int across = within + 2 * (nodes - 1);
        long all = 0;
        long first = 0;
        for (int rank = 0; rank < nodes * node; rank++) {
            long sent = elements(schedule, rank, within, across, schedule.chunks());
            all += sent;
            first += rank % node == 0 ? sent : 0;
        }
        vector.expect("traffic_fraction_per_rail", (double) first / all);
        // If all ranks of a node took one rail, their flows would meet at its network card.
        vector.expect("misaligned_worst_nic_contention", node);
    }

    private static void oneShot(SeedVector vector) {
        int n = vector.ranks();
        long bytes = vector.input("bytes").asLong();
        AlphaBetaModel model =
                new AlphaBetaModel(
                        vector.input("alpha_us").asDouble(), vector.input("beta_GBps").asDouble());
        Schedule one = DirectReads.oneShot(n);
        Schedule two = DirectReads.twoShot(n);
        Schedule ring = Rings.allReduce(n);
        vector.expect("one_shot_us", 1e3 * millis(model, one, 0, one.steps(), bytes));
        vector.expect("two_shot_us", 1e3 * millis(model, two, 0, two.steps(), bytes));
        vector.expect("ring_us", 1e3 * millis(model, ring, 0, ring.steps(), bytes));
        for (int rank = 0; rank < n; rank++) {
            vector.expect("one_shot_bytes_read", one.receivedElements(rank, bytes));
            vector.expect("two_shot_bytes_read", two.receivedElements(rank, bytes));
        }
    }

    private static void naiveBytes(SeedVector vector) {
        int n = vector.ranks();
        long bytes = vector.input("bytes").asLong();
        vector.expect("all_pairs_sent_per_rank", DirectReads.oneShot(n).sentElements(0, bytes));
        long root = DirectReads.star(n).receivedElements(0, bytes);
        vector.expect("root_recv_if_root_is_a_rank", root);
        vector.expect("root_recv_N_convention", root + bytes);
        vector.expect(
                "per_server_recv_sharded", (root + bytes) / vector.input("servers").asDouble());
    }

    private static void naiveRatio(SeedVector vector) {
        int n = vector.ranks();
        double root = DirectReads.star(n).receivedElements(0, 1);
        double ring = AlphaBetaModel.ringAllReduceFactor(n);
        vector.expect("naive_N_minus_1_over_ring", root / ring);
        vector.expect("naive_one_direction_over_ring", (root + 1) / ring);
        vector.expect("naive_both_directions_serial_over_ring", 2 * (root + 1) / ring);
    }

    private static void flows(SeedVector vector) {
        int n = vector.ranks();
        int node = n / vector.input("nodes").asInt();
        Set<Integer> all = new HashSet<>();
        Set<Integer> between = new HashSet<>();
        Set<Integer> nodes = new HashSet<>();
        Set<Integer> aligned = new HashSet<>();
        Schedule pairwise = Exchanges.pairwise(n);
        Schedule hierarchical = Exchanges.hierarchical(n, node);
        for (int rank = 0; rank < n; rank++) {
            for (Action send : sends(pairwise, rank, 0, pairwise.steps())) {
                all.add(rank * n + send.peer());
                if (rank / node != send.peer() / node) {
                    between.add(rank * n + send.peer());
                    nodes.add(rank / node * n + send.peer() / node);
                }
            }
            for (Action send : sends(hierarchical, rank, 0, hierarchical.steps())) {
                if (rank / node != send.peer() / node) {
                    aligned.add(rank * n + send.peer());
                }
            }
        }
        vector.expect("logical_pairs", all.size());
        vector.expect("inter_node_rank_pairs", between.size());
        vector.expect("node_pairs", nodes.size());
        vector.expect("rail_aligned_inter_node_flows", aligned.size());
    }

    private static AlphaBetaModel model(SeedVector vector, String where) {
        return new AlphaBetaModel(
                vector.input("alpha_" + where + "_us").asDouble(),
                vector.input("beta_" + where + "_GBps").asDouble());
    }

    /** The time of steps [from, to) by their number and the bytes that rank 0 sends in them. */
    private static double millis(
            AlphaBetaModel model, Schedule schedule, int from, int to, long bytes) {
        double transferMicros =
                elements(schedule, 0, from, to, bytes) / (model.bandwidthGBps() * 1e3);
        return ((to - from) * model.alphaMicros() + transferMicros) / 1e3;
    }

    private static List<Action> sends(Schedule schedule, int rank, int from, int to) {
        return schedule.program(rank).stream()
                .filter(action -> action.kind() == Action.Kind.SEND)
                .filter(action -> action.step() >= from && action.step() < to)
                .toList();
    }

    private static long elements(Schedule schedule, int rank, int from, int to, long total) {
        return sends(schedule, rank, from, to).stream()
                .mapToLong(send -> schedule.rangeElements(send.chunk(), send.chunks(), total))
                .sum();
    }

    /** What a rank reduces in a step. */
    private static Action reduces(Schedule schedule, int rank, int step) {
        return schedule.program(rank).stream()
                .filter(action -> action.kind() == Action.Kind.REDUCE && action.step() == step)
                .findFirst()
                .orElseThrow();
    }

    /** Executes steps [0, end) of an all-reduce in place, a value per chunk. */
    private static void execute(Schedule schedule, double[][] values, int end) {
        record Message(int to, Action action, double[] values) {}
        for (int step = 0; step < end; step++) {
            List<Message> messages = new ArrayList<>();
            for (int rank = 0; rank < schedule.ranks(); rank++) {
                for (Action send : sends(schedule, rank, step, step + 1)) {
                    int start = send.source().index();
                    messages.add(
                            new Message(
                                    send.peer(),
                                    send,
                                    Arrays.copyOfRange(
                                            values[rank], start, start + send.chunks())));
                }
            }
            for (Message message : messages) {
                boolean reduced =
                        schedule.program(message.to).stream()
                                .anyMatch(action ->
                                        action.kind() == Action.Kind.REDUCE
                                                && action.step() == message.action.step()
                                                && action.chunk() == message.action.chunk());
                for (int i = 0; i < message.values.length; i++) {
                    int at = message.action.chunk() + i;
                    double before = reduced ? values[message.to][at] : 0;
                    values[message.to][at] = before + message.values[i];
                }
            }
        }
    }

    private static int[] ints(JsonNode list) {
        return Arrays.stream(SeedVector.numbers(list)).mapToInt(Math::toIntExact).toArray();
    }

    private static double[] row(JsonNode list) {
        return Arrays.stream(SeedVector.numbers(list)).asDoubleStream().toArray();
    }

    private static double[][] rows(JsonNode lists) {
        double[][] rows = new double[lists.size()][];
        for (int i = 0; i < rows.length; i++) {
            rows[i] = row(lists.get(i));
        }
        return rows;
    }
}
