package org.nccl4j.collectives.spi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.EnumSet;
import java.util.Set;
import java.util.stream.Stream;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.nccl4j.collectives.AllToAllVPlan;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.FakeDevice;
import org.nccl4j.collectives.FakeStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UnsupportedException;

/** Every refusal of every operation, by its text, and every in-place form. */
final class ArgumentChecksTest {
    private static final FakeDevice DEVICE = new FakeDevice(1);
    private static final DataType TYPE = DataType.FLOAT32;
    private static final int RANK = 1;
    private static final int SIZE = 3;

    private static final Capabilities GPU =
            capabilities(EnumSet.complementOf(EnumSet.of(DataType.FLOAT8E5M2)), true, false);
    private static final Capabilities CPU = capabilities(EnumSet.allOf(DataType.class), true, true);

    private final ArgumentChecks checks = new ArgumentChecks(GPU, DEVICE, RANK, SIZE);

    private static Capabilities capabilities(
            Set<DataType> types, boolean preMulSum, boolean hostBuffers) {
        return Capabilities.none()
                .withTypes(types)
                .withReductions(EnumSet.complementOf(EnumSet.of(ReduceOp.Predefined.PROD)))
                .withPreMulSum(preMulSum)
                .withHostBuffers(hostBuffers);
    }

    /** The operations, each reduced to what the common checks need; rank 1 of 3 is the root. */
    private enum Operation {
        ALL_REDUCE("allReduce") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.allReduce(send, recv, n, t, ReduceOp.SUM);
            }
        },
        REDUCE("reduce") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.reduce(send, recv, n, t, ReduceOp.SUM, RANK);
            }
        },
        BROADCAST("broadcast") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.broadcast(send, recv, n, t, RANK);
            }
        },
        ALL_GATHER("allGather") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.allGather(send, recv, n, t);
            }

            @Override
            int recvBlocks() {
                return SIZE;
            }
        },
        ALL_GATHER_V("allGatherV") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.allGatherV(send, recv, BlockLayout.packed(n, n, n), t);
            }

            @Override
            int recvBlocks() {
                return SIZE;
            }
        },
        REDUCE_SCATTER("reduceScatter") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.reduceScatter(send, recv, n, t, ReduceOp.SUM);
            }

            @Override
            int sendBlocks() {
                return SIZE;
            }
        },
        REDUCE_SCATTER_V("reduceScatterV") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.reduceScatterV(send, recv, BlockLayout.packed(n, n, n), t, ReduceOp.SUM);
            }

            @Override
            int sendBlocks() {
                return SIZE;
            }
        },
        GATHER("gather") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.gather(send, recv, n, t, RANK);
            }

            @Override
            int recvBlocks() {
                return SIZE;
            }
        },
        SCATTER("scatter") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.scatter(send, recv, n, t, RANK);
            }

            @Override
            int sendBlocks() {
                return SIZE;
            }
        },
        ALL_TO_ALL("allToAll") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.allToAll(send, recv, n, t);
            }

            @Override
            int sendBlocks() {
                return SIZE;
            }

            @Override
            int recvBlocks() {
                return SIZE;
            }
        },
        ALL_TO_ALL_V("allToAllV") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                BlockLayout blocks = BlockLayout.packed(n, n, n);
                c.allToAllV(send, recv, new AllToAllVPlan(blocks, blocks), t);
            }

            @Override
            int sendBlocks() {
                return SIZE;
            }

            @Override
            int recvBlocks() {
                return SIZE;
            }
        },
        SEND("send") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.send(send, n, t, 0);
            }

            @Override
            int recvBlocks() {
                return 0;
            }
        },
        RECV("recv") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.recv(recv, n, t, 0);
            }

            @Override
            int sendBlocks() {
                return 0;
            }
        },
        SEND_RECV("sendRecv") {
            @Override
            void check(ArgumentChecks c, DeviceBuffer send, DeviceBuffer recv, long n, DataType t) {
                c.sendRecv(send, n, 0, recv, n, 2, t);
            }
        };

        private final String method;

        Operation(String method) {
            this.method = method;
        }

        abstract void check(
                ArgumentChecks checks,
                DeviceBuffer send,
                DeviceBuffer recv,
                long countElements,
                DataType type);

        /** How many blocks of the count it reads here; 0 if it has no send buffer. */
        int sendBlocks() {
            return 1;
        }

        /** How many blocks of the count it writes here; 0 if it has no receive buffer. */
        int recvBlocks() {
            return 1;
        }

        boolean hasLayout() {
            return method.endsWith("V");
        }

        String refusal(String why) {
            return method + " on rank 1/3: " + why + "; nothing was enqueued";
        }
    }

    private void refused(Operation operation, ThrowingCallable call, String why) {
        assertThatThrownBy(call)
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(operation.refusal(why));
    }

    private static DeviceBuffer at(long address, long sizeBytes) {
        return DeviceBuffer.wrap(DEVICE, address, sizeBytes);
    }

    private static final DeviceBuffer SEND = at(0x10000, 0x1000);
    private static final DeviceBuffer RECV = at(0x20000, 0x1000);

    @ParameterizedTest
    @EnumSource
    void goodArgumentsPass(Operation operation) {
        operation.check(checks, SEND, RECV, 10, TYPE);
        // To the last byte.
        operation.check(
                checks,
                at(0x10000, operation.sendBlocks() * 40L),
                at(0x20000, operation.recvBlocks() * 40L),
                10,
                TYPE);
    }

    @ParameterizedTest
    @EnumSource
    void countZeroTakesNullEmptyClosedAndForeignBuffers(Operation operation) {
        DeviceBuffer closed = DeviceBuffer.wrap(Arena.global().allocate(4));
        closed.close();

        operation.check(checks, null, null, 0, TYPE);
        operation.check(checks, DeviceBuffer.EMPTY, DeviceBuffer.EMPTY, 0, TYPE);
        operation.check(checks, SEND, SEND, 0, TYPE);
        operation.check(checks, closed, closed, 0, TYPE);
    }

    @ParameterizedTest
    @EnumSource
    void aNegativeCountIsRefused(Operation operation) {
        if (operation.hasLayout()) {
            return; // A layout has refused it.
        }
        refused(
                operation,
                () -> operation.check(checks, SEND, RECV, -1, TYPE),
                "count is -1, must be at least 0");
    }

    @ParameterizedTest
    @EnumSource
    void aCountBeyondAllMemoryIsRefused(Operation operation) {
        long count = Long.MAX_VALUE / 4 + 1;
        if (!operation.hasLayout()) {
            refused(
                    operation,
                    () -> operation.check(checks, SEND, RECV, count, TYPE),
                    "2305843009213693952 elements of FLOAT32 exceed 2^63-1 bytes; counts are"
                            + " elements, check the unit");
        }
        if (Math.max(operation.sendBlocks(), operation.recvBlocks()) == SIZE) {
            long third = Long.MAX_VALUE / 8;
            refused(
                    operation,
                    () -> operation.check(checks, SEND, RECV, third, TYPE),
                    operation.hasLayout()
                            ? "3458764513820540925 elements of FLOAT32 exceed 2^63-1 bytes; counts"
                                    + " are elements, check the unit"
                            : "3 blocks of 4611686018427387900 bytes exceed 2^63-1 bytes; the count"
                                    + " is that of one block");
        }
    }

    @ParameterizedTest
    @EnumSource
    void aMissingTypeIsRefused(Operation operation) {
        refused(operation, () -> operation.check(checks, SEND, RECV, 1, null), "type is null");
    }

    @ParameterizedTest
    @EnumSource
    void aTypeThatTheBackendHasNotIsUnsupported(Operation operation) {
        assertThatThrownBy(() -> operation.check(checks, SEND, RECV, 1, DataType.FLOAT8E5M2))
                .isInstanceOf(UnsupportedException.class)
                .hasMessage(
                        operation.method
                                + " on rank 1/3: this backend has no FLOAT8E5M2; it has [INT8,"
                                + " UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64,"
                                + " BFLOAT16, FLOAT8E4M3]; nothing was enqueued");
    }

    @ParameterizedTest
    @EnumSource
    void aMissingBufferIsRefused(Operation operation) {
        eachBuffer(
                operation,
                null,
                (what, bytes) -> what + " is null, the operation needs " + bytes + " bytes");
    }

    @ParameterizedTest
    @EnumSource
    void aBufferThatIsTooShortIsRefused(Operation operation) {
        DeviceBuffer three = at(0x30000, 39);

        eachBuffer(
                operation,
                three,
                (what, bytes) ->
                        what
                                + " buffer[device 1, 0x30000, 39 bytes] is too short, the operation"
                                + " needs "
                                + bytes
                                + " bytes");
        eachBuffer(
                operation,
                DeviceBuffer.EMPTY,
                (what, bytes) ->
                        what + " EMPTY is too short, the operation needs " + bytes + " bytes");
    }

    @ParameterizedTest
    @EnumSource
    void aClosedBufferIsRefused(Operation operation) {
        DeviceBuffer whole = at(0x30000, 0x1000);
        DeviceBuffer part = whole.slice(16, 0x100);
        whole.close();

        eachBuffer(
                operation,
                part,
                (what, bytes) ->
                        what
                                + " buffer[device 1, 0x30010, 256 bytes] is closed, or its arena"
                                + " is");
    }

    @ParameterizedTest
    @EnumSource
    void aBufferOfAnotherDeviceIsRefused(Operation operation) {
        eachBuffer(
                operation,
                DeviceBuffer.wrap(new FakeDevice(2), 0x30000, 0x1000),
                (what, bytes) ->
                        what
                                + " buffer[device 2, 0x30000, 4096 bytes] is not memory of the"
                                + " communicator's device 1 (Fake); allocate it there with"
                                + " device().allocate, or copy it there");
    }

    @ParameterizedTest
    @EnumSource
    void hostMemoryIsRefusedWhereTheDeviceCannotReadIt(Operation operation) {
        MemorySegment memory = Arena.ofAuto().allocate(0x100, 16);

        eachBuffer(
                operation,
                DeviceBuffer.wrap(memory),
                (what, bytes) ->
                        what
                                + " buffer[host, 0x"
                                + Long.toHexString(memory.address())
                                + ", 256 bytes] is not memory of the communicator's device 1"
                                + " (Fake); allocate it there with device().allocate, or copy it"
                                + " there");
    }

    @ParameterizedTest
    @EnumSource
    void aMisalignedBufferIsRefused(Operation operation) {
        eachBuffer(
                operation,
                at(0x30002, 0x1000),
                (what, bytes) ->
                        what
                                + " buffer[device 1, 0x30002, 4096 bytes] does not start at a"
                                + " multiple of 4 bytes, the size of FLOAT32");
    }

    @ParameterizedTest
    @EnumSource
    void onTheCpuHostMemoryIsTakenAndABareAddressRefused(Operation operation) {
        ArgumentChecks cpu = new ArgumentChecks(CPU, DEVICE, RANK, SIZE);
        DeviceBuffer send = DeviceBuffer.wrap(Arena.ofAuto().allocate(0x100, 16));
        DeviceBuffer recv = DeviceBuffer.wrap(Arena.ofAuto().allocate(0x100, 16));

        operation.check(cpu, send, recv, 10, TYPE);
        for (boolean first : new boolean[] {true, false}) {
            if ((first ? operation.sendBlocks() : operation.recvBlocks()) > 0) {
                DeviceBuffer bare = at(0x30000, 0x1000);
                refused(
                        operation,
                        () ->
                                operation.check(
                                        cpu, first ? bare : send, first ? recv : bare, 10, TYPE),
                        (first ? "send " : "recv ")
                                + bare
                                + " is a bare address, which this backend cannot read; wrap a"
                                + " MemorySegment of that address and size instead");
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void readOnlyMemoryIsReadButNotWritten(Operation operation) {
        ArgumentChecks cpu = new ArgumentChecks(CPU, DEVICE, RANK, SIZE);
        DeviceBuffer send = DeviceBuffer.wrap(Arena.ofAuto().allocate(0x100, 16).asReadOnly());
        DeviceBuffer recv = DeviceBuffer.wrap(Arena.ofAuto().allocate(0x100, 16));

        operation.check(cpu, send, recv, 10, TYPE);
        if (operation.recvBlocks() > 0) {
            refused(
                    operation,
                    () -> operation.check(cpu, recv, send, 10, TYPE),
                    "recv " + send + " is read-only");
        }
    }

    /** What a message says of one buffer. */
    private interface Why {
        String of(String what, long neededBytes);
    }

    /** Puts a bad buffer in each place that the operation uses, with a count of 10. */
    private void eachBuffer(Operation operation, DeviceBuffer bad, Why why) {
        if (operation.sendBlocks() > 0) {
            refused(
                    operation,
                    () -> operation.check(checks, bad, RECV, 10, TYPE),
                    why.of("send", operation.sendBlocks() * 40L));
        }
        if (operation.recvBlocks() > 0) {
            refused(
                    operation,
                    () -> operation.check(checks, SEND, bad, 10, TYPE),
                    why.of("recv", operation.recvBlocks() * 40L));
        }
    }

    @Nested
    class Ranks {
        @Test
        void rootsAndPeersAreRanks() {
            for (int bad : new int[] {-1, 3, Integer.MAX_VALUE}) {
                String root = "root is " + bad + ", must be 0 to 2";
                String peer = "peer is " + bad + ", must be 0 to 2";
                refused(
                        Operation.REDUCE,
                        () -> checks.reduce(SEND, RECV, 1, TYPE, ReduceOp.SUM, bad),
                        root);
                refused(
                        Operation.BROADCAST,
                        () -> checks.broadcast(SEND, RECV, 1, TYPE, bad),
                        root);
                refused(Operation.GATHER, () -> checks.gather(SEND, RECV, 1, TYPE, bad), root);
                refused(Operation.SCATTER, () -> checks.scatter(SEND, RECV, 1, TYPE, bad), root);
                refused(Operation.SEND, () -> checks.send(SEND, 1, TYPE, bad), peer);
                refused(Operation.RECV, () -> checks.recv(RECV, 1, TYPE, bad), peer);
                refused(
                        Operation.SEND_RECV,
                        () -> checks.sendRecv(SEND, 1, bad, RECV, 1, 0, TYPE),
                        "destination is " + bad + ", must be 0 to 2");
                refused(
                        Operation.SEND_RECV,
                        () -> checks.sendRecv(SEND, 1, 0, RECV, 1, bad, TYPE),
                        "source is " + bad + ", must be 0 to 2");
            }
        }

        @Test
        void theyAreAlsoCheckedForCountZero() {
            refused(
                    Operation.BROADCAST,
                    () -> checks.broadcast(null, null, 0, TYPE, 3),
                    "root is 3, must be 0 to 2");
            refused(
                    Operation.SEND,
                    () -> checks.send(null, 0, TYPE, -1),
                    "peer is -1, must be 0 to 2");
        }

        @Test
        void awayFromTheRootTheOtherBufferIsIgnored() {
            DeviceBuffer other = DeviceBuffer.wrap(new FakeDevice(2), 0x10002, 1);
            for (DeviceBuffer ignored :
                    new DeviceBuffer[] {null, DeviceBuffer.EMPTY, other, SEND}) {
                checks.reduce(SEND, ignored, 10, TYPE, ReduceOp.SUM, 0);
                checks.gather(SEND, ignored, 10, TYPE, 0);
                checks.broadcast(ignored, SEND, 10, TYPE, 0);
                checks.scatter(ignored, SEND, 10, TYPE, 0);
            }
            // Overlaps with what is not used do not matter either.
            checks.reduce(SEND, at(0x10004, 0x100), 10, TYPE, ReduceOp.SUM, 2);
            checks.scatter(at(0x10004, 0x100), SEND, 10, TYPE, 2);
        }
    }

    @Nested
    class Reductions {
        @Test
        void aMissingOneIsRefused() {
            refused(
                    Operation.ALL_REDUCE,
                    () -> checks.allReduce(SEND, RECV, 1, TYPE, null),
                    "reduction is null");
            refused(
                    Operation.REDUCE,
                    () -> checks.reduce(SEND, RECV, 1, TYPE, null, 0),
                    "reduction is null");
            refused(
                    Operation.REDUCE_SCATTER,
                    () -> checks.reduceScatter(SEND, RECV, 1, TYPE, null),
                    "reduction is null");
            refused(
                    Operation.REDUCE_SCATTER_V,
                    () ->
                            checks.reduceScatterV(
                                    SEND, RECV, BlockLayout.packed(1, 1, 1), TYPE, null),
                    "reduction is null");
        }

        @Test
        void oneThatTheBackendHasNotIsUnsupported() {
            assertThatThrownBy(() -> checks.allReduce(SEND, RECV, 1, TYPE, ReduceOp.PROD))
                    .isInstanceOf(UnsupportedException.class)
                    .hasMessage(
                            "allReduce on rank 1/3: this backend has no PROD; it has [SUM, MAX,"
                                    + " MIN, AVG] and preMulSum; nothing was enqueued");
            ArgumentChecks without =
                    new ArgumentChecks(
                            capabilities(EnumSet.allOf(DataType.class), false, false),
                            DEVICE,
                            RANK,
                            SIZE);
            assertThatThrownBy(() ->
                            without.reduce(SEND, RECV, 1, TYPE, ReduceOp.preMulSum(TYPE, 0.5), 0))
                    .isInstanceOf(UnsupportedException.class)
                    .hasMessage(
                            "reduce on rank 1/3: this backend has no preMulSum(FLOAT32, 0.5); it"
                                    + " has [SUM, MAX, MIN, AVG]; nothing was enqueued");
        }

        @Test
        void theScalarHasTheBuffersType() {
            checks.allReduce(SEND, RECV, 1, TYPE, ReduceOp.preMulSum(TYPE, 0.5));
            refused(
                    Operation.ALL_REDUCE,
                    () ->
                            checks.allReduce(
                                    SEND, RECV, 1, TYPE, ReduceOp.preMulSum(DataType.INT32, 2L)),
                    "the scalar of preMulSum is INT32, the buffers are FLOAT32; make it with"
                            + " ReduceOp.preMulSum(FLOAT32, ...)");
        }
    }

    @Nested
    class Layouts {
        @Test
        void aMissingOneIsRefused() {
            refused(
                    Operation.ALL_GATHER_V,
                    () -> checks.allGatherV(SEND, RECV, null, TYPE),
                    "layout is null");
            refused(
                    Operation.REDUCE_SCATTER_V,
                    () -> checks.reduceScatterV(SEND, RECV, null, TYPE, ReduceOp.SUM),
                    "layout is null");
            refused(
                    Operation.ALL_TO_ALL_V,
                    () -> checks.allToAllV(SEND, RECV, null, TYPE),
                    "plan is null");
        }

        @Test
        void oneForAnotherNumberOfRanksIsRefused() {
            BlockLayout two = BlockLayout.packed(1, 1);
            String why = "the layout has 2 blocks, the communicator 3 ranks";
            refused(Operation.ALL_GATHER_V, () -> checks.allGatherV(SEND, RECV, two, TYPE), why);
            refused(
                    Operation.REDUCE_SCATTER_V,
                    () -> checks.reduceScatterV(SEND, RECV, two, TYPE, ReduceOp.SUM),
                    why);
            refused(
                    Operation.ALL_TO_ALL_V,
                    () -> checks.allToAllV(SEND, RECV, new AllToAllVPlan(two, two), TYPE),
                    "the plan is for 2 ranks, the communicator has 3");
        }

        @Test
        void theWholeIsAsLongAsItsLastBlockReaches() {
            BlockLayout gap = BlockLayout.of(new long[] {1, 1, 1}, new long[] {8, 4, 0});

            checks.allGatherV(SEND, at(0x20000, 36), gap, TYPE);
            refused(
                    Operation.ALL_GATHER_V,
                    () -> checks.allGatherV(SEND, at(0x20000, 32), gap, TYPE),
                    "recv buffer[device 1, 0x20000, 32 bytes] is too short, the operation needs 36"
                            + " bytes");
        }

        @Test
        void anEmptyOwnBlockNeedsNoBuffer() {
            BlockLayout layout = BlockLayout.packed(3, 0, 3);

            checks.allGatherV(null, RECV, layout, TYPE);
            checks.reduceScatterV(SEND, null, layout, TYPE, ReduceOp.SUM);
            checks.allToAllV(
                    SEND, null, new AllToAllVPlan(layout, BlockLayout.packed(0, 0, 0)), TYPE);
            checks.allToAllV(
                    null, RECV, new AllToAllVPlan(BlockLayout.packed(0, 0, 0), layout), TYPE);
        }

        /** The bytes before an empty block need not fit a long. */
        @Test
        void anEmptyBlockMayBeAnywhere() {
            BlockLayout far =
                    BlockLayout.of(new long[] {1, 1, 0}, new long[] {0, 2, Long.MAX_VALUE});
            DeviceBuffer between = at(0x10004, 0x1000);

            checks.allToAllV(SEND, between, new AllToAllVPlan(far, far), TYPE);
            checks.allGatherV(between, SEND, far, TYPE);
            checks.reduceScatterV(SEND, between, far, TYPE, ReduceOp.SUM);
        }
    }

    /** Rule 9 of docs/semantics.md, for rank 1 of 3 and blocks of 10 elements of 4 bytes. */
    @Nested
    class Overlap {
        private static final long BASE = 0x10000;
        private static final long BLOCK = 40;

        private final DeviceBuffer base = at(BASE, 0x1000);

        private void overlap(Operation operation, ThrowingCallable call, long... ranges) {
            refused(
                    operation,
                    call,
                    ("what this rank reads and writes overlaps: [0x%x, +%d) and [0x%x, +%d); use"
                                    + " separate buffers or the exact in-place form")
                            .formatted(ranges[0], ranges[1], ranges[2], ranges[3]));
        }

        @Test
        void theExactInPlaceFormsAreAccepted() {
            DeviceBuffer own = base.slice(RANK * BLOCK, BLOCK);
            BlockLayout layout = BlockLayout.of(new long[] {5, 10, 7}, new long[] {30, 2, 15});
            DeviceBuffer ownV = base.slice(8, BLOCK);

            checks.allReduce(base, base, 10, TYPE, ReduceOp.SUM);
            checks.reduce(base, base, 10, TYPE, ReduceOp.SUM, RANK);
            checks.broadcast(base, base, 10, TYPE, RANK);
            checks.allGather(own, base, 10, TYPE);
            checks.allGatherV(ownV, base, layout, TYPE);
            checks.reduceScatter(base, own, 10, TYPE, ReduceOp.SUM);
            checks.reduceScatterV(base, ownV, layout, TYPE, ReduceOp.SUM);
            checks.gather(own, base, 10, TYPE, RANK);
            checks.scatter(base, own, 10, TYPE, RANK);
        }

        @Test
        void touchingRangesDoNotOverlap() {
            for (Operation operation : Operation.values()) {
                long sendBytes = Math.max(1, operation.sendBlocks()) * BLOCK;
                long recvBytes = Math.max(1, operation.recvBlocks()) * BLOCK;
                operation.check(checks, base, at(BASE + sendBytes, recvBytes), 10, TYPE);
                operation.check(checks, at(BASE + recvBytes, sendBytes), base, 10, TYPE);
            }
        }

        @Test
        void aShiftByOneElementIsRefused() {
            DeviceBuffer shifted = at(BASE + 4, 0x1000);
            overlap(
                    Operation.ALL_REDUCE,
                    () -> checks.allReduce(base, shifted, 10, TYPE, ReduceOp.SUM),
                    BASE,
                    40,
                    BASE + 4,
                    40);
            overlap(
                    Operation.ALL_REDUCE,
                    () -> checks.allReduce(shifted, base, 10, TYPE, ReduceOp.SUM),
                    BASE + 4,
                    40,
                    BASE,
                    40);
            overlap(
                    Operation.REDUCE,
                    () -> checks.reduce(base, shifted, 10, TYPE, ReduceOp.SUM, RANK),
                    BASE,
                    40,
                    BASE + 4,
                    40);
            overlap(
                    Operation.BROADCAST,
                    () -> checks.broadcast(base, shifted, 10, TYPE, RANK),
                    BASE,
                    40,
                    BASE + 4,
                    40);
        }

        @Test
        void anotherRanksPlaceIsNotInPlace() {
            for (int place : new int[] {0, 2}) {
                DeviceBuffer other = base.slice(place * BLOCK, BLOCK);
                long start = BASE + place * BLOCK;
                overlap(
                        Operation.ALL_GATHER,
                        () -> checks.allGather(other, base, 10, TYPE),
                        start,
                        40,
                        BASE,
                        120);
                overlap(
                        Operation.REDUCE_SCATTER,
                        () -> checks.reduceScatter(base, other, 10, TYPE, ReduceOp.SUM),
                        start,
                        40,
                        BASE,
                        120);
                overlap(
                        Operation.GATHER,
                        () -> checks.gather(other, base, 10, TYPE, RANK),
                        start,
                        40,
                        BASE,
                        120);
                overlap(
                        Operation.SCATTER,
                        () -> checks.scatter(base, other, 10, TYPE, RANK),
                        start,
                        40,
                        BASE,
                        120);
            }
        }

        @Test
        void oneByteFarIsNotInPlaceForBytes() {
            for (long shift : new long[] {-1, 1}) {
                DeviceBuffer own = at(BASE + 10 + shift, 10);
                overlap(
                        Operation.ALL_GATHER,
                        () -> checks.allGather(own, base, 10, DataType.INT8),
                        BASE + 10 + shift,
                        10,
                        BASE,
                        30);
            }
        }

        @Test
        void allToAllHasNoInPlaceForm() {
            overlap(
                    Operation.ALL_TO_ALL,
                    () -> checks.allToAll(base, base, 10, TYPE),
                    BASE,
                    120,
                    BASE,
                    120);
            BlockLayout blocks = BlockLayout.packed(10, 10, 10);
            overlap(
                    Operation.ALL_TO_ALL_V,
                    () -> checks.allToAllV(base, base, new AllToAllVPlan(blocks, blocks), TYPE),
                    BASE,
                    40,
                    BASE,
                    40);
            overlap(
                    Operation.SEND_RECV,
                    () -> checks.sendRecv(base, 10, 0, base, 10, 2, TYPE),
                    BASE,
                    40,
                    BASE,
                    40);
        }

        @Test
        void blocksMayLieInGaps() {
            BlockLayout spread = BlockLayout.of(new long[] {10, 10, 10}, new long[] {0, 20, 40});
            DeviceBuffer gap = base.slice(10 * 4, BLOCK);

            checks.allGatherV(gap, base, spread, TYPE);
            checks.reduceScatterV(base, gap, spread, TYPE, ReduceOp.SUM);
            checks.allToAllV(base, at(BASE + 40, 200), new AllToAllVPlan(spread, spread), TYPE);
            overlap(
                    Operation.ALL_GATHER_V,
                    () -> checks.allGatherV(at(BASE + 44, 40), base, spread, TYPE),
                    BASE + 44,
                    40,
                    BASE + 80,
                    40);
            overlap(
                    Operation.REDUCE_SCATTER_V,
                    () ->
                            checks.reduceScatterV(
                                    base, at(BASE + 36, 40), spread, TYPE, ReduceOp.SUM),
                    BASE + 36,
                    40,
                    BASE,
                    40);
            overlap(
                    Operation.ALL_TO_ALL_V,
                    () ->
                            checks.allToAllV(
                                    base,
                                    at(BASE + 44, 0x1000),
                                    new AllToAllVPlan(spread, spread),
                                    TYPE),
                    BASE + 80,
                    40,
                    BASE + 44,
                    40);
        }

        @Test
        void onlyTheUsedPartOfABufferCounts() {
            checks.allReduce(base, at(BASE + 40, 0x1000), 10, TYPE, ReduceOp.SUM);
            checks.sendRecv(base, 10, 0, at(BASE + 40, 4), 1, 2, TYPE);
            checks.sendRecv(base, 10, 0, base, 0, 2, TYPE);
            checks.sendRecv(base, 0, 0, base, 10, 2, TYPE);
        }

        @Test
        void rangesAtBothEndsOfTheAddressSpaceAreApart() {
            DeviceBuffer low = at(0x1000, 0x1000);
            DeviceBuffer high = at(-0x1000, 0xfff);

            checks.allReduce(low, high, 10, TYPE, ReduceOp.SUM);
            checks.allReduce(high, low, 10, TYPE, ReduceOp.SUM);
            overlap(
                    Operation.ALL_REDUCE,
                    () -> checks.allReduce(high, at(-0xffc, 0x100), 10, TYPE, ReduceOp.SUM),
                    -0x1000,
                    40,
                    -0xffc,
                    40);
        }

        @Test
        void oneRankAlone() {
            ArgumentChecks alone = new ArgumentChecks(GPU, DEVICE, 0, 1);

            alone.allGather(base, base, 10, TYPE);
            alone.reduceScatter(base, base, 10, TYPE, ReduceOp.SUM);
            alone.gather(base, base, 10, TYPE, 0);
            alone.scatter(base, base, 10, TYPE, 0);
            assertThatThrownBy(() -> alone.allToAll(base, base, 10, TYPE))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessageStartingWith("allToAll on rank 0/1: what this rank reads");
        }
    }

    @Nested
    class Streams {
        @Test
        void aStreamOfTheDevicePasses() {
            assertThatCode(() -> checks.stream("barrier", new FakeStream(new FakeDevice(1))))
                    .doesNotThrowAnyException();
        }

        @Test
        void aMissingOneIsRefused() {
            assertThatThrownBy(() -> checks.stream("barrier", null))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessage(
                            "barrier on rank 1/3: stream is null; make one with"
                                    + " device().createStream(); nothing was enqueued");
        }

        @Test
        void oneOfAnotherDeviceIsRefused() {
            assertThatThrownBy(() ->
                            checks.stream("barrier", new FakeStream(new FakeDevice(1, "Other"))))
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessage(
                            "barrier on rank 1/3: the stream is on device 1 (Other), the"
                                    + " communicator on device 1 (Fake); use a stream of the"
                                    + " communicator's device(); nothing was enqueued");
        }
    }

    @Nested
    class CopyAndFill {
        private final DeviceBuffer host = DeviceBuffer.wrap(Arena.ofAuto().allocate(64, 16));
        private final DeviceBuffer readOnly =
                DeviceBuffer.wrap(Arena.ofAuto().allocate(64, 16).asReadOnly());

        private void refused(ThrowingCallable call, String message) {
            assertThatThrownBy(call)
                    .isInstanceOf(InvalidArgumentException.class)
                    .hasMessage(message + "; nothing was enqueued");
        }

        @Test
        void memoryOfAnyDeviceAndTheHostIsTaken() {
            DeviceBuffer other = DeviceBuffer.wrap(new FakeDevice(7), 0x90000, 64);

            ArgumentChecks.copy(GPU, SEND, RECV, 0x1000);
            ArgumentChecks.copy(GPU, other, RECV, 64);
            ArgumentChecks.copy(GPU, host, RECV, 64);
            ArgumentChecks.copy(GPU, readOnly, host, 64);
            ArgumentChecks.copy(CPU, readOnly, host, 64);
            ArgumentChecks.copy(CPU, null, null, 0);
            ArgumentChecks.copy(CPU, host, host, 0);
            ArgumentChecks.copy(CPU, host.slice(0, 32), host.slice(32, 32), 32);
            ArgumentChecks.fill(GPU, RECV);
            ArgumentChecks.fill(CPU, host);
            ArgumentChecks.fill(CPU, DeviceBuffer.EMPTY);
        }

        @Test
        void badRangesAreRefused() {
            refused(
                    () -> ArgumentChecks.copy(GPU, SEND, RECV, -1),
                    "copy: size is -1 bytes, must be at least 0");
            refused(
                    () -> ArgumentChecks.copy(GPU, null, RECV, 1),
                    "copy: source is null, needs 1 bytes");
            refused(
                    () -> ArgumentChecks.copy(GPU, SEND, null, 1),
                    "copy: destination is null, needs 1 bytes");
            refused(
                    () -> ArgumentChecks.copy(GPU, SEND, RECV, 4097),
                    "copy: source " + SEND + " is too short, needs 4097 bytes");
            refused(
                    () -> ArgumentChecks.copy(GPU, SEND, RECV.slice(0, 8), 9),
                    "copy: destination " + RECV.slice(0, 8) + " is too short, needs 9 bytes");
            refused(
                    () -> ArgumentChecks.copy(CPU, host, host.slice(8, 32), 9),
                    "copy: the first 9 bytes of source "
                            + host
                            + " and destination "
                            + host.slice(8, 32)
                            + " overlap");
            refused(() -> ArgumentChecks.fill(GPU, null), "fill: destination is null");
        }

        @Test
        void memoryThatCannotBeUsedIsRefused() {
            DeviceBuffer closed = at(0x30000, 64);
            closed.close();

            refused(
                    () -> ArgumentChecks.copy(GPU, closed, RECV, 1),
                    "copy: source " + closed + " is closed, or its arena is");
            refused(
                    () -> ArgumentChecks.fill(GPU, closed),
                    "fill: destination " + closed + " is closed, or its arena is");
            refused(
                    () -> ArgumentChecks.copy(GPU, SEND, readOnly, 1),
                    "copy: destination " + readOnly + " is read-only");
            refused(
                    () -> ArgumentChecks.fill(CPU, readOnly),
                    "fill: destination " + readOnly + " is read-only");
            refused(
                    () -> ArgumentChecks.copy(CPU, SEND, host, 1),
                    "copy: source "
                            + SEND
                            + " is a bare address, which this backend cannot read; wrap a"
                            + " MemorySegment of that address and size instead");
            refused(
                    () -> ArgumentChecks.fill(CPU, RECV),
                    "fill: destination "
                            + RECV
                            + " is a bare address, which this backend cannot read; wrap a"
                            + " MemorySegment of that address and size instead");
        }
    }

    @Test
    void aRefusalAsksToCorrectTheCall() {
        assertThatThrownBy(() -> checks.allReduce(null, RECV, 1, TYPE, ReduceOp.SUM))
                .isInstanceOfSatisfying(
                        InvalidArgumentException.class,
                        e ->
                                assertThat(e.recovery())
                                        .isEqualTo(CollectiveException.Recovery.CORRECT_THE_CALL));
    }

    /** Through reflection, because the module does not read the JDK's management modules. */
    @Test
    void passingAllocatesNothing() throws ReflectiveOperationException {
        Object threads =
                Class.forName("java.lang.management.ManagementFactory")
                        .getMethod("getThreadMXBean")
                        .invoke(null);
        Method allocated =
                Class.forName("com.sun.management.ThreadMXBean")
                        .getMethod("getCurrentThreadAllocatedBytes");
        int rounds = 10_000;
        // The first rounds load classes.
        for (Operation operation : Operation.values()) {
            if (!operation.hasLayout()) {
                check(operation, rounds);
            }
        }
        for (Operation operation : Operation.values()) {
            if (operation.hasLayout()) {
                continue; // The test's own layouts are garbage here; see below.
            }
            long before = (long) allocated.invoke(threads);
            check(operation, rounds);
            long bytes = (long) allocated.invoke(threads) - before;
            assertThat(bytes).as(operation.method).isLessThan(rounds);
        }
        AllToAllVPlan plan =
                new AllToAllVPlan(BlockLayout.packed(9, 8, 7), BlockLayout.packed(1, 2, 3));
        ReduceOp scaled = ReduceOp.preMulSum(TYPE, 0.5);
        FakeStream stream = new FakeStream(DEVICE);
        checkLayouts(plan, scaled, stream, rounds);
        long before = (long) allocated.invoke(threads);
        checkLayouts(plan, scaled, stream, rounds);
        assertThat((long) allocated.invoke(threads) - before).isLessThan(rounds);
    }

    private void check(Operation operation, int rounds) {
        for (int i = 0; i < rounds; i++) {
            operation.check(checks, SEND, RECV, 10, TYPE);
        }
    }

    private void checkLayouts(AllToAllVPlan plan, ReduceOp op, FakeStream stream, int rounds) {
        for (int i = 0; i < rounds; i++) {
            checks.allGatherV(SEND, RECV, plan.receive(), TYPE);
            checks.reduceScatterV(SEND, RECV, plan.send(), TYPE, op);
            checks.allToAllV(SEND, RECV, plan, TYPE);
            checks.stream("allToAllV", stream);
        }
    }

    @Test
    void everyOperationOfTheContractIsCovered() {
        assertThat(Stream.of(Operation.values()).map(operation -> operation.method).sorted())
                .containsExactlyElementsOf(
                        Stream.of(ArgumentChecks.class.getDeclaredMethods())
                                .filter(m -> Modifier.isPublic(m.getModifiers()))
                                .filter(m -> !Modifier.isStatic(m.getModifiers()))
                                .map(Method::getName)
                                .filter(name -> !name.equals("stream"))
                                .sorted()
                                .toList());
    }
}
