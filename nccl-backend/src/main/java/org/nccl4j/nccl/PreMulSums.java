package org.nccl4j.nccl;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.LinkedHashMap;
import java.util.Map;
import org.nccl4j.collectives.NativeCallException;
import org.nccl4j.collectives.ReduceOp;

/**
 * NCCL's operators behind pre-multiplied sums, per type and scalar. The longest unused goes when
 * there are too many: NCCL has copied what an operator means when the operation's call returns.
 *
 * <p>Thread safety: belongs to the communicator's thread.
 */
final class PreMulSums {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    private static final int LIMIT = 64;

    /** The scalar is read from host memory during the call. */
    private static final int HOST_IMMEDIATE = 1;

    private final Member member;
    private final Map<ReduceOp.PreMulSum, Integer> operators = new LinkedHashMap<>(16, 0.75f, true);
    private MemorySegment operatorCell;
    private MemorySegment scalarCell;

    /** Asked for again and again in loops. */
    private ReduceOp.PreMulSum last;

    private int lastOperator;
    private boolean held;

    PreMulSums(Member member) {
        this.member = member;
    }

    /** NCCL's number of a reduction; 0 for none. */
    int operator(ReduceOp op) {
        if (op instanceof ReduceOp.Predefined predefined) {
            // The constants are in the order of NCCL's.
            return predefined.ordinal();
        }
        if (op == null) {
            return 0;
        }
        if (!op.equals(last)) {
            lastOperator = lookUp((ReduceOp.PreMulSum) op);
            last = (ReduceOp.PreMulSum) op;
        }
        return lastOperator;
    }

    private int lookUp(ReduceOp.PreMulSum op) {
        Integer known = operators.get(op);
        if (known != null) {
            return known;
        }
        if (!held) {
            trim(LIMIT - 1);
        }
        if (operatorCell == null) {
            operatorCell = member.clique.arena.allocate(ValueLayout.JAVA_INT);
            scalarCell = member.clique.arena.allocate(ValueLayout.JAVA_LONG);
        }
        // Little-endian: the low bytes come first, as many as the type has.
        scalarCell.set(ValueLayout.JAVA_LONG, 0, op.scalarBits());
        NcclLibrary.redOpCreatePreMulSum(
                operatorCell,
                scalarCell,
                op.type().ordinal(),
                HOST_IMMEDIATE,
                member.comm(),
                "making " + op + " for " + member.describe());
        int made = operatorCell.get(ValueLayout.JAVA_INT, 0);
        operators.put(op, made);
        return made;
    }

    /** Until {@link #release} all stay that are asked for: a group has not used them yet. */
    void hold() {
        held = true;
    }

    void release() {
        held = false;
        trim(LIMIT);
    }

    private void trim(int most) {
        while (operators.size() > most) {
            ReduceOp.PreMulSum eldest = operators.keySet().iterator().next();
            destroy(operators.remove(eldest));
        }
    }

    /** Before the communicator is finalized. */
    void destroyAll() {
        last = null;
        operators.values().forEach(this::destroy);
        operators.clear();
    }

    private void destroy(int operator) {
        try {
            NcclLibrary.redOpDestroy(
                    operator, member.comm(), "removing an operator of " + member.describe());
        } catch (NativeCallException e) {
            // It stays until the communicator is destroyed, and nobody misses it.
            LOG.log(System.Logger.Level.WARNING, e.getMessage());
        }
    }
}
