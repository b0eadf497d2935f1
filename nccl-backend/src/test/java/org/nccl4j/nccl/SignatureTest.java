package org.nccl4j.nccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

@Timeout(30)
final class SignatureTest {
    private static Signature allReduce(long count, ReduceOp op) {
        return Signature.of(OperationKind.ALL_REDUCE, count, DataType.FLOAT32, op, -1, null, null);
    }

    private static Signature allToAllV(long... sendCounts) {
        BlockLayout send = BlockLayout.packed(sendCounts);
        BlockLayout receive = BlockLayout.packed(7, 8);
        return Signature.of(OperationKind.ALL_TO_ALL_V, 0, DataType.INT8, null, -1, send, receive);
    }

    private static Signature message(OperationKind kind, long count, int peer) {
        return Signature.of(kind, count, DataType.INT32, null, peer, null, null);
    }

    @Test
    void comesBackFromTheStoreAsItWas() {
        for (Signature each :
                new Signature[] {
                    allReduce(1024, ReduceOp.SUM),
                    allReduce(1024, ReduceOp.preMulSum(DataType.FLOAT32, 2.5)),
                    allToAllV(1, 0),
                    message(OperationKind.RECV, 3, 2),
                    Signature.of(OperationKind.BARRIER, 0, null, null, -1, null, null),
                    Signature.hostCall(OperationKind.SPLIT)
                }) {
            assertThat(Signature.of(each.toBytes())).isEqualTo(each);
        }
        assertThat(new String(allReduce(5, ReduceOp.MAX).toBytes(), StandardCharsets.UTF_8))
                .isEqualTo("ALL_REDUCE 5 FLOAT32 MAX -1 - -");
    }

    @Test
    void refusesWhatIsNone() {
        for (String text : new String[] {"", "ALL_REDUCE 5", "NOTHING 5 FLOAT32 sum -1 - -"}) {
            assertThatThrownBy(() -> Signature.of(text.getBytes(StandardCharsets.UTF_8)))
                    .as(text)
                    .isInstanceOf(IllegalArgumentException.class);
        }
    }

    @Test
    void scalarsAndSizesOfAnAllToAllAreEachRanksOwn() {
        assertThat(
                        allReduce(1, ReduceOp.preMulSum(DataType.FLOAT32, 2))
                                .agreesWith(allReduce(1, ReduceOp.preMulSum(DataType.FLOAT32, 3))))
                .isTrue();
        assertThat(allToAllV(1, 2).agreesWith(allToAllV(3, 4))).isTrue();
        assertThat(allReduce(1, ReduceOp.SUM).agreesWith(allReduce(1, ReduceOp.MAX))).isFalse();
        assertThat(allReduce(1, ReduceOp.SUM).agreesWith(allReduce(2, ReduceOp.SUM))).isFalse();
    }

    @Test
    void aSendAgreesWithItsReceive() {
        Signature send = message(OperationKind.SEND, 12, 1);
        assertThat(send.agreesWith(message(OperationKind.RECV, 12, 0))).isTrue();
        assertThat(send.agreesWith(message(OperationKind.RECV, 13, 0))).isFalse();
    }
}
