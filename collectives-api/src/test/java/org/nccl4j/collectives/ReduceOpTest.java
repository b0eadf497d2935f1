package org.nccl4j.collectives;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

final class ReduceOpTest {
    @Test
    void predefinedComeInNcclsOrder() {
        assertThat(ReduceOp.Predefined.values())
                .containsExactly(
                        (ReduceOp.Predefined) ReduceOp.SUM,
                        (ReduceOp.Predefined) ReduceOp.PROD,
                        (ReduceOp.Predefined) ReduceOp.MAX,
                        (ReduceOp.Predefined) ReduceOp.MIN,
                        (ReduceOp.Predefined) ReduceOp.AVG);
    }

    @ParameterizedTest
    @CsvSource({
        "FLOAT32, 0.5, 0x3f000000",
        "FLOAT64, 0.1, 0x3fb999999999999a",
        "FLOAT16, 0.1, 0x2e66",
        "BFLOAT16, 0.1, 0x3dcd",
        "FLOAT8E4M3, 0.1, 0x1d",
        "FLOAT8E5M2, 0.1, 0x2e",
        "INT8, -3, 0xfd",
        "UINT8, 200, 0xc8",
        "INT32, -3.9, 0xfffffffd",
    })
    void theScalarIsStoredInTheBuffersType(DataType type, double scalar, String bits) {
        ReduceOp.PreMulSum op = (ReduceOp.PreMulSum) ReduceOp.preMulSum(type, scalar);

        assertThat(op.type()).isEqualTo(type);
        assertThat(op.scalarBits()).isEqualTo(Long.decode(bits));
        assertThat(op.scalar()).isEqualTo(type.valueOf(Long.decode(bits)));
    }

    @Test
    void anIntegerScalarIsExact() {
        long scalar = Long.MAX_VALUE;

        assertThat(ReduceOp.preMulSum(DataType.INT64, scalar))
                .isEqualTo(new ReduceOp.PreMulSum(DataType.INT64, scalar));
    }

    @Test
    void equalScalarsOfOneTypeAreEqual() {
        assertThat(ReduceOp.preMulSum(DataType.FLOAT32, 2.0))
                .isEqualTo(ReduceOp.preMulSum(DataType.FLOAT32, 2L))
                .hasSameHashCodeAs(ReduceOp.preMulSum(DataType.FLOAT32, 2L))
                .isNotEqualTo(ReduceOp.preMulSum(DataType.FLOAT64, 2.0));
    }

    @Test
    void whatTheTypeCannotHoldIsRefused() {
        assertThatThrownBy(() -> ReduceOp.preMulSum(DataType.UINT8, -1L))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("-1 is not a value of UINT8");
        assertThatThrownBy(() -> ReduceOp.preMulSum(DataType.INT8, 1e3))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("1000.0 is not a value of INT8");
        assertThatThrownBy(() -> new ReduceOp.PreMulSum(DataType.INT8, 0x100))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("0x100 does not fit INT8, whose scalar has 8 bits");
    }

    @Test
    void aMissingTypeIsRefused() {
        assertThatThrownBy(() -> ReduceOp.preMulSum(null, 1L))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("preMulSum needs the type of its scalar, got null");
        assertThatThrownBy(() -> ReduceOp.preMulSum(null, 1.0))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("preMulSum needs the type of its scalar, got null");
        assertThatThrownBy(() -> new ReduceOp.PreMulSum(null, 1))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("preMulSum needs the type of its scalar, got null");
    }

    @Test
    void namesShowTheScalar() {
        assertThat(ReduceOp.SUM).hasToString("SUM");
        assertThat(ReduceOp.preMulSum(DataType.FLOAT16, 0.1))
                .hasToString("preMulSum(FLOAT16, 0.0999755859375)");
    }
}
