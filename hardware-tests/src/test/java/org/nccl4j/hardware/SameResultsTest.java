package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.cpu.CpuBackend;
import org.nccl4j.nccl.NcclBackend;

/**
 * The CPU backend and NCCL, on the emulator, give the same bits for the same random inputs,
 * wherever the result does not depend on the order of the ranks: integers, minimum and maximum for
 * any number of ranks, and all reductions of floating-point types for two.
 */
@OnEmulator
final class SameResultsTest {
    private static final long SEED = 20_260_102;
    private static final int COUNT = 515;

    /** An operation of all ranks; {@code send} and {@code recv} hold n blocks of COUNT elements. */
    private interface Operation {
        void issue(
                Operations on,
                int rank,
                int ranks,
                DeviceBuffer send,
                DeviceBuffer recv,
                DataType type,
                ReduceOp op,
                DeviceStream stream);
    }

    private record Named(String name, Operation operation) {}

    private static final List<Named> MOVES =
            List.of(
                    new Named(
                            "broadcast",
                            (on, rank, n, send, recv, type, op, stream) ->
                                    on.broadcast(send, recv, COUNT, type, n - 1, stream)),
                    new Named(
                            "allGather",
                            (on, rank, n, send, recv, type, op, stream) ->
                                    on.allGather(send, recv, COUNT, type, stream)),
                    new Named(
                            "gather",
                            (on, rank, n, send, recv, type, op, stream) ->
                                    on.gather(send, recv, COUNT, type, n - 1, stream)),
                    new Named(
                            "scatter",
                            (on, rank, n, send, recv, type, op, stream) ->
                                    on.scatter(send, recv, COUNT, type, 0, stream)),
                    new Named(
                            "allToAll",
                            (on, rank, n, send, recv, type, op, stream) ->
                                    on.allToAll(send, recv, COUNT, type, stream)),
                    new Named(
                            "sendRecv",
                            (on, rank, n, send, recv, type, op, stream) ->
                                    on.sendRecv(
                                            send,
                                            COUNT,
                                            (rank + 1) % n,
                                            recv,
                                            COUNT,
                                            (rank + n - 1) % n,
                                            type,
                                            stream)));

    private static final List<Named> REDUCTIONS =
            List.of(
                    new Named(
                            "allReduce",
                            (on, rank, n, send, recv, type, op, stream) ->
                                    on.allReduce(send, recv, COUNT, type, op, stream)),
                    new Named(
                            "reduce",
                            (on, rank, n, send, recv, type, op, stream) ->
                                    on.reduce(send, recv, COUNT, type, op, n - 1, stream)),
                    new Named(
                            "reduceScatter",
                            (on, rank, n, send, recv, type, op, stream) ->
                                    on.reduceScatter(send, recv, COUNT, type, op, stream)));

    private static final Set<DataType> INTEGERS =
            EnumSet.of(
                    DataType.INT8,
                    DataType.UINT8,
                    DataType.INT32,
                    DataType.UINT32,
                    DataType.INT64,
                    DataType.UINT64);

    private final Backend cpu = new CpuBackend();
    private final Backend nccl = new NcclBackend();

    static Stream<Arguments> types() {
        return Stream.of(DataType.values())
                .flatMap(type -> Stream.of(2, 5).map(ranks -> Arguments.of(type, ranks)));
    }

    @ParameterizedTest(name = "{0}, {1} ranks")
    @MethodSource("types")
    void theSameBits(DataType type, int ranks) {
        byte[][] inputs = inputs(type, ranks);
        List<List<byte[]>> expected = results(cpu, type, inputs);
        List<List<byte[]>> actual = results(nccl, type, inputs);

        List<String> names = new ArrayList<>();
        for (Named moves : MOVES) {
            names.add(moves.name());
        }
        for (Named reduces : REDUCTIONS) {
            for (ReduceOp op : orderFree(type, ranks)) {
                names.add(reduces.name() + " " + op);
            }
        }
        assertThat(actual).hasSameSizeAs(names);
        for (int i = 0; i < names.size(); i++) {
            for (int rank = 0; rank < ranks; rank++) {
                assertThat(actual.get(i).get(rank))
                        .as(
                                "%s of %s, rank %d of %d, seed %d",
                                names.get(i), type, rank, ranks, SEED)
                        .isEqualTo(expected.get(i).get(rank));
            }
        }
    }

    private static List<ReduceOp> orderFree(DataType type, int ranks) {
        List<ReduceOp> ops = new ArrayList<>(List.of(ReduceOp.MIN, ReduceOp.MAX));
        if (INTEGERS.contains(type) || ranks == 2) {
            ops.addAll(List.of(ReduceOp.SUM, ReduceOp.PROD));
            // Each backend documents its own rounding of the average of 8-bit floats.
            if (type != DataType.FLOAT8E4M3 && type != DataType.FLOAT8E5M2) {
                ops.add(ReduceOp.AVG);
            }
        }
        return ops;
    }

    /** Random bits; those of floats are finite and of middling size, so that nothing is a NaN. */
    private static byte[][] inputs(DataType type, int ranks) {
        Random random = new Random(SEED + type.ordinal());
        byte[][] inputs = new byte[ranks][ranks * COUNT * type.sizeBytes()];
        for (byte[] input : inputs) {
            random.nextBytes(input);
            if (!INTEGERS.contains(type)) {
                for (int i = 0; i < ranks * COUNT; i++) {
                    tame(type, input, (i + 1) * type.sizeBytes() - 1);
                }
            }
        }
        return inputs;
    }

    /** Brings an element's exponent, which begins in its last byte, near that of one. */
    private static void tame(DataType type, byte[] input, int last) {
        int sign = input[last] & 0x80;
        int noise = input[last] & 0x07;
        int magnitude =
                switch (type) {
                    case FLOAT64, FLOAT32, BFLOAT16 -> 0x3c + noise % 4;
                    case FLOAT16, FLOAT8E5M2 -> 0x38 + noise;
                    default -> 0x34 + noise;
                };
        input[last] = (byte) (sign | magnitude);
    }

    /** Operation by operation, rank by rank, what is in the receive buffer afterwards. */
    private static List<List<byte[]>> results(Backend backend, DataType type, byte[][] inputs) {
        int ranks = inputs.length;
        List<List<byte[]>> results = new ArrayList<>();
        CommunicatorConfig config =
                CommunicatorConfig.defaults().withOperationTimeout(Team.PATIENCE);
        try (Team team = Team.local(backend, ranks, config)) {
            List<DeviceBuffer> sends = new ArrayList<>();
            List<DeviceBuffer> recvs = new ArrayList<>();
            for (int rank = 0; rank < ranks; rank++) {
                sends.add(team.buffer(rank, inputs[rank]));
                recvs.add(team.buffer(rank, inputs[rank].length));
            }
            for (Named moves : MOVES) {
                results.add(run(backend, team, moves.operation(), sends, recvs, type, null));
            }
            for (Named reduces : REDUCTIONS) {
                for (ReduceOp op : orderFree(type, ranks)) {
                    results.add(run(backend, team, reduces.operation(), sends, recvs, type, op));
                }
            }
        }
        return results;
    }

    private static List<byte[]> run(
            Backend backend,
            Team team,
            Operation operation,
            List<DeviceBuffer> sends,
            List<DeviceBuffer> recvs,
            DataType type,
            ReduceOp op) {
        for (int rank = 0; rank < team.size(); rank++) {
            team.stream(rank).fill(recvs.get(rank), (byte) 0x5a);
        }
        backend.group(group -> {
            for (int rank = 0; rank < team.size(); rank++) {
                operation.issue(
                        group.on(team.communicator(rank)),
                        rank,
                        team.size(),
                        sends.get(rank),
                        recvs.get(rank),
                        type,
                        op,
                        team.stream(rank));
            }
        });
        List<byte[]> results = new ArrayList<>();
        for (int rank = 0; rank < team.size(); rank++) {
            results.add(team.read(rank, recvs.get(rank)));
        }
        return results;
    }
}
