package org.nccl4j.cpu.schedule;

import static org.nccl4j.cpu.schedule.Place.input;
import static org.nccl4j.cpu.schedule.Place.output;
import static org.nccl4j.cpu.schedule.Place.scratch;

/**
 * All-to-all. A rank's own block is copied, never sent; input d is the block for rank d, output o
 * the block from rank o.
 *
 * <p>Thread safety: no state.
 */
public final class Exchanges {
    private Exchanges() {}

    /**
     * In step k = 1, 2, ... rank r sends to r + k and receives from r - k. n-1 steps, (n-1)/n S.
     */
    public static Schedule pairwise(int ranks) {
        Schedule.Plan plan = plan("pairwise", ranks);
        for (int distance = 1; distance < ranks; distance++) {
            for (int rank = 0; rank < ranks; rank++) {
                int to = (rank + distance) % ranks;
                plan.move(distance - 1, rank, input(to), to, output(rank), rank * ranks + to, 1);
            }
        }
        return plan.build();
    }

    /**
     * Bruck: in round s a block that has j ranks to go moves 2^s ranks on if bit s of j is set.
     * ceil(log2 n) steps, in each of which a rank sends all such blocks to one other, about half of
     * them; a block is sent as often as j has bits. A block that is passed on comes into the one of
     * two banks of slots from which nothing is being sent.
     */
    public static Schedule bruck(int ranks) {
        Schedule.Plan plan = plan("bruck", ranks);
        for (int round = 0; 1 << round < ranks; round++) {
            int bit = 1 << round;
            for (int rank = 0; rank < ranks; rank++) {
                int to = (rank + bit) % ranks;
                for (int j = bit; j < ranks; j++) {
                    if ((j & bit) == 0) {
                        continue;
                    }
                    int origin = Math.floorMod(rank - (j & bit - 1), ranks);
                    int destination = (origin + j) % ranks;
                    boolean first = origin == rank;
                    boolean arrives = destination == to;
                    int hops = Integer.bitCount(j & bit - 1);
                    plan.move(
                            round,
                            rank,
                            first ? input(destination) : scratch(hops % 2 * ranks + j),
                            to,
                            arrives ? output(origin) : scratch((hops + 1) % 2 * ranks + j),
                            origin * ranks + destination,
                            1);
                }
            }
        }
        return plan.build();
    }

    /**
     * Hierarchical, with nodes of consecutive ranks: first every rank gives each rank l of its node
     * the blocks for all ranks that have place l in their nodes; then each exchanges with those
     * alone. (g-1) + (n/g-1) steps; within the node (g-1)/g S are sent, to other nodes (n-g)/n S,
     * to n/g-1 ranks there instead of n-g.
     *
     * @param node ranks of a node; divides n
     */
    public static Schedule hierarchical(int ranks, int node) {
        Schedule.Plan plan = plan("hierarchical-exchange", ranks);
        int nodes = ranks / node;
        for (int distance = 1; distance < node; distance++) {
            for (int rank = 0; rank < ranks; rank++) {
                int home = rank / node * node;
                int to = home + (rank - home + distance) % node;
                for (int there = 0; there < nodes; there++) {
                    int destination = there * node + to - home;
                    boolean arrives = destination == to;
                    plan.move(
                            distance - 1,
                            rank,
                            input(destination),
                            to,
                            arrives ? output(rank) : scratch((rank - home) * nodes + there),
                            rank * ranks + destination,
                            1);
                }
            }
        }
        for (int distance = 1; distance < nodes; distance++) {
            for (int rank = 0; rank < ranks; rank++) {
                int home = rank / node * node;
                int there = (rank / node + distance) % nodes;
                int to = there * node + rank - home;
                for (int place = 0; place < node; place++) {
                    int origin = home + place;
                    plan.move(
                            node - 2 + distance,
                            rank,
                            origin == rank ? input(to) : scratch(place * nodes + there),
                            to,
                            output(origin),
                            origin * ranks + to,
                            1);
                }
            }
        }
        return plan.build();
    }

    private static Schedule.Plan plan(String algorithm, int ranks) {
        Schedule.Plan plan = new Schedule.Plan(algorithm, Collective.ALL_TO_ALL, ranks, ranks);
        for (int rank = 0; rank < ranks; rank++) {
            plan.copy(0, rank, input(rank), output(rank), rank * ranks + rank, 1);
        }
        return plan;
    }
}
