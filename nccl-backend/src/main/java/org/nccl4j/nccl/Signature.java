package org.nccl4j.nccl;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.ReduceOp;

/**
 * What a rank has called, as the others see it through a store: a line of text there, which a
 * person can read as well.
 *
 * <p>Thread safety: immutable.
 *
 * @param kind the operation
 * @param countElements the count, 0 if there is none
 * @param type the element type, null if there is none
 * @param reduction the reduction, null if there is none; without the scalar, which is each rank's
 *     own
 * @param root root or peer, else -1
 * @param sendCounts elements per rank that are sent, null if the operation has no such blocks
 * @param recvCounts the same of what is received
 */
record Signature(
        OperationKind kind,
        long countElements,
        DataType type,
        String reduction,
        int root,
        List<Long> sendCounts,
        List<Long> recvCounts) {
    private static final String NONE = "-";
    private static final int FIELDS = 7;

    static Signature of(
            OperationKind kind,
            long countElements,
            DataType type,
            ReduceOp op,
            int root,
            BlockLayout sendLayout,
            BlockLayout recvLayout) {
        return switch (kind) {
            case BARRIER, SPLIT, EXCHANGE_COUNTS -> hostCall(kind);
            default ->
                    new Signature(
                            kind,
                            countElements,
                            type,
                            op instanceof ReduceOp.PreMulSum
                                    ? "preMulSum"
                                    : op == null ? null : op.toString(),
                            root,
                            counts(sendLayout),
                            counts(recvLayout));
        };
    }

    /** Of a call without arguments that ranks must agree about. */
    static Signature hostCall(OperationKind kind) {
        return new Signature(kind, 0, null, null, -1, null, null);
    }

    private static List<Long> counts(BlockLayout layout) {
        return layout == null ? null : Arrays.stream(layout.countsElements()).boxed().toList();
    }

    /** Whether another rank's call with the same number, on the same pair, means the same. */
    boolean agreesWith(Signature other) {
        boolean same =
                kind.isPointToPoint()
                        ? other.kind.isPointToPoint()
                        : kind == other.kind && root == other.root;
        return same
                && countElements == other.countElements
                && type == other.type
                && Objects.equals(reduction, other.reduction)
                && (kind == OperationKind.ALL_TO_ALL_V
                        || Objects.equals(sendCounts, other.sendCounts)
                                && Objects.equals(recvCounts, other.recvCounts));
    }

    byte[] toBytes() {
        return String.join(
                        " ",
                        kind.name(),
                        Long.toString(countElements),
                        type == null ? NONE : type.name(),
                        reduction == null ? NONE : reduction,
                        Integer.toString(root),
                        text(sendCounts),
                        text(recvCounts))
                .getBytes(StandardCharsets.UTF_8);
    }

    /**
     * The other direction.
     *
     * @throws IllegalArgumentException if that is none
     */
    static Signature of(byte[] bytes) {
        String[] fields = new String(bytes, StandardCharsets.UTF_8).split(" ", -1);
        if (fields.length != FIELDS) {
            throw new IllegalArgumentException(fields.length + " fields instead of " + FIELDS);
        }
        return new Signature(
                OperationKind.valueOf(fields[0]),
                Long.parseLong(fields[1]),
                fields[2].equals(NONE) ? null : DataType.valueOf(fields[2]),
                fields[3].equals(NONE) ? null : fields[3],
                Integer.parseInt(fields[4]),
                counts(fields[5]),
                counts(fields[6]));
    }

    private static String text(List<Long> counts) {
        return counts == null
                ? NONE
                : counts.stream().map(String::valueOf).collect(Collectors.joining(","));
    }

    private static List<Long> counts(String text) {
        return text.equals(NONE)
                ? null
                : Arrays.stream(text.split(",")).map(Long::valueOf).toList();
    }
}
