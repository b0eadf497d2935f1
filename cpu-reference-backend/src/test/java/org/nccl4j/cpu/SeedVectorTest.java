package org.nccl4j.cpu;

import static java.util.stream.Collectors.toCollection;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/**
 * The published cases about primitives, rings, byte counts and times: {@code seed-vectors.json}.
 * Data goes through the engine; what is only a formula is checked against {@link AlphaBetaModel};
 * what is about algorithms that are schedules, by {@link ScheduleVectors}. A case whose model no
 * method here knows, or with an expectation that the method does not look at, fails.
 */
class SeedVectorTest {
    /** An id of a case in the documentation. */
    private static final Pattern DOCUMENTED = Pattern.compile("`([a-z0-9]+(?:-[\\w.]+)+)`");

    /** Above this, step counts are checked by formula alone: a run would take minutes. */
    private static final int MOST_RANKS_RUN = 128;

    private final long seed = new Random().nextLong();
    private final Random random = new Random(seed);

    /** What stands for the symbols of a case. */
    private final Map<String, Float> symbols = new HashMap<>();

    static Stream<SeedVector> vectors() {
        return SeedVector.all();
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("vectors")
    void holds(SeedVector vector) {
        try {
            check(vector);
        } catch (AssertionError | RuntimeException e) {
            throw new AssertionError(vector + ", seed " + seed, e);
        }
        vector.checkThatNothingWasPassedOver();
    }

    /** The bus bandwidth formulas are bench's, and so are their cases and the test. */
    @Test
    void theDocumentationListsEveryCaseAndNoOther() throws IOException {
        Set<String> ids = vectors().map(SeedVector::id).collect(toCollection(TreeSet::new));
        Path bench = Path.of("..", "bench/src/test/resources/org/nccl4j/bench/busbw-vectors.json");
        for (JsonNode vector : new JsonMapper().readTree(Files.readString(bench))) {
            ids.add(vector.get("id").asString());
        }
        String page = Files.readString(Path.of("..", "docs/testing.md"));
        String table = page.substring(page.indexOf("| checked against |"));
        Set<String> documented =
                DOCUMENTED
                        .matcher(table)
                        .results()
                        .map(id -> id.group(1))
                        .collect(toCollection(TreeSet::new));
        assertThat(documented).isEqualTo(ids);
    }

    private void check(SeedVector vector) {
        switch (vector.model()) {
            case "input" -> demoInput(vector);
            case "all_reduce" -> allReduce(vector);
            case "reduce" -> reduce(vector);
            case "broadcast" -> broadcast(vector);
            case "all_gather" -> allGather(vector);
            case "reduce_scatter" -> reduceScatter(vector);
            case "all_to_all" -> allToAll(vector);
            case "all_to_all_v" -> allToAllV(vector);
            case "gather" -> gather(vector);
            case "scatter" -> scatter(vector);
            case "rs_then_ag_equals_ar" -> identity(vector);
            case "ring_allreduce_trace", "ring_reduce_scatter_trace" -> ringTrace(vector);
            case "ring_chunk_indices" -> ringIndices(vector);
            case "ring_allgather_schedule" -> allGatherSchedule(vector);
            case "ring_allreduce_count" -> ringCount(vector);
            case "ring_volume_factor" -> volumeFactor(vector);
            case "ring_allreduce_bytes" -> ringBytes(vector);
            case "alltoall_bytes" -> allToAllBytes(vector);
            case "primitive_bytes_per_rank" -> primitiveBytes(vector);
            case "steps", "step_counts" -> steps(vector);
            case "tree_broadcast_schedule" -> treeBroadcast(vector);
            case "float_order_sensitivity" -> floatOrder(vector);
            case "ring_allreduce_time" -> ringTime(vector);
            case "half_ring_time" -> halfRingTime(vector);
            case "ring_regime_boundary" -> ringBoundary(vector);
            case "alltoall_lower_bound_max" -> allToAllBound(vector);
            case "alltoall_schedule_choice" -> allToAllChoice(vector);
            default -> ScheduleVectors.check(vector);
        }
    }

    // Data movement and reductions, through the engine.

    private void demoInput(SeedVector vector) {
        JsonNode rows = vector.expected("rank_inputs");
        for (int r = 0; r < vector.ranks(); r++) {
            for (int i = 0; i < rows.get(r).size(); i++) {
                assertThat(rows.get(r).get(i).asInt()).isEqualTo(10 * r + i);
            }
        }
        // It is what the other cases of the demonstration start from.
        assertThat(
                        SeedVector.all()
                                .filter(other -> other.id().startsWith("prim-collectives-all_r")))
                .isNotEmpty()
                .allMatch(other -> other.input("rank_inputs").equals(rows));
    }

    private void allReduce(SeedVector vector) {
        float[][] inputs = rankInputs(vector);
        TestOperation operation =
                float32(
                        OperationKind.ALL_REDUCE,
                        inputs,
                        inputs[0].length,
                        -1,
                        op(vector),
                        inputs[0].length);
        run(operation);
        expectOutputs(vector, operation);
    }

    /** In place, so that a buffer is a rank's input before and its output after. */
    private void reduce(SeedVector vector) {
        float[][] inputs = rankInputs(vector);
        int root = vector.input("dst").asInt();
        TestOperation operation =
                float32(
                        OperationKind.REDUCE,
                        inputs,
                        inputs[0].length,
                        root,
                        op(vector),
                        inputs[0].length);
        for (int p = 0; p < inputs.length; p++) {
            operation.recvWithinSend(p, 0, inputs[0].length);
        }
        run(operation);
        expectOutputs(vector, operation);
    }

    private void broadcast(SeedVector vector) {
        float[][] inputs = rankInputs(vector);
        TestOperation operation =
                float32(
                        OperationKind.BROADCAST,
                        inputs,
                        inputs[0].length,
                        vector.input("src").asInt(),
                        null,
                        inputs[0].length);
        for (int p = 0; p < inputs.length; p++) {
            operation.recvWithinSend(p, 0, inputs[0].length);
        }
        run(operation);
        expectOutputs(vector, operation);
    }

    private void allGather(SeedVector vector) {
        float[][] inputs = rankInputs(vector);
        TestOperation operation =
                float32(
                        OperationKind.ALL_GATHER,
                        inputs,
                        inputs[0].length,
                        -1,
                        null,
                        inputs.length * inputs[0].length);
        run(operation);
        expectOutputs(vector, operation);
        if (vector.expects("rank_outputs_flat")) {
            assertThat(SeedVector.leaves(vector.expected("rank_outputs_flat")))
                    .isEqualTo(SeedVector.leaves(vector.expected("rank_outputs")));
        }
    }

    private void reduceScatter(SeedVector vector) {
        float[][] inputs = rankInputs(vector);
        int count = inputs[0].length / inputs.length;
        TestOperation operation =
                float32(OperationKind.REDUCE_SCATTER, inputs, count, -1, op(vector), count);
        run(operation);
        expectOutputs(vector, operation);
        if (vector.expects("element_ranges")) {
            JsonNode ranges = vector.expected("element_ranges");
            for (int r = 0; r < inputs.length; r++) {
                assertThat(SeedVector.numbers(ranges.get(r)))
                        .containsExactly((long) r * count, (long) (r + 1) * count);
            }
        }
    }

    private void allToAll(SeedVector vector) {
        float[][] inputs = rankInputs(vector);
        int length = inputs[0].length;
        TestOperation operation =
                float32(OperationKind.ALL_TO_ALL, inputs, length / inputs.length, -1, null, length);
        run(operation);
        expectOutputs(vector, operation);
        // It is a transpose: twice gives the input.
        float[][] once = new float[inputs.length][];
        for (int p = 0; p < once.length; p++) {
            once[p] = elements(operation.recv(p));
        }
        TestOperation again =
                float32(OperationKind.ALL_TO_ALL, once, length / inputs.length, -1, null, length);
        run(again);
        for (int p = 0; p < once.length; p++) {
            assertThat(elements(again.recv(p))).isEqualTo(inputs[p]);
        }
    }

    private void allToAllV(SeedVector vector) {
        float[][] inputs = rankInputs(vector);
        int n = inputs.length;
        JsonNode sendCounts = vector.input("send_counts");
        long[][] recvCounts = new long[n][n];
        for (int s = 0; s < n; s++) {
            for (int r = 0; r < n; r++) {
                recvCounts[r][s] = sendCounts.get(s).get(r).asLong();
            }
        }
        TestOperation operation =
                new TestOperation(OperationKind.ALL_TO_ALL_V, n, DataType.FLOAT32, 0, -1);
        long most = 0;
        for (int p = 0; p < n; p++) {
            BlockLayout send = BlockLayout.packed(SeedVector.numbers(sendCounts.get(p)));
            BlockLayout recv = BlockLayout.packed(recvCounts[p]);
            assertThat(recvCounts[p])
                    .isEqualTo(SeedVector.numbers(vector.expected("recv_counts").get(p)));
            for (int r = 0; r < n; r++) {
                assertThat(send.offsetElements(r))
                        .isEqualTo(vector.expected("send_displs").get(p).get(r).asLong());
                assertThat(recv.offsetElements(r))
                        .isEqualTo(vector.expected("recv_displs").get(p).get(r).asLong());
            }
            operation.layouts(p, send, recv);
            operation.buffers(p, inputs[p].length, recv.totalElements());
            fill(operation.send(p), inputs[p]);
            most = Math.max(most, recv.totalElements());
        }
        run(operation);
        expectOutputs(vector, operation);
        vector.expect("max_recv_count", most);
        // Fixed blocks would have to be as long as the longest one.
        long longest =
                SeedVector.leaves(sendCounts).stream().mapToLong(JsonNode::asLong).max().orElse(0);
        vector.expect("padded_slots_if_fixed_size", (double) longest * n * n);
    }

    private void gather(SeedVector vector) {
        float[][] inputs = rankInputs(vector);
        int root = vector.input("root").asInt();
        int count = inputs[0].length;
        TestOperation operation = float32(OperationKind.GATHER, inputs, count, root, null, -1);
        operation.buffers(root, count, (long) count * inputs.length);
        fill(operation.send(root), inputs[root]);
        run(operation);
        JsonNode expected = vector.expected("rank_outputs");
        for (int p = 0; p < inputs.length; p++) {
            if (p == root) {
                assertThat(elements(operation.recv(p))).isEqualTo(values(expected.get(p)));
            } else {
                assertThat(expected.get(p).isNull()).isTrue();
                assertThat(operation.recv(p)).isNull();
            }
        }
    }

    private void scatter(SeedVector vector) {
        int n = vector.ranks();
        int root = vector.input("root").asInt();
        float[] input = values(vector.input("root_input"));
        TestOperation operation =
                new TestOperation(
                        OperationKind.SCATTER, n, DataType.FLOAT32, input.length / n, root);
        for (int p = 0; p < n; p++) {
            operation.buffers(p, p == root ? input.length : -1, input.length / n);
        }
        fill(operation.send(root), input);
        run(operation);
        expectOutputs(vector, operation);
    }

    private void identity(SeedVector vector) {
        float[][] inputs = rankInputs(vector);
        int n = inputs.length;
        int length = inputs[0].length;
        TestOperation scattered =
                float32(
                        OperationKind.REDUCE_SCATTER,
                        inputs,
                        length / n,
                        -1,
                        ReduceOp.SUM,
                        length / n);
        run(scattered);
        float[][] shares = new float[n][];
        for (int p = 0; p < n; p++) {
            shares[p] = elements(scattered.recv(p));
        }
        TestOperation gathered =
                float32(OperationKind.ALL_GATHER, shares, length / n, -1, null, length);
        run(gathered);
        TestOperation reduced =
                float32(OperationKind.ALL_REDUCE, inputs, length, -1, ReduceOp.SUM, length);
        run(reduced);
        float[][] flags = new float[n][1];
        for (int p = 0; p < n; p++) {
            flags[p][0] = gathered.recv(p).mismatch(reduced.recv(p)) == -1 ? 1 : 0;
        }
        TestOperation verdict = float32(OperationKind.ALL_REDUCE, flags, 1, -1, ReduceOp.MIN, 1);
        run(verdict);
        boolean equal = true;
        for (int p = 0; p < n; p++) {
            equal &= elements(verdict.recv(p))[0] == 1;
        }
        assertThat(equal).isEqualTo(vector.expected("equal_on_every_rank").asBoolean());
        vector.expect("flag_min", elements(verdict.recv(0))[0]);
    }

    private void floatOrder(SeedVector vector) {
        float[][] inputs = rankInputs(vector);
        int length = inputs[0].length;
        float[] rankOrder = inputs[0].clone();
        double exact = 0;
        for (int i = 0; i < length; i++) {
            for (int p = 1; p < inputs.length; p++) {
                rankOrder[i] += inputs[p][i];
            }
        }
        for (float[] input : inputs) {
            exact += input[0];
        }
        assertThat(rankOrder).isEqualTo(values(vector.expected("rank_order_sum")));
        vector.expect("exact_sum", exact);
        float[][] results = new float[2][];
        for (RingSchedule schedule : RingSchedule.values()) {
            TestOperation operation =
                    float32(OperationKind.ALL_REDUCE, inputs, length, -1, ReduceOp.SUM, length);
            run(schedule, operation);
            for (int p = 0; p < inputs.length; p++) {
                assertThat(elements(operation.recv(p)))
                        .isEqualTo(values(vector.expected("ring_schedule_" + schedule)));
            }
            results[schedule.ordinal()] = elements(operation.recv(0));
        }
        assertThat(Arrays.equals(results[0], results[1]))
                .isEqualTo(vector.expected("A_and_B_bitwise_equal").asBoolean());
    }

    // Schedules and steps: what the engine's messages carried.

    /**
     * The published picture adds into the buffer: after a step a rank's slot of the chunk that it
     * received holds what it will send in the next step. So that is what its next message must
     * carry; the other slots do not change.
     */
    private void ringTrace(SeedVector vector) {
        float[][] state = rankInputs(vector);
        int n = state.length;
        RingSchedule schedule = schedule(vector);
        TestOperation operation =
                float32(
                        OperationKind.ALL_REDUCE,
                        state,
                        state[0].length,
                        -1,
                        ReduceOp.SUM,
                        state[0].length);
        RecordingTrace trace = run(schedule, operation);
        for (int r = 0; r < n; r++) {
            int owned = (int) vector.expected("owner_chunk_of_rank").get(r).asLong();
            assertThat(owned(schedule, r, n)).isEqualTo(owned);
            assertThat(trace.message(r, n - 1).chunk()).isEqualTo(owned);
            assertThat(trace.message(r, n - 1).values())
                    .containsExactly(value(vector.expected("owned_value_of_rank").get(r)));
        }
        for (int step = 0; step < 2 * (n - 1); step++) {
            JsonNode published =
                    step < n - 1
                            ? vector.expects("reduce_scatter_steps")
                                    ? vector.expected("reduce_scatter_steps").get(step)
                                    : null
                            : vector.expects("all_gather_steps")
                                    ? vector.expected("all_gather_steps").get(step - (n - 1))
                                    : null;
            for (int r = 0; r < n; r++) {
                RecordingTrace.Message sent = trace.message(r, step);
                RecordingTrace.Message received = trace.message((r + n - 1) % n, step);
                state[r][received.chunk()] =
                        step < n - 1
                                ? trace.message(r, step + 1).values()[0]
                                : received.values()[0];
                if (published != null) {
                    JsonNode transfer = published.get("transfers").get(r);
                    assertThat(transfer.get("rank").asInt()).isEqualTo(r);
                    assertThat(sent.peer()).isEqualTo(transfer.get("to").asInt());
                    assertThat(sent.chunk()).isEqualTo(transfer.get("send_chunk").asInt());
                    assertThat(sent.values()).containsExactly(value(transfer.get("send_value")));
                    assertThat(received.chunk()).isEqualTo(transfer.get("recv_chunk").asInt());
                    assertThat(received.values())
                            .containsExactly(value(transfer.get("recv_value")));
                }
            }
            if (published != null) {
                assertThat(published.get("step").asInt())
                        .isEqualTo(step < n - 1 ? step : step - (n - 1));
                for (int r = 0; r < n; r++) {
                    assertThat(state[r]).isEqualTo(values(published.get("state_after").get(r)));
                }
            }
        }
        for (int r = 0; r < n; r++) {
            if (vector.expects("final")) {
                assertThat(elements(operation.recv(r)))
                        .isEqualTo(values(vector.expected("final").get(r)));
            }
            if (vector.expects("sum")) {
                assertThat(elements(operation.recv(r))).isEqualTo(values(vector.expected("sum")));
            }
            vector.expectIfThere("chunks_sent_per_rank", operation.messagesSent(r));
        }
        vector.expectIfThere("total_steps", trace.steps());
    }

    private void ringIndices(SeedVector vector) {
        RingSchedule schedule = schedule(vector);
        int n = vector.ranks();
        assertThat(vector.expected("layout").asString()).isEqualTo("[step][rank]");
        for (int r = 0; r < n; r++) {
            assertThat(owned(schedule, r, n))
                    .isEqualTo(vector.expected("owner_after_rs").get(r).asInt());
            for (int s = 0; s < n - 1; s++) {
                assertThat(schedule.reduceScatterSend(r, s, n))
                        .isEqualTo(vector.expected("rs_send").get(s).get(r).asInt());
                assertThat(schedule.reduceScatterReceive(r, s, n))
                        .isEqualTo(vector.expected("rs_recv").get(s).get(r).asInt());
                assertThat(schedule.allGatherSend(r, s, n))
                        .isEqualTo(vector.expected("ag_send").get(s).get(r).asInt());
                assertThat(schedule.allGatherReceive(r, s, n))
                        .isEqualTo(vector.expected("ag_recv").get(s).get(r).asInt());
            }
        }
    }

    private void allGatherSchedule(SeedVector vector) {
        int n = vector.ranks();
        TestOperation operation =
                float32(OperationKind.ALL_GATHER, new float[n][5], 5, -1, null, 5 * n);
        RecordingTrace trace = run(RingSchedule.B, operation);
        JsonNode steps = vector.expected("steps");
        assertThat(trace.steps()).isEqualTo(steps.size());
        for (JsonNode step : steps) {
            int s = step.get("step").asInt();
            for (int r = 0; r < n; r++) {
                assertThat(trace.message(r, s).chunk())
                        .isEqualTo(step.get("send_block").get(r).asInt());
                assertThat(trace.message((r + n - 1) % n, s).chunk())
                        .isEqualTo(step.get("recv_block").get(r).asInt());
            }
        }
        for (int r = 0; r < n; r++) {
            vector.expect(
                    "bytes_sent_per_rank_fraction_of_full",
                    operation.totalSentBytes(r) / (4.0 * 5 * n));
        }
    }

    private void treeBroadcast(SeedVector vector) {
        int n = vector.ranks();
        BinomialTree tree = new BinomialTree(n, vector.input("src").asInt());
        JsonNode rounds = vector.expected("rounds");
        assertThat(BinomialTree.rounds(n)).isEqualTo(rounds.size());
        vector.expect("steps", BinomialTree.rounds(n));
        Set<Integer> holders = new TreeSet<>(Set.of(tree.root()));
        for (int round = 0; round < rounds.size(); round++) {
            List<List<Integer>> sends = new ArrayList<>();
            for (int r = 0; r < n; r++) {
                int receiver = tree.receiver(r, round);
                if (receiver >= 0) {
                    assertThat(holders).contains(r).doesNotContain(receiver);
                    sends.add(List.of(r, receiver));
                }
            }
            sends.forEach(pair -> holders.add(pair.get(1)));
            List<List<Integer>> published = new ArrayList<>();
            for (JsonNode pair : rounds.get(round)) {
                published.add(List.of(pair.get(0).asInt(), pair.get(1).asInt()));
            }
            assertThat(sends).isEqualTo(published);
            assertThat(holders).hasSize(vector.expected("holders_after_round").get(round).asInt());
        }
    }

    private void steps(SeedVector vector) {
        int n = vector.ranks();
        int ring = AlphaBetaModel.ringAllReduceSteps(n);
        int tree = AlphaBetaModel.treeAllReduceSteps(n);
        if (n <= MOST_RANKS_RUN) {
            TestOperation operation =
                    float32(OperationKind.ALL_REDUCE, new float[n][n], n, -1, ReduceOp.SUM, n);
            assertThat(run(RingSchedule.B, operation).steps()).isEqualTo(ring);
        }
        vector.expectIfThere("steps", ring);
        vector.expectIfThere("tree_steps_2log2", tree);
        vector.expectIfThere("ring", ring);
        vector.expectIfThere("tree", tree);
        vector.expectIfThere("ratio", (double) ring / tree);
        vector.expectIfThere("ring_alpha_multiples", ring);
        vector.expectIfThere("tree_alpha_multiples", tree);
    }

    // Byte counts: the engine's counters.

    /** The published closed form for lengths that n does not divide is schedule A's. */
    private void ringCount(SeedVector vector) {
        int n = vector.ranks();
        int elements = vector.input("elements").asInt();
        TestOperation operation = sumOfZeros(n, DataType.FLOAT32, elements);
        run(RingSchedule.A, operation);
        BlockLayout chunks = BlockLayout.even(elements, n);
        double total = 0;
        for (int r = 0; r < n; r++) {
            double sent = operation.totalSentBytes(r) / 4.0;
            total += sent;
            long closedForm =
                    2L * elements
                            - chunks.countElements((r + 1) % n)
                            - chunks.countElements((r + 2) % n);
            assertThat(sent)
                    .isEqualTo((double) closedForm)
                    .isEqualTo(vector.expected("elements_sent_per_rank").get(r).asDouble());
            if (vector.expects("closed_form")) {
                assertThat(closedForm).isEqualTo(vector.expected("closed_form").get(r).asLong());
            }
            if (vector.expects("chunk_sizes")) {
                assertThat(chunks.countElements(r))
                        .isEqualTo(vector.expected("chunk_sizes").get(r).asLong());
            }
            vector.expectIfThere("theory", sent);
            vector.expectIfThere("theory_elements", sent);
            vector.expectIfThere("bytes_sent_per_rank", operation.totalSentBytes(r));
        }
        vector.expectIfThere("sum_over_ranks", total);
        if (vector.expects("model_time_us")) {
            vector.expect(
                    "model_time_us", model(vector).ringAllReduce(n, 4.0 * elements).totalMicros());
        }
    }

    private void volumeFactor(SeedVector vector) {
        int n = vector.ranks();
        int elements = vector.input("elements").asInt();
        TestOperation operation = sumOfZeros(n, DataType.INT8, elements);
        Drivers.inRandomOrder(new ReferenceEngine(), operation, seed);
        double factor = AlphaBetaModel.ringAllReduceFactor(n);
        vector.expect("factor_of_K", factor);
        for (int r = 0; r < n; r++) {
            vector.expect("elements_sent", operation.totalSentBytes(r));
        }
        assertThat(String.format(Locale.ROOT, "%.3f K", factor))
                .isEqualTo(vector.expected("printed_text").asString());
    }

    private void ringBytes(SeedVector vector) {
        int n = vector.ranks();
        TestOperation operation = sumOfZeros(n, DataType.FLOAT32, vector.input("elements").asInt());
        RecordingTrace trace = run(RingSchedule.A, operation);
        vector.expect("steps", trace.steps());
        for (int r = 0; r < n; r++) {
            assertThat(operation.totalSentBytes(r))
                    .isEqualTo(vector.expected("bytes_sent_per_rank").get(r).asLong());
            assertThat(operation.totalReceivedBytes(r))
                    .isEqualTo(vector.expected("bytes_received_per_rank").get(r).asLong());
            vector.expect("reduce_scatter_bytes", trace.bytes(r, 0, n - 1));
            vector.expect("all_gather_bytes", trace.bytes(r, n - 1, 2 * (n - 1)));
            vector.expect("messages_sent_per_rank", operation.messagesSent(r));
            for (int s = 0; s < trace.steps(); s++) {
                vector.expect("chunk_bytes", trace.message(r, s).bytes());
            }
        }
    }

    private void allToAllBytes(SeedVector vector) {
        int n = vector.ranks();
        int elements = vector.input("bytes").asInt() / 4;
        TestOperation operation =
                float32(
                        OperationKind.ALL_TO_ALL,
                        new float[n][elements],
                        elements / n,
                        -1,
                        null,
                        elements);
        run(operation);
        for (int r = 0; r < n; r++) {
            vector.expect("bytes_sent_per_rank", operation.totalSentBytes(r));
            vector.expect("messages_sent_per_rank", operation.messagesSent(r));
        }
    }

    private void primitiveBytes(SeedVector vector) {
        int n = vector.ranks();
        int bytes = vector.input("bytes").asInt();
        int elements = bytes / 4;
        expectRing(vector.expected("ring_allreduce"), sumOfZeros(n, DataType.FLOAT32, elements));
        expectRing(
                vector.expected("allgather"),
                float32(
                        OperationKind.ALL_GATHER,
                        new float[n][elements / n],
                        elements / n,
                        -1,
                        null,
                        elements));
        expectRing(
                vector.expected("reduce_scatter"),
                float32(
                        OperationKind.REDUCE_SCATTER,
                        new float[n][elements],
                        elements / n,
                        -1,
                        ReduceOp.SUM,
                        elements / n));
        JsonNode tree = vector.expected("tree_allreduce");
        assertThat(AlphaBetaModel.treeAllReduceSteps(n)).isEqualTo(tree.get("steps").asInt());
        assertThat(AlphaBetaModel.treeAllReduceBusiestRankBytes(n, bytes))
                .isEqualTo(tree.get("bytes_busiest_rank").asLong());
        JsonNode broadcast = vector.expected("broadcast_tree");
        BinomialTree binomial = new BinomialTree(n, 0);
        int rounds = BinomialTree.rounds(n);
        int fromRoot = 0;
        int[] received = new int[n];
        for (int round = 0; round < rounds; round++) {
            for (int r = 0; r < n; r++) {
                int receiver = binomial.receiver(r, round);
                if (receiver >= 0) {
                    received[receiver]++;
                    fromRoot += r == 0 ? 1 : 0;
                }
            }
        }
        assertThat(rounds).isEqualTo(broadcast.get("steps").asInt());
        assertThat(fromRoot * bytes).isEqualTo(broadcast.get("bytes_sent_by_root").asInt());
        for (int r = 1; r < n; r++) {
            assertThat(received[r] * bytes)
                    .isEqualTo(broadcast.get("bytes_received_per_non_root").asInt());
        }
    }

    private void expectRing(JsonNode expected, TestOperation operation) {
        RecordingTrace trace = run(RingSchedule.B, operation);
        assertThat(trace.steps()).isEqualTo(expected.get("steps").asInt());
        for (int r = 0; r < operation.participants(); r++) {
            assertThat(operation.totalSentBytes(r)).isEqualTo(expected.get("bytes").asLong());
        }
    }

    // Times: formulas.

    private void ringTime(SeedVector vector) {
        int n = vector.ranks();
        double bytes = vector.input("bytes").asDouble();
        AlphaBetaModel.Cost cost = model(vector).ringAllReduce(n, bytes);
        double seconds = cost.totalMicros() * 1e-6;
        // The compute time of the step that the case compares with.
        double computeSeconds = 2.1;
        vector.expectIfThere("factor", AlphaBetaModel.ringAllReduceFactor(n));
        vector.expectIfThere("latency_hops", AlphaBetaModel.ringAllReduceSteps(n));
        vector.expectIfThere("latency_us", cost.latencyMicros());
        vector.expectIfThere("latency_ms", cost.latencyMicros() * 1e-3);
        vector.expectIfThere("bandwidth_us", cost.bandwidthMicros());
        vector.expectIfThere("bandwidth_ms", cost.bandwidthMicros() * 1e-3);
        vector.expectIfThere("total_us", cost.totalMicros());
        vector.expectIfThere("total_ms", cost.totalMicros() * 1e-3);
        vector.expectIfThere("total_s", seconds);
        vector.expectIfThere(
                "latency_over_bandwidth", cost.latencyMicros() / cost.bandwidthMicros());
        vector.expectIfThere("share_of_compute_2p1s", seconds / computeSeconds);
        vector.expectIfThere("share_of_step", seconds / (seconds + computeSeconds));
        if (vector.expects("approx_2M_over_b_s")) {
            double limit = 2 * bytes / vector.input("beta_GBps").asDouble() * 1e-9;
            vector.expect("approx_2M_over_b_s", limit);
            assertThat(seconds).isCloseTo(limit, within(2 * limit / n));
        }
    }

    private void halfRingTime(SeedVector vector) {
        int n = vector.ranks();
        double bytes = vector.input("bytes").asDouble();
        AlphaBetaModel.Cost half = model(vector).halfRing(n, bytes);
        AlphaBetaModel.Cost both = model(vector).ringAllReduce(n, bytes);
        vector.expect("latency_us", half.latencyMicros());
        vector.expect("bandwidth_us", half.bandwidthMicros());
        vector.expect("total_us", half.totalMicros());
        vector.expect("allreduce_total_us", both.totalMicros());
        vector.expect("ratio", half.totalMicros() / both.totalMicros());
    }

    private void ringBoundary(SeedVector vector) {
        int n = vector.ranks();
        double bytes = model(vector).ringBoundaryBytes(n);
        AlphaBetaModel.Cost cost = model(vector).ringAllReduce(n, bytes);
        vector.expect("bytes", bytes);
        vector.expect("latency_us", cost.latencyMicros());
        vector.expect("bandwidth_us", cost.bandwidthMicros());
    }

    private void allToAllBound(SeedVector vector) {
        String[] names = {"inject_us", "receive_us", "bisection_us", "startup_us"};
        double[] micros = new double[names.length];
        for (int i = 0; i < names.length; i++) {
            micros[i] = vector.input(names[i]).asDouble();
        }
        AlphaBetaModel.AllToAllBound bound =
                AlphaBetaModel.AllToAllBound.binding(micros[0], micros[1], micros[2], micros[3]);
        assertThat(bound.name().toLowerCase(Locale.ROOT))
                .isEqualTo(vector.expected("binding").asString());
        vector.expect("bound_us", micros[bound.ordinal()]);
    }

    private void allToAllChoice(SeedVector vector) {
        JsonNode cases = vector.input("cases");
        for (int i = 0; i < cases.size(); i++) {
            String text = cases.get(i).asString();
            AlphaBetaModel.AllToAllSchedule choice =
                    AlphaBetaModel.AllToAllSchedule.choose(
                            text.contains("counts differ"), text.contains("many small remote"));
            assertThat(choice.name().toLowerCase(Locale.ROOT))
                    .isEqualTo(vector.expected("choice").get(i).asString());
        }
    }

    // What the cases share.

    private void run(TestOperation operation) {
        Drivers.inRandomOrder(new ReferenceEngine(), operation, seed);
        operation.checkGuards();
    }

    private static RecordingTrace run(RingSchedule schedule, TestOperation operation) {
        return RecordingTrace.of(new ReferenceEngine(schedule, 1 << 18), operation);
    }

    private static AlphaBetaModel model(SeedVector vector) {
        return new AlphaBetaModel(
                vector.input("alpha_us").asDouble(), vector.input("beta_GBps").asDouble());
    }

    /** The chunk that a rank has complete after the reduce-scatter: what it sends next. */
    private static int owned(RingSchedule schedule, int rank, int ranks) {
        return schedule.allGatherSend(rank, 0, ranks);
    }

    /** A case names its schedule by letter, by formula, or by the owners it ends with. */
    private static RingSchedule schedule(SeedVector vector) {
        if (!vector.has("schedule")) {
            return vector.expected("owner_chunk_of_rank").get(0).asInt() == 1
                    ? RingSchedule.A
                    : RingSchedule.B;
        }
        return switch (vector.input("schedule").asString()) {
            case "A", "rs send (r-s)%N recv (r-s-1)%N; ag send (r+1-s)%N recv (r-s)%N" ->
                    RingSchedule.A;
            case "B", "rs send (r-s-1)%N recv (r-s-2)%N; ag send (r-s)%N recv (r-s-1)%N" ->
                    RingSchedule.B;
            default -> throw new AssertionError("unknown schedule " + vector.input("schedule"));
        };
    }

    private static ReduceOp op(SeedVector vector) {
        return switch (vector.input("op").asString()) {
            case "SUM" -> ReduceOp.SUM;
            case "PROD" -> ReduceOp.PROD;
            case "MIN" -> ReduceOp.MIN;
            case "MAX" -> ReduceOp.MAX;
            case "AVG" -> ReduceOp.AVG;
            default -> throw new AssertionError("unknown reduction " + vector.input("op"));
        };
    }

    private static TestOperation sumOfZeros(int n, DataType type, int elements) {
        TestOperation operation =
                new TestOperation(OperationKind.ALL_REDUCE, n, type, elements, -1)
                        .with(ReduceOp.SUM);
        for (int p = 0; p < n; p++) {
            operation.buffers(p, elements, -1);
            operation.send(p).fill((byte) 0);
            operation.recvWithinSend(p, 0, elements);
        }
        return operation;
    }

    private static TestOperation float32(
            OperationKind kind,
            float[][] inputs,
            int count,
            int root,
            ReduceOp op,
            int recvElements) {
        TestOperation operation =
                new TestOperation(kind, inputs.length, DataType.FLOAT32, count, root).with(op);
        for (int p = 0; p < inputs.length; p++) {
            operation.buffers(p, inputs[p].length, recvElements);
            fill(operation.send(p), inputs[p]);
        }
        return operation;
    }

    private static void fill(MemorySegment segment, float[] values) {
        for (int i = 0; i < values.length; i++) {
            Elements.setValue(segment, DataType.FLOAT32, i, values[i]);
        }
    }

    private static float[] elements(MemorySegment segment) {
        float[] values = new float[(int) (segment.byteSize() / Float.BYTES)];
        for (int i = 0; i < values.length; i++) {
            values[i] = (float) Elements.value(segment, DataType.FLOAT32, i);
        }
        return values;
    }

    private void expectOutputs(SeedVector vector, TestOperation operation) {
        JsonNode expected = vector.expected("rank_outputs");
        assertThat(expected.size()).isEqualTo(operation.participants());
        for (int p = 0; p < expected.size(); p++) {
            assertThat(elements(operation.recv(p)))
                    .as("rank %d", p)
                    .isEqualTo(values(expected.get(p)));
        }
    }

    private float[][] rankInputs(SeedVector vector) {
        JsonNode rows = vector.input("rank_inputs");
        float[][] inputs = new float[vector.ranks()][];
        for (int p = 0; p < inputs.length; p++) {
            inputs[p] = values(rows.get(p));
        }
        return inputs;
    }

    private float[] values(JsonNode list) {
        List<JsonNode> leaves = SeedVector.leaves(list);
        float[] values = new float[leaves.size()];
        for (int i = 0; i < values.length; i++) {
            values[i] = value(leaves.get(i));
        }
        return values;
    }

    /** A number, a symbol, or a sum of symbols with parentheses, added as it is written. */
    private float value(JsonNode leaf) {
        return leaf.isNumber() ? (float) leaf.asDouble() : new Sum(leaf.asString()).parse();
    }

    /**
     * A symbol stands for a random number; their magnitudes differ so much that the order of
     * additions shows in the result.
     */
    private float symbol(String name) {
        return symbols.computeIfAbsent(
                name, n -> (random.nextFloat() - 0.5f) * (1 << random.nextInt(20)));
    }

    private final class Sum {
        private final String text;
        private int next;

        Sum(String text) {
            this.text = text;
        }

        float parse() {
            float sum = term();
            while (next < text.length() && text.charAt(next) == '+') {
                next++;
                sum += term();
            }
            return sum;
        }

        private float term() {
            if (text.charAt(next) == '(') {
                next++;
                float sum = parse();
                assertThat(text.charAt(next)).isEqualTo(')');
                next++;
                return sum;
            }
            int start = next;
            while (next < text.length() && "+()".indexOf(text.charAt(next)) < 0) {
                next++;
            }
            return symbol(text.substring(start, next));
        }
    }

    /** Symbols of a sum must not be ambiguous: a check of this test's own arithmetic. */
    @Test
    void symbolsStandForDifferentNumbers() {
        for (int i = 0; i < 100; i++) {
            symbol("s" + i);
        }
        assertThat(symbols.values().stream().collect(Collectors.toSet())).hasSize(100);
        symbols.put("a", 1e8f);
        symbols.put("b", -1e8f);
        symbols.put("c", 1f);
        assertThat(new Sum("a+(b+c)").parse()).isZero();
        assertThat(new Sum("(a+b)+c").parse()).isEqualTo(1f);
    }
}
