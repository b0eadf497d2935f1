package org.nccl4j.cpu.schedule;

import static org.nccl4j.cpu.schedule.Place.input;
import static org.nccl4j.cpu.schedule.Place.output;

/**
 * Recursive halving, then doubling. With p = 2^k, the largest power of two up to n: in each round a
 * rank exchanges with a partner half of the range that it still holds, keeps and adds the other
 * half, and so ends with one of p chunks; then the rounds run backwards and ranges double. The n -
 * p ranks beyond the power of two first give all they have to a partner and at the end get the
 * result.
 *
 * <p>Thread safety: no state.
 */
public final class HalvingDoubling {
    private HalvingDoubling() {}

    /**
     * 2 log2 p steps and 2(p-1)/p S per rank; for other n two steps more, S more for the partners
     * of the ranks beyond, which send S themselves.
     *
     * @param nearestFirst whether partners are 1, 2, 4, ... apart, so that what goes far is small;
     *     else ..., 4, 2, 1
     */
    public static Schedule allReduce(int ranks, boolean nearestFirst) {
        int powerOfTwo = Integer.highestOneBit(ranks);
        int beyond = ranks - powerOfTwo;
        int rounds = Integer.numberOfTrailingZeros(powerOfTwo);
        Schedule.Plan plan =
                new Schedule.Plan("halving-doubling", Collective.ALL_REDUCE, ranks, powerOfTwo);
        if (ranks == 1) {
            plan.copy(0, 0, input(0), output(0), 0, 1);
            return plan.build();
        }
        int step = 0;
        if (beyond > 0) {
            for (int pair = 0; pair < beyond; pair++) {
                plan.reduce(
                        0,
                        2 * pair + 1,
                        input(0),
                        2 * pair,
                        input(0),
                        output(0),
                        0,
                        powerOfTwo,
                        rounds == 0);
            }
            step++;
        }
        for (int round = 0; round < rounds; round++, step++) {
            int width = powerOfTwo >> round + 1;
            int bit = bit(round, rounds, nearestFirst);
            for (int place = 0; place < powerOfTwo; place++) {
                int partner = place ^ 1 << bit;
                int start = start(partner, round + 1, powerOfTwo, nearestFirst);
                boolean sent = round > 0 || place < beyond;
                boolean added = round > 0 || partner < beyond;
                plan.reduce(
                        step,
                        rank(place, beyond),
                        sent ? output(start) : input(start),
                        rank(partner, beyond),
                        added ? output(start) : input(start),
                        output(start),
                        start,
                        width,
                        round == rounds - 1);
            }
        }
        for (int round = rounds - 1; round >= 0; round--, step++) {
            int width = powerOfTwo >> round + 1;
            int bit = bit(round, rounds, nearestFirst);
            for (int place = 0; place < powerOfTwo; place++) {
                int start = start(place, round + 1, powerOfTwo, nearestFirst);
                plan.move(
                        step,
                        rank(place, beyond),
                        output(start),
                        rank(place ^ 1 << bit, beyond),
                        output(start),
                        start,
                        width);
            }
        }
        for (int pair = 0; pair < beyond; pair++) {
            plan.move(step, 2 * pair, output(0), 2 * pair + 1, output(0), 0, powerOfTwo);
        }
        return plan.build();
    }

    private static int bit(int round, int rounds, boolean nearestFirst) {
        return nearestFirst ? round : rounds - 1 - round;
    }

    /** The rank at a place among the power of two. */
    private static int rank(int place, int beyond) {
        return place < beyond ? 2 * place : place + beyond;
    }

    /** Where the range starts that a place still holds after some rounds. */
    private static int start(int place, int roundsDone, int powerOfTwo, boolean nearestFirst) {
        int rounds = Integer.numberOfTrailingZeros(powerOfTwo);
        int start = 0;
        for (int round = 0; round < roundsDone; round++) {
            if ((place >> bit(round, rounds, nearestFirst) & 1) == 1) {
                start += powerOfTwo >> round + 1;
            }
        }
        return start;
    }
}
