package org.nccl4j.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.nccl4j.collectives.BlockLayout;

/** What takes its number and makes no native call. */
@Timeout(30)
final class GroupCallTest {
    private static final BlockLayout NONE = BlockLayout.packed(0, 0);
    private static final BlockLayout SOME = BlockLayout.packed(0, 3);

    @ParameterizedTest
    @EnumSource(
            value = OperationKind.class,
            names = {
                "ALL_REDUCE",
                "REDUCE",
                "BROADCAST",
                "ALL_GATHER",
                "REDUCE_SCATTER",
                "GATHER",
                "SCATTER",
                "ALL_TO_ALL",
                "SEND",
                "RECV"
            })
    void anOperationOfCountZeroMovesNothing(OperationKind kind) {
        assertThat(GroupCall.isEmpty(kind, 0, null, null)).isTrue();
        assertThat(GroupCall.isEmpty(kind, 1, null, null)).isFalse();
    }

    @Test
    void layoutsDecideForOperationsThatHaveThem() {
        assertThat(GroupCall.isEmpty(OperationKind.ALL_GATHER_V, 0, null, NONE)).isTrue();
        assertThat(GroupCall.isEmpty(OperationKind.ALL_GATHER_V, 0, null, SOME)).isFalse();
        assertThat(GroupCall.isEmpty(OperationKind.REDUCE_SCATTER_V, 0, NONE, null)).isTrue();
        assertThat(GroupCall.isEmpty(OperationKind.REDUCE_SCATTER_V, 0, SOME, null)).isFalse();
        assertThat(GroupCall.isEmpty(OperationKind.ALL_TO_ALL_V, 0, NONE, NONE)).isTrue();
        assertThat(GroupCall.isEmpty(OperationKind.ALL_TO_ALL_V, 0, NONE, SOME)).isFalse();
        assertThat(GroupCall.isEmpty(OperationKind.ALL_TO_ALL_V, 0, SOME, NONE)).isFalse();
    }

    @Test
    void aBarrierNeverIsEmpty() {
        assertThat(GroupCall.isEmpty(OperationKind.BARRIER, 0, null, null)).isFalse();
    }
}
