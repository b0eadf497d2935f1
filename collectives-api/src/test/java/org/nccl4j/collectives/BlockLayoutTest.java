package org.nccl4j.collectives;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.Arrays;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

final class BlockLayoutTest {
    private static final long MAX = Long.MAX_VALUE;

    @Test
    void blocksLieWhereTheyWerePut() {
        BlockLayout layout = BlockLayout.of(new long[] {2, 0, 3}, new long[] {5, 99, 0});

        assertThat(layout.ranks()).isEqualTo(3);
        assertThat(layout.countElements(0)).isEqualTo(2);
        assertThat(layout.countElements(1)).isZero();
        assertThat(layout.offsetElements(0)).isEqualTo(5);
        assertThat(layout.offsetElements(2)).isZero();
        assertThat(layout.totalElements()).isEqualTo(5);
        // The empty block at 99 needs no memory.
        assertThat(layout.extentElements()).isEqualTo(7);
        assertThat(layout).hasToString("counts [2, 0, 3] at [5, 99, 0]");
    }

    @Test
    void packedBlocksFollowEachOther() {
        BlockLayout layout = BlockLayout.packed(2, 0, 3);

        assertThat(layout).isEqualTo(BlockLayout.of(new long[] {2, 0, 3}, new long[] {0, 2, 2}));
        assertThat(layout.extentElements()).isEqualTo(5);
        assertThat(layout.totalElements()).isEqualTo(5);
    }

    @Test
    void emptyBlocksMayLieAnywhere() {
        BlockLayout layout = BlockLayout.of(new long[] {4, 0, 0}, new long[] {0, 2, MAX});

        assertThat(layout.extentElements()).isEqualTo(4);
        assertThat(BlockLayout.packed(0, 0).extentElements()).isZero();
    }

    @Test
    void touchingBlocksDoNotOverlap() {
        assertThat(BlockLayout.of(new long[] {2, 3}, new long[] {3, 0}).extentElements())
                .isEqualTo(5);
    }

    @ParameterizedTest
    @CsvSource({
        "10, 3, '[4, 3, 3]'",
        "2, 4, '[1, 1, 0, 0]'",
        "0, 2, '[0, 0]'",
        "8, 4, '[2, 2, 2, 2]'"
    })
    void anEvenCutGivesTheFirstRanksMore(long total, int ranks, String counts) {
        BlockLayout layout = BlockLayout.even(total, ranks);

        assertThat(Arrays.toString(layout.countsElements())).isEqualTo(counts);
        assertThat(layout).isEqualTo(BlockLayout.packed(layout.countsElements()));
    }

    @Test
    void theLargestTotalIsCutWithoutOverflow() {
        BlockLayout layout = BlockLayout.even(MAX, 3);

        assertThat(layout.totalElements()).isEqualTo(MAX);
        assertThat(layout.extentElements()).isEqualTo(MAX);
    }

    @Test
    void argumentsAreCopied() {
        long[] counts = {1, 1};
        long[] offsets = {0, 1};
        BlockLayout layout = BlockLayout.of(counts, offsets);
        BlockLayout packed = BlockLayout.packed(counts);

        counts[0] = 9;
        offsets[0] = 1;
        layout.countsElements()[0] = 9;

        assertThat(layout.countElements(0)).isEqualTo(1);
        assertThat(layout.offsetElements(0)).isZero();
        assertThat(packed.countElements(0)).isEqualTo(1);
    }

    @Test
    void equalityIsThatOfCountsAndOffsets() {
        BlockLayout layout = BlockLayout.packed(1, 2);

        assertThat(layout)
                .isEqualTo(BlockLayout.packed(1, 2))
                .hasSameHashCodeAs(BlockLayout.packed(1, 2))
                .isNotEqualTo(BlockLayout.packed(2, 1))
                .isNotEqualTo(BlockLayout.of(new long[] {1, 2}, new long[] {0, 4}))
                .isNotEqualTo(null);
    }

    @Test
    void overlappingBlocksAreRefusedByRankAndRange() {
        refused(() -> BlockLayout.of(new long[] {3, 2, 2}, new long[] {0, 8, 2}))
                .hasMessage("blocks of ranks 0 and 2 overlap: [0, +3) and [2, +2) elements");
        refused(() -> BlockLayout.of(new long[] {1, 1}, new long[] {7, 7}))
                .hasMessage("blocks of ranks 0 and 1 overlap: [7, +1) and [7, +1) elements");
    }

    @Test
    void anEmptyBlockDoesNotHideAnOverlap() {
        refused(() -> BlockLayout.of(new long[] {4, 0, 4}, new long[] {0, 2, 3}))
                .hasMessage("blocks of ranks 0 and 2 overlap: [0, +4) and [3, +4) elements");
    }

    @Test
    void negativeNumbersAreRefused() {
        refused(() -> BlockLayout.of(new long[] {1, -2}, new long[] {0, 1}))
                .hasMessage("the count of rank 1 is -2, must be at least 0");
        refused(() -> BlockLayout.of(new long[] {1, 2}, new long[] {-1, 1}))
                .hasMessage("the offset of rank 0 is -1, must be at least 0");
        refused(() -> BlockLayout.packed(3, -1))
                .hasMessage("the count of rank 1 is -1, must be at least 0");
        refused(() -> BlockLayout.even(-1, 2))
                .hasMessage(
                        "cannot cut -1 elements into 2 blocks; needs at least 0 elements and 1"
                                + " block");
        refused(() -> BlockLayout.even(1, 0))
                .hasMessage(
                        "cannot cut 1 elements into 0 blocks; needs at least 0 elements and 1"
                                + " block");
    }

    @Test
    void sumsThatDoNotFitALongAreRefused() {
        refused(() -> BlockLayout.of(new long[] {2}, new long[] {MAX - 1}))
                .hasMessage(
                        "the block of rank 0 ends beyond 2^63-1 elements: 2 after"
                                + " 9223372036854775806");
        refused(() -> BlockLayout.packed(MAX, 1))
                .hasMessage(
                        "the block of rank 1 ends beyond 2^63-1 elements: 1 after"
                                + " 9223372036854775807");
        // Sums of three that wrap around to a number that looks good.
        refused(() -> BlockLayout.packed(MAX, MAX, 2, 5))
                .hasMessageStartingWith("the block of rank 1 ends beyond 2^63-1 elements");
        assertThat(BlockLayout.packed(MAX, 0).extentElements()).isEqualTo(MAX);
    }

    @Test
    void oneCountAndOneOffsetPerRank() {
        refused(() -> BlockLayout.of(new long[] {1, 2}, new long[] {0}))
                .hasMessage(
                        "a layout needs one count and one offset per rank, got 2 counts and 1"
                                + " offsets");
        refused(() -> BlockLayout.of(new long[0], new long[0]))
                .hasMessage(
                        "a layout needs one count and one offset per rank, got 0 counts and 0"
                                + " offsets");
        refused(() -> BlockLayout.of(null, new long[1]))
                .hasMessage(
                        "a layout needs one count and one offset per rank, got null counts and 1"
                                + " offsets");
        refused(() -> BlockLayout.packed())
                .hasMessage("a layout needs one count per rank, got none");
    }

    @Test
    void aPlanIsMadeOfTwoLayouts() {
        AllToAllVPlan plan =
                new AllToAllVPlan(
                        new long[] {1, 2}, new long[] {2, 0}, new long[] {0, 4}, new long[] {0, 0});

        assertThat(plan.ranks()).isEqualTo(2);
        assertThat(plan.send()).isEqualTo(BlockLayout.of(new long[] {1, 2}, new long[] {2, 0}));
        assertThat(plan.receive()).isEqualTo(BlockLayout.packed(0, 4));
    }

    @Test
    void aPlansHalvesHaveTheSameRanks() {
        refused(() -> new AllToAllVPlan(BlockLayout.packed(1), BlockLayout.packed(1, 1)))
                .hasMessage(
                        "an all-to-all-v plan needs as many send as receive blocks, got 1 and 2");
        refused(() -> new AllToAllVPlan(BlockLayout.packed(1), null))
                .hasMessage(
                        "an all-to-all-v plan needs both halves, got send counts [1] at [0] and"
                                + " receive null");
    }

    @Test
    void aPlanRefusesOverlapInEitherHalf() {
        long[] counts = {2, 2};
        long[] apart = {0, 2};
        long[] overlapping = {0, 1};

        refused(() -> new AllToAllVPlan(counts, overlapping, counts, apart))
                .hasMessageStartingWith("blocks of ranks 0 and 1 overlap");
        refused(() -> new AllToAllVPlan(counts, apart, counts, overlapping))
                .hasMessageStartingWith("blocks of ranks 0 and 1 overlap");
    }

    private static org.assertj.core.api.AbstractThrowableAssert<?, ?> refused(
            ThrowingCallable call) {
        return assertThatThrownBy(call).isInstanceOf(InvalidArgumentException.class);
    }
}
