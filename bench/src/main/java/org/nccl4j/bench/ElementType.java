package org.nccl4j.bench;

import java.util.List;
import java.util.Locale;
import org.nccl4j.collectives.DataType;

/** The element types of -d, in nccl-tests' order, which is also that of NCCL's enumeration. */
enum ElementType {
    INT8("int8", DataType.INT8, "char i8 s8 byte"),
    UINT8("uint8", DataType.UINT8, "u8 uchar"),
    INT32("int32", DataType.INT32, "int i32 s32"),
    UINT32("uint32", DataType.UINT32, "uint u32"),
    INT64("int64", DataType.INT64, "long i64 s64"),
    UINT64("uint64", DataType.UINT64, "ulong u64"),
    HALF("half", DataType.FLOAT16, "float16 fp16 f16"),
    FLOAT("float", DataType.FLOAT32, "float32 fp32 f32 single"),
    DOUBLE("double", DataType.FLOAT64, "float64 fp64 f64"),
    BFLOAT16("bfloat16", DataType.BFLOAT16, "bf16 bfloat"),
    FLOAT8E4M3("f8e4m3", DataType.FLOAT8E4M3, "fp8 float8 fp8_e4m3 float8e4m3 float8_e4m3"),
    FLOAT8E5M2("f8e5m2", DataType.FLOAT8E5M2, "fp8_e5m2 float8e5m2 float8_e5m2");

    private final String label;
    private final DataType dataType;
    private final String namesElsewhere;

    ElementType(String label, DataType dataType, String namesElsewhere) {
        this.label = label;
        this.dataType = dataType;
        this.namesElsewhere = namesElsewhere;
    }

    /** The name on the command line and in the type column. */
    String label() {
        return label;
    }

    DataType dataType() {
        return dataType;
    }

    /** Bytes of an element. */
    int widthBytes() {
        return dataType.sizeBytes();
    }

    /** True if other tools call this type so; only ever used to suggest {@link #label}. */
    boolean isElsewhereCalled(String word) {
        return List.of(namesElsewhere.split(" ")).contains(word.toLowerCase(Locale.ROOT));
    }
}
